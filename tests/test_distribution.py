"""The wheel holds every file of the package and nothing else, and everything names one version."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import daskkern

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    if find_spec("hatchling") is None:
        pytest.skip("pip install hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    paths = (path for path in (ROOT / "daskkern").rglob("*") if path.is_file())
    ours = {path.relative_to(ROOT).as_posix() for path in paths if path.suffix != ".pyc"}
    assert "daskkern/py.typed" in ours
    assert any(name.endswith(".cu") for name in ours)
    information = f"daskkern-{daskkern.__version__}.dist-info"
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert set(wheel.namelist()) == ours | {f"{information}/{name}" for name in about}


def test_the_metadata_is_whole(wheel: zipfile.ZipFile) -> None:
    about = HeaderParser().parsestr(wheel.read(f"daskkern-{daskkern.__version__}.dist-info/METADATA").decode())
    assert (about["Name"], about["Version"]) == ("daskkern", daskkern.__version__)
    assert about["License-Expression"] == "BSD-3-Clause"
    assert len([line for line in about.get_all("Requires-Dist") or [] if "extra" not in line]) >= 14
    assert set(about.get_all("Provides-Extra") or []) == set(PROJECT["project"]["optional-dependencies"])


def test_the_version_is_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == daskkern.__version__


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == daskkern.__version__
    needed = [
        line.replace("dask[array]", "dask-core").replace(">=", " >=") for line in PROJECT["project"]["dependencies"]
    ]
    assert sorted(recipe["requirements"]["run"]) == sorted(["python " + PROJECT["project"]["requires-python"], *needed])
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script == f"daskkern = {PROJECT['project']['scripts']['daskkern']}"


def test_the_citation_names_software_and_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "abstract"} <= set(citation)
    for paper in citation["references"]:
        assert {"type", "title", "authors", "year"} <= set(paper)
        assert {"collection-title", "conference"} & set(paper), f"{paper['title']}: where it appeared"


def test_changes_are_joined_at_a_release(tmp_path: Path) -> None:
    if find_spec("towncrier") is None:
        pytest.skip("pip install towncrier")
    for path in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / path).write_text((ROOT / path).read_text())
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    (tmp_path / "changes" / "one.security.md").write_text("- One more.\n")
    fragments = [path for path in (tmp_path / "changes").glob("*.md") if path.name != "README.md"]
    kinds = {kind["directory"]: kind["name"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    items: dict[str, list[str]] = {}
    for path in fragments:
        lines = path.read_text().splitlines()
        assert all(line.startswith("- ") for line in lines), path
        items.setdefault(kinds[path.name.split(".")[1]], []).extend(lines)
    build = [sys.executable, "-m", "towncrier", "build", "--version", "9.8.7", "--date", "2030-01-02", "--yes"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    joined = (tmp_path / "CHANGELOG.md").read_text()
    section = joined[joined.index("\n## [9.8.7] - 2030-01-02\n") :].split("\n## ")[1]
    found = {part.splitlines()[0]: part.splitlines()[1:] for part in section.split("\n### ")[1:]}
    for kind, lines in items.items():
        assert sorted(line for line in found[kind] if line) == sorted(lines)
    assert not any(path.exists() for path in fragments)
    assert (tmp_path / "changes" / "README.md").exists()


def test_what_a_source_distribution_is_made_of_exists() -> None:
    for path in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert path.startswith("/")
        assert (ROOT / path[1:]).exists(), path


def test_every_bound_is_a_lowest_version() -> None:
    """``.ci/minimum`` reads them so."""
    for line in PROJECT["project"]["dependencies"]:
        assert re.fullmatch(r"[\w-]+(\[\w+\])?>=[\d.]+", line), line


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target
