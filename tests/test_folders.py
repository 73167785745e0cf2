"""The folders of tests are those of the package, and what tests share is in ``tests/support``."""

import ast
from collections import Counter
from pathlib import Path

import daskkern

TESTS = Path(__file__).parent
PACKAGE = Path(daskkern.__file__).parent
OTHERS = {"benchmarks", "deploy", "examples", "gpu", "nasty", "support"}
"""Folders of tests of what is outside the package, or of all of it on a GPU and on nasty data."""


def _imported(path: Path) -> set[str]:
    """Return the last parts of the names of modules that a file imports, and of what it imports from them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(alias.name for alias in node.names)}
    return {name.rpartition(".")[2] for name in names}


def test_every_folder_of_tests_is_one_of_the_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    assert len(folders) > 30  # the walk has seen the tests
    ours = {folder for folder in folders if folder.parts and folder.parts[0] not in OTHERS}
    assert [str(folder) for folder in ours if not (PACKAGE / folder / "__init__.py").exists()] == []


def test_no_folder_has_more_than_twenty_modules() -> None:
    counts = Counter(path.parent for path in TESTS.rglob("*.py") if path.name != "conftest.py")
    assert {str(folder): count for folder, count in counts.items() if count > 20} == {}


def test_no_test_imports_another() -> None:
    files = list(TESTS.rglob("*.py"))
    modules = {path.stem for path in files if path.name.startswith("test_")}
    found = {path.name: sorted(_imported(path) & modules) for path in files}
    assert {name: others for name, others in found.items() if others} == {}


def test_names_of_test_files_are_unique() -> None:
    """Pytest imports them by these, for want of packages."""
    counts = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []
