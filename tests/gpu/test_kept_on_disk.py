"""Kernel blocks of a GPU in scratch files: by way of the host, and by kvikio, whose stand-in is as late as may be."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from daskkern.backend.namespace import to_host
from daskkern.basis import Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.solvers.costs.columns import ColumnCosts
from daskkern.training.feeding import block_cache as kept
from daskkern.training.feeding import block_files
from daskkern.training.feeding.block_cache import DiskBlocks
from daskkern.training.feeding.block_files import DirectFile, HostFile, block_file, kvikio_module
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.memory_plan import FitSizes, plan_memory
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_gpu import FakeGpu
from tests.support.gpu.fake_kvikio import SIGNATURES, FakeKvikio

FLOAT = np.dtype("float32")


@pytest.fixture
def kvikio(stand_in: FakeGpu) -> Iterator[FakeKvikio]:
    fake = FakeKvikio()
    with fake.installed():
        yield fake


@pytest.fixture
def cupy_here(stand_in: FakeGpu) -> Iterator[ModuleType]:
    with stand_in.installed() as module:
        yield module


ways = pytest.mark.parametrize("direct", [False, True], ids=["host", "kvikio"])


def _blocks(xp: ModuleType, count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((7 + i % 3, 11), np.float32) for i in range(count)]


def _keep(disk: DiskBlocks, index: int, block: Any, xp: ModuleType) -> bool:
    place = disk.place(block.shape)
    if place is None:
        return False
    place[...] = xp.asarray(block)
    disk.put(index, place)
    return True


@ways
def test_epochs_that_find_some_blocks_and_make_the_others(
    direct: bool, cupy_here: ModuleType, kvikio: FakeKvikio, tmp_path: Path
) -> None:
    blocks = _blocks(cupy_here, 12)
    disk = DiskBlocks(1 << 20, block_file(str(tmp_path), "float32", cupy_here, direct), cupy_here)
    for epoch, known in enumerate((4, 8, 12, 12)):  # as a fit that was resumed in the middle of its first epoch
        order = np.random.default_rng(epoch).permutation(known).tolist()
        disk.begin(order)
        for index in order:
            if disk.has(index):
                np.testing.assert_array_equal(to_host(disk.get(index)), blocks[index])
            else:
                assert _keep(disk, index, blocks[index], cupy_here)
    disk.close()
    assert (kvikio.n_written > 0) == direct
    assert (kvikio.n_read > 0) == direct


@ways
def test_the_room_is_that_of_the_numbers_alone(
    direct: bool, cupy_here: ModuleType, kvikio: FakeKvikio, tmp_path: Path
) -> None:
    block = np.ones((7, 11), np.float32)
    disk = DiskBlocks(3 * block.nbytes, block_file(str(tmp_path), "float32", cupy_here, direct), cupy_here)
    assert [_keep(disk, i, block, cupy_here) for i in range(5)] == [True, True, True, False, False]
    disk.close()


def test_a_full_disk_ends_the_keeping(cupy_here: ModuleType, kvikio: FakeKvikio, tmp_path: Path) -> None:
    blocks, file = _blocks(cupy_here, 8), block_file(str(tmp_path), "float32", cupy_here, direct=True)
    disk, kvikio.room = DiskBlocks(1 << 20, file, cupy_here), 1000
    for index, block in enumerate(blocks):
        _keep(disk, index, block, cupy_here)
    disk.begin(range(8))
    assert disk.failed
    there = [index for index in range(8) if disk.has(index)]
    assert 0 < len(there) < 8
    for index in there:
        np.testing.assert_array_equal(to_host(disk.get(index)), blocks[index])
    disk.close()


class _Empty:
    """A file of kvikio that takes everything and gives nothing back."""

    def __init__(self, file: str, flags: str) -> None:
        self.get = lambda: 4096

    def pread(self, buf: object, size: int, at: int) -> "_Empty":
        return self

    pwrite = pread

    def close(self) -> None:
        return


def test_kvikio_that_does_not_do_leaves_the_host(
    cupy_here: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(file: str, flags: str) -> None:
        raise RuntimeError("cuFileDriverOpen failed")

    broken, empty = ModuleType("kvikio"), ModuleType("kvikio")
    broken.__dict__["CuFile"], empty.__dict__["CuFile"] = refuses, _Empty
    for module in (None, broken, empty):
        monkeypatch.setattr(block_files, "kvikio_module", lambda module=module: module)
        file = block_file(str(tmp_path), "float32", cupy_here, direct=True)
        assert isinstance(file, HostFile)
        file.close()
    on_host = block_file(str(tmp_path), "float32", np, direct=True)
    assert isinstance(on_host, HostFile)
    on_host.close()


@pytest.mark.repeated
def test_a_fit_is_the_same_wherever_its_blocks_are(
    cupy_here: ModuleType, kvikio: FakeKvikio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    source = ArraySource(X, np.sin(X[:, 0]), None, SourceInfo(200, 4, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(
        Gaussian(2.0), Squared(), Landmarks(30), EigenPro(), max_epochs=3, batch_size=32, device="gpu",
        scratch=str(tmp_path),
    )  # fmt: skip
    files = []
    monkeypatch.setattr(kept, "block_file", lambda *given: files.append(block_file(*given)) or files[-1])
    found = {where: fit(source, replace(settings, keep_blocks=where)).model.coef for where in ("memory", "disk")}
    assert [type(file) for file in files] == [DirectFile]
    probe = 4096
    assert kvikio.n_read - probe >= 2 * (kvikio.n_written - probe) > 0
    np.testing.assert_array_equal(found["disk"], found["memory"])
    assert list(tmp_path.iterdir()) == []


def test_the_plan_has_blocks_on_their_way_on_both_sides() -> None:
    sizes = FitSizes(
        n=10**6, d=50, c=3, p=5000, s=2000, q=200, m=1000, window=3, ranks=1, threads=2, itemsize=4, all_rows=False,
        exact=True, window_rows=65_536, costs=ColumnCosts(), device="gpu",
    )  # fmt: skip
    plan = plan_memory(sizes, 8 * 10**9, 8 * 10**9)
    moved = plan.on_disk()
    way = 3 * 1000 * 5000 * 4
    assert moved.direct
    assert moved.total == plan.total + way
    assert moved.device_total == plan.device_total + way
    tight = replace(plan, device_budget=plan.device_total + way - 1).on_disk()
    assert not tight.direct
    assert tight.device_total == plan.device_total
    tight.check()


def test_the_calls_are_those_of_kvikio() -> None:
    module: Any = kvikio_module()
    if module is None:
        pytest.skip("kvikio is not installed, or its libraries are not; install daskkern[cuda12] or daskkern[cuda13]")
    for name, parameters in SIGNATURES.items():
        called = module
        for part in name.split("."):
            called = getattr(called, part)
        names = [name for name in inspect.signature(called).parameters if name != "self"]
        assert tuple(names[: len(parameters)]) == parameters, name
