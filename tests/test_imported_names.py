"""Benchmarks, examples and scripts import names that the package has: no test runs all of them."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    path for folder in ("benchmarks", "examples", "docs", "deploy") for path in sorted((ROOT / folder).rglob("*.py"))
]


def _defined(module: str) -> set[str]:
    """Return the names that a module of the package binds at its top, and the modules within it."""
    path = ROOT.joinpath(*module.split("."))
    within = {found.stem for found in path.glob("*")} if path.is_dir() else set()
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.is_file():
        return set()
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names | within


def _public() -> set[str]:
    import daskkern

    return set(daskkern.__all__)


def test_the_scripts_were_found() -> None:
    assert len(FILES) > 50


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_that_a_script_imports_exists(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "daskkern":
            assert node.module is not None
            known = _defined(node.module) | (_public() if node.module == "daskkern" else set())
            missing += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in known]
        elif isinstance(node, ast.Import):
            ours = [alias.name for alias in node.names if alias.name.split(".")[0] == "daskkern"]
            missing += [name for name in ours if find_spec(name) is None]
    assert missing == []
