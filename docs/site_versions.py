"""Sites of several versions side by side, each of which says which one it documents and links the others.

    python docs/site_versions.py --out FOLDER TAG...

builds the site of each tag and of the working tree ("dev") to a folder of its own, `FOLDER/0.1.0/`, and a page
`FOLDER/index.html` that leads to the newest release. It needs git and the packages of `daskkern[docs]`, no network.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEVELOPMENT = "dev"
VERSIONS = "DASKKERN_DOCS_VERSIONS"
"""The environment variable with the versions whose sites are published side by side, newest first."""
Build = Callable[[Path, Path, Sequence[str]], None]
"""Builds the site of a tree to a folder, given the versions that are published with it."""


def version_of(root: Path) -> str:
    """Return the version that the tree at `root` documents: a number for a release, else "dev".

    A release has a heading in the changelog, and no changes that have none yet.
    """
    found = re.search(r'__version__ = "([^"]+)"', (root / "daskkern" / "__init__.py").read_text())
    number = found[1] if found else ""
    released = f"## [{number}]" in (root / "CHANGELOG.md").read_text()
    return number if released and not list((root / "changes").glob("*.*.md")) else DEVELOPMENT


def published_versions(environment: dict[str, str] | None = None) -> list[str]:
    """Return the versions that are published with this one, newest first; none where it is built alone."""
    return (os.environ if environment is None else environment).get(VERSIONS, "").split()


def title(version: str) -> str:
    """Return the name of a site, which is at the top of each of its pages."""
    return "daskkern, development version" if version == DEVELOPMENT else f"daskkern {version}"


def page(version: str, others: Sequence[str]) -> str:
    """Return the page that says which version is documented, and links the sites of the others."""
    what = "the development version, which has changes that no release has" if version == DEVELOPMENT else f"{version}"
    lines = ["# Versions", "", f"This site documents daskkern **{what}**; `daskkern --version` prints yours.", ""]
    lines += [f"- [{title(other)}](../{other}/index.html)" for other in others if other != version]
    if not set(others) - {version}:
        lines.append("It was built alone: [releases](../CONTRIBUTING.md#releases) says how sites of several are.")
    return "\n".join(lines) + "\n"


def build(tree: Path, out: Path, versions: Sequence[str]) -> None:
    """Build the site of the tree to `out`, a folder. Raises CalledProcessError with what MkDocs says."""
    environment = {**os.environ, VERSIONS: " ".join(versions), "PYTHONPATH": str(tree)}
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out.resolve())]
    subprocess.run(words, cwd=tree, env=environment, check=True)


def build_all(tags: Sequence[str], out: Path, root: Path = ROOT, build_one: Build = build) -> list[str]:
    """Build the sites of these tags and of the working tree, and return their versions, newest first."""
    numbers = sorted((tag.removeprefix("v") for tag in tags), key=_order, reverse=True)
    versions = [DEVELOPMENT, *numbers]
    for tag in tags:
        with tempfile.TemporaryDirectory() as name:
            archive = subprocess.run(["git", "archive", tag], cwd=root, stdout=subprocess.PIPE, check=True).stdout
            with tarfile.open(fileobj=BytesIO(archive)) as files:
                if hasattr(tarfile, "data_filter"):  # not in Python 3.11.0 to 3.11.3
                    files.extraction_filter = tarfile.data_filter
                files.extractall(name)
            build_one(Path(name), out / tag.removeprefix("v"), versions)
    build_one(root, out / DEVELOPMENT, versions)
    first = numbers[0] if numbers else DEVELOPMENT
    moved = f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={first}/index.html">\n'
    link = f'<a href="{first}/index.html">daskkern {first}</a>'
    (out / "index.html").write_text(f"{moved}<title>daskkern</title>{link}\n")
    return versions


def _order(number: str) -> tuple[tuple[int, ...], bool, str]:
    """Return what orders version numbers: a release comes after its candidates."""
    digits = re.match(r"\d+(\.\d+)*", number)
    parts = digits[0] if digits else "0"
    return tuple(map(int, parts.split("."))), parts == number, number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tags", nargs="*", metavar="TAG", help="a release, such as v0.1.0")
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    print(f"{chosen.out}: {', '.join(build_all(chosen.tags, chosen.out))}")


if __name__ == "__main__":
    main()
