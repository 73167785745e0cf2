"""What the docs quote is what the files say."""

import re
from pathlib import Path

import pytest

from daskkern.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("add-a-kernel.md", "add-a-loss.md", "add-a-solver.md", "add-a-landmark-rule.md")
TEXTS = (
    "README.md",
    "CHANGELOG.md",
    *(f"changes/{path.name}" for path in (ROOT / "changes").glob("*")),
    "deploy/README.md",
    "examples/README.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*")),
)
_QUOTE = r"<!-- {} -->\n```python\n(.*?)```"


@pytest.mark.parametrize("page", [page for page in PAGES if page != "add-a-solver.md"])
def test_the_quoted_source_is_the_file(page: str) -> None:
    quotes = re.findall(_QUOTE.format(r"source: (\S+)"), (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert len(quotes) == 1
    path, quoted = quotes[0]
    assert quoted == (ROOT / path).read_text()


@pytest.mark.parametrize("page", PAGES)
def test_the_quoted_row_is_in_its_table(page: str) -> None:
    rows = re.findall(_QUOTE.format(r"row: (\S+)"), (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert len(rows) == 1
    path, quoted = rows[0]
    assert quoted in (ROOT / path).read_text()


@pytest.mark.parametrize("text", [name for name in TEXTS if name.endswith(".md")])
def test_links_lead_to_files(text: str) -> None:
    page = ROOT / text
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("path", sorted((ROOT / "changes").glob("*.*.md")), ids=lambda path: path.stem)
def test_changes_have_no_relative_links(path: Path) -> None:
    """They move: into CHANGELOG.md at a release, and into a page of the site before it."""
    assert re.findall(r"\]\((?!https://)[^)]*\)", path.read_text()) == []


@pytest.mark.parametrize("text", [name for name in TEXTS if name.endswith(".md")])
def test_files_that_the_docs_name_exist(text: str) -> None:
    for path in re.findall(r"`((?:daskkern|tests|examples|docs)/[\w./-]+)`", (ROOT / text).read_text()):
        assert (ROOT / path).exists(), path


def test_the_navigation_and_the_readme_lead_to_every_page_for_users() -> None:
    navigation, readme = (ROOT / "mkdocs.yml").read_text(), (ROOT / "README.md").read_text()
    for path in (ROOT / "docs").glob("*.md"):
        assert f": {path.name}\n" in navigation, path.name
    sections = ("Learn", "Use", "Data in and out", "Run")
    for section in sections:
        listed = navigation.partition(f"  - {section}:\n")[2].partition("\n  - ")[0]
        for name in re.findall(r": (\w[\w-]*\.md)", listed):
            assert name in ("examples.md", "gallery.md") or f"docs/{name}" in readme, name


def test_the_page_on_solvers_is_short() -> None:
    assert len((ROOT / "docs" / "add-a-solver.md").read_text().splitlines()) < 120


def test_the_page_of_systems_names_them_all() -> None:
    page = (ROOT / "docs" / "systems.md").read_text()
    for row in SYSTEMS.values():
        tasks = ", ".join(row.tasks)
        line = f"| `{row.name}` | {row.line} | `{row.solver.name}` | {row.space} | {tasks} | {row.reference} |"
        assert line in page, f"docs/systems.md lacks: {line}"
