"""The images of a cluster have one version of Dask."""

import re

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
