"""Sites of several versions: each says which one it documents, and links the others."""

import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def versions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site_versions", DOCS / "site_versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tree(root: Path, changelog: str, fragment: bool) -> Path:
    for name in ("daskkern", "changes"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "daskkern" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    (root / "CHANGELOG.md").write_text(changelog)
    (root / "changes" / "README.md").write_text("")
    if fragment:
        (root / "changes" / "page.added.md").write_text("- More.\n")
    return root


def test_a_tree_is_of_a_release_once_its_changes_are_in_the_changelog(versions: ModuleType, tmp_path: Path) -> None:
    assert versions.version_of(_tree(tmp_path / "a", "## [0.2.0] - 2026-12-01\n", False)) == "0.2.0"
    assert versions.version_of(_tree(tmp_path / "b", "## [0.2.0] - 2026-12-01\n", True)) == "dev"
    assert versions.version_of(_tree(tmp_path / "c", "## [0.1.0] - 2026-11-01\n", False)) == "dev"


def test_a_site_names_its_version_and_links_the_others(versions: ModuleType) -> None:
    others = versions.published_versions({versions.VERSIONS: "dev 0.2.0 0.1.0"})
    page = versions.page("0.2.0", others)
    assert "This site documents daskkern **0.2.0**" in page
    assert "- [daskkern, development version](../dev/index.html)\n- [daskkern 0.1.0](../0.1.0/index.html)\n" in page
    assert "../0.2.0" not in page
    assert versions.published_versions({}) == []
    alone = versions.page("dev", [])
    assert "**the development version, which has changes that no release has**" in alone
    assert "It was built alone" in alone


def test_each_tag_is_built_from_its_own_files(versions: ModuleType, tmp_path: Path) -> None:
    root, out = _tree(tmp_path / "tree", "## [0.2.0] - 2026-12-01\n", False), tmp_path / "site"
    out.mkdir()
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "Release"],
        ["tag", "v0.2.0"],
        ["tag", "v0.10.0rc1"],
    ):
        subprocess.run([*git, *words], check=True)
    _tree(root, "## [0.2.0] - 2026-12-01\n", fragment=True)
    built: list[tuple[str, str, list[str]]] = []

    def build(tree: Path, to: Path, names: Sequence[str]) -> None:
        built.append((versions.version_of(tree), to.name, list(names)))

    everything = ["dev", "0.10.0rc1", "0.2.0"]
    assert versions.build_all(["v0.2.0", "v0.10.0rc1"], out, root, build) == everything
    assert built == [
        ("0.2.0", "0.2.0", everything),
        ("0.2.0", "0.10.0rc1", everything),
        ("dev", "dev", everything),
    ]
    assert "url=0.10.0rc1/index.html" in (out / "index.html").read_text()
