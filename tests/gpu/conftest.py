"""The devices of the GPU tests: a GPU, skipped where there is none, and a stand-in that runs everywhere."""

import shutil
from collections.abc import Iterator
from types import ModuleType

import pytest

from daskkern.backend.namespace import namespace_for
from daskkern.errors import ClusterError
from tests.support.gpu.fake_gpu import FakeGpu


@pytest.fixture(scope="session")
def cupy() -> ModuleType:
    try:
        return namespace_for("gpu")
    except ClusterError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH; install a C++ compiler")
    return FakeGpu(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def xp(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The array module of the GPU, or of the stand-in, which is ``import cupy`` meanwhile."""
    if request.param == "gpu":
        yield request.getfixturevalue("cupy")
        return
    with request.getfixturevalue("stand_in").installed() as module:
        yield module
