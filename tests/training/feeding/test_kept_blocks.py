"""Blocks kept in memory and on disk: the same numbers, a bounded room, nothing left behind, and a told choice."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.data.remote.file_systems import is_in_memory
from daskkern.data.schema.schema import Scaling
from daskkern.errors import MemoryBudgetError, SpecError
from daskkern.events import Event, StageFinished
from daskkern.kernels import Laplacian
from daskkern.losses import Logistic
from daskkern.solvers import EigenPro, NystromSGD, Solver
from daskkern.solvers.costs.columns import ColumnCosts
from daskkern.training.feeding.block_cache import BlockCache, DiskBlocks, MemoryBlocks
from daskkern.training.feeding.block_cache_policy import disk_room, needs_rates, with_blocks
from daskkern.training.feeding.block_files import HostFile
from daskkern.training.feeding.disk_rates import DiskRates
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.scratch import scratch_folder
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.measured_rates import Rates
from daskkern.training.planning.memory_plan import IN_TRANSIT, FitSizes, MemoryPlan, plan_memory
from daskkern.training.run import fit as fitting
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings

GB = 10**9
SIZES = FitSizes(
    n=10**6,
    d=50,
    c=3,
    p=5000,
    s=2000,
    q=200,
    m=1000,
    window=3,
    ranks=1,
    threads=2,
    itemsize=4,
    all_rows=False,
    exact=True,
    window_rows=65_536,
    costs=ColumnCosts(),
)
SETTINGS = FitSettings(Laplacian(3.0), Logistic(), Landmarks(40), EigenPro(), max_epochs=10, device="cpu")
RATES = Rates(5.0, 5.0, 1.0, 1e10, 1e10, 1e10, 1e9, 1e-6, 1e-5, 500, DiskRates("/x", 10**12, 2e9, 2e9, False), 0.5)


def _blocks(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((7 + i % 3, 11), np.float32) for i in range(count)]


def _kept(kind: str, budget: int, folder: Path) -> BlockCache:
    if kind == "memory":
        return MemoryBlocks(budget, "float32", np)
    return DiskBlocks(budget, HostFile(str(folder), np.dtype("float32")), np)


def _keep(kept: BlockCache, index: int, block: np.ndarray) -> bool:
    place = kept.place(block.shape)
    if place is None:
        return False
    place[...] = block
    kept.put(index, place)
    return True


both = pytest.mark.parametrize("kind", ["memory", "disk"])


@both
def test_what_comes_back_is_what_went_in_in_any_order_of_epochs(kind: str, tmp_path: Path) -> None:
    blocks = _blocks(12)
    kept = _kept(kind, 1 << 20, tmp_path)
    order = np.random.default_rng(1).permutation(12).tolist()
    kept.begin(order)
    assert all(_keep(kept, index, blocks[index]) for index in order)
    for epoch in range(3):
        order = np.random.default_rng(epoch + 2).permutation(12).tolist()
        kept.begin(order)
        for index in order:
            assert kept.has(index)
            np.testing.assert_array_equal(kept.get(index), blocks[index])
    kept.begin(order)
    np.testing.assert_array_equal(kept.get(order[5]), blocks[order[5]])  # an epoch that skips some
    np.testing.assert_array_equal(kept.get(order[6]), blocks[order[6]])
    kept.close()


@both
def test_no_more_is_kept_than_there_is_room_for(kind: str, tmp_path: Path) -> None:
    kept = _kept(kind, 3 * 7 * 11 * 4, tmp_path)
    block = np.ones((7, 11), np.float32)
    kept.begin(range(5))
    assert [_keep(kept, i, block) for i in range(5)] == [True, True, True, False, False]
    kept.begin(range(5))
    assert [kept.has(i) for i in range(5)] == [True, True, True, False, False]
    kept.close()


class Deferred(HostFile):
    """The scratch file of a device whose work is queued: nothing is computed or used before somebody waits for it."""

    on_device = True

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), np.dtype("float32"))
        self.n_buffers = self._done = self._queued = 0
        self._work: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()

    def enqueue(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        self._queued += 1

    def buffer(self, size: int) -> np.ndarray:
        self.n_buffers += 1
        return np.full(size, np.nan, np.float32)

    def fence(self) -> Callable[[], None]:
        until = self._queued

        def wait() -> None:
            with self._lock:
                while self._done < until:
                    self._work.popleft()()
                    self._done += 1

        return wait


def test_nobody_touches_a_block_before_the_device_is_done_with_it(tmp_path: Path) -> None:
    blocks, file = [np.full((7, 11), k, np.float32) for k in range(12)], Deferred(tmp_path)
    kept = DiskBlocks(1 << 20, file, np)
    for epoch, known in enumerate((4, 8, 12, 12, 12)):  # as a fit that was resumed in the middle of its first epoch
        order = np.random.default_rng(epoch).permutation(known).tolist()
        kept.begin(order)
        for index in order:
            if kept.has(index):
                block = kept.get(index)
                file.enqueue(partial(np.testing.assert_array_equal, block, blocks[index]))
            else:
                place = kept.place((7, 11))
                assert place is not None
                file.enqueue(partial(np.copyto, place, blocks[index]))
                kept.put(index, place)
            if epoch % 2:
                time.sleep(0.01)  # the thread of the file has read ahead what it may
    file.fence()()
    kept.close()
    assert file.n_buffers <= IN_TRANSIT + 1  # as planned


def test_a_scratch_file_has_no_name_and_is_gone_at_the_end(tmp_path: Path) -> None:
    kept = _kept("disk", 1 << 20, tmp_path)
    _keep(kept, 0, np.ones((7, 11), np.float32))
    kept.begin([0])
    assert list(tmp_path.iterdir()) == []
    opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and _alive(fd)]
    assert any(str(tmp_path) in path for path in opened)
    kept.close()
    opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and _alive(fd)]
    assert not any(str(tmp_path) in path for path in opened)


def _alive(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_a_full_disk_ends_the_keeping_and_not_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = HostFile(str(tmp_path), np.dtype("float32"))
    kept = DiskBlocks(1 << 20, file, np)
    blocks = _blocks(8)
    write = file.write

    def fails_late(at: int, block: np.ndarray) -> bool:
        return write(at, block) if at < 2 * 77 * 4 else False

    monkeypatch.setattr(file, "write", fails_late)
    stored = [_keep(kept, i, block) for i, block in enumerate(blocks)]
    kept.begin(range(8))
    assert kept.failed
    assert not all(stored)
    for i in range(8):
        if kept.has(i):
            np.testing.assert_array_equal(kept.get(i), blocks[i])
    assert 0 < sum(kept.has(i) for i in range(8)) < 8
    kept.close()


def _fit(settings: FitSettings) -> tuple[FitResult, list[str]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)).astype(np.float32)
    y = (X[:, 0] > 0).astype(np.int64)
    source = ArraySource(X, y, None, SourceInfo(300, 4, "classification", (0, 1), Scaling(), None, 1, True))
    reported: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "blocks":
            reported.append(event.detail)

    return fit(source, settings, listener=listen), reported


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("basis", "solver"),
    [(Landmarks(40), EigenPro()), (Landmarks(40), NystromSGD(mode="streamed")), (AllRows(), EigenPro())],
    ids=["landmarks", "nystrom", "all_rows"],
)
def test_the_model_is_the_same_bit_for_bit_wherever_blocks_are_kept(
    basis: BasisSpec, solver: Solver[object], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, basis=basis, solver=solver, max_epochs=4, batch_size=32, scratch=str(tmp_path))
    memory, said_memory = _fit(replace(settings, keep_blocks="memory"))
    disk, said_disk = _fit(replace(settings, keep_blocks="disk"))
    never, said_never = _fit(replace(settings, keep_blocks="never"))
    np.testing.assert_array_equal(memory.model.coef, disk.model.coef)
    np.testing.assert_allclose(never.model.coef, memory.model.coef, rtol=0, atol=1e-4 * np.abs(memory.model.coef).max())
    assert "cached in memory" in said_memory[0]
    assert "cached on disk as requested" in said_disk[0]
    assert "recomputed in every epoch" in said_never[0]
    assert list(tmp_path.iterdir()) == []


def test_an_automatic_fit_measures_before_it_takes_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []

    def measured(*arguments: object) -> Rates:
        requested.append(arguments)
        return replace(RATES, block_ns=100.0)

    monkeypatch.setattr(fitting, "calibrate", measured)
    monkeypatch.setattr("daskkern.training.planning.memory_plan.KEEP_LIMIT", 0)
    _, said = _fit(replace(SETTINGS, max_epochs=3, scratch=str(tmp_path)))
    assert "cached on disk: the disk costs 3 ns per entry and epoch (2 GB/s in /x), computing 1e+02 ns" in said[0]
    assert len(requested) == 1


def _plan(budget: int = 8 * GB) -> MemoryPlan:
    plan = plan_memory(SIZES, budget)
    assert plan.kept == 0
    return plan


@pytest.mark.parametrize(
    ("rates", "room", "on_disk", "said"),
    [
        (RATES, 10**12, True, "cached on disk: the disk costs 2.2 ns per entry"),
        (replace(RATES, block_ns=1.0), 10**12, False, "too little is saved, the disk costs 2.2 ns"),
        (RATES, 10**6, False, "they fit neither in memory nor in the 1 MB of disk"),
        (replace(RATES, disk=None), 10**12, False, "the disk could not be measured"),
        (replace(RATES, disk=replace(RATES.disk, cached=True)), 10**12, False, "only the system's cache"),
    ],
)
def test_the_disk_is_taken_when_it_has_room_and_pays(rates: Rates, room: int, on_disk: bool, said: str) -> None:
    plan = with_blocks(_plan(), SETTINGS, room, rates)
    assert bool(plan.disk) == on_disk
    assert plan.disk in (0, SIZES.blocks_bytes)
    assert said in plan.note
    assert "20 GB a rank" in plan.note


def test_one_epoch_keeps_nothing_and_writing_counts() -> None:
    assert "only one epoch" in with_blocks(_plan(), replace(SETTINGS, max_epochs=1), 10**12, RATES).note
    slow = replace(RATES, disk=replace(RATES.disk, write=1e8))  # 40 ns an entry once, to save 3 ns in each epoch
    assert not with_blocks(_plan(), replace(SETTINGS, max_epochs=10), 10**12, slow).disk
    assert with_blocks(_plan(), replace(SETTINGS, max_epochs=100), 10**12, slow).disk


def test_memory_is_taken_when_its_first_use_costs_less_than_it_saves() -> None:
    fits = plan_memory(replace(SIZES, n=100_000), 20 * GB)
    assert fits.kept == 2 * GB
    assert needs_rates(fits, SETTINGS, 0)
    kept = with_blocks(fits, SETTINGS, 0, RATES)
    assert kept.kept == fits.kept
    assert "cached in memory: filling the cache costs 4 ns per entry, each later epoch saves 5 ns" in kept.note
    again = with_blocks(fits, replace(SETTINGS, max_epochs=2), 0, replace(RATES, block_ns=3.0))
    assert again.kept == again.disk == 0
    assert "recomputed in every epoch, which is cheaper" in again.note
    requested = replace(SETTINGS, max_epochs=2, keep_blocks="memory")
    assert with_blocks(fits, requested, 0, None).kept == fits.kept
    assert not needs_rates(fits, requested, 0)


def test_a_plan_that_has_measured_decides_on_small_blocks_as_a_fit_does() -> None:
    small = plan_memory(replace(SIZES, n=1000), 20 * GB)
    assert small.kept
    assert not needs_rates(small, SETTINGS, 0)
    found = with_blocks(small, replace(SETTINGS, max_epochs=2), 0, replace(RATES, block_ns=3.0))
    assert found == with_blocks(small, replace(SETTINGS, max_epochs=2), 0, None)
    assert found.kept


def test_rates_are_asked_for_only_where_they_decide() -> None:
    assert needs_rates(_plan(), SETTINGS, 10**12)
    assert not needs_rates(_plan(), SETTINGS, 10**6)
    assert not needs_rates(_plan(), replace(SETTINGS, keep_blocks="never"), 10**12)
    assert not needs_rates(_plan(), replace(SETTINGS, max_epochs=1), 10**12)
    assert not needs_rates(plan_memory(replace(SIZES, n=10_000), 8 * GB), SETTINGS, 10**12)


def test_a_disk_that_was_asked_for_must_have_room(tmp_path: Path) -> None:
    requested = replace(SETTINGS, keep_blocks="disk", scratch=str(tmp_path))
    assert with_blocks(_plan(), requested, 10**12, None).disk == SIZES.blocks_bytes
    with pytest.raises(MemoryBudgetError, match="got keep_blocks='disk', but the kernel blocks of one rank take"):
        with_blocks(_plan(), requested, 10**6, None)
    assert disk_room(replace(requested, disk_budget=1000)) == 1000
    assert disk_room(requested, 2) <= disk_room(requested) // 2 + 10**9
    with pytest.raises(SpecError, match="scratch folder"):
        disk_room(replace(requested, scratch=str(tmp_path / "absent")))
    with pytest.raises(SpecError, match="no scratch file for kernel blocks can be created"):
        HostFile(str(tmp_path / "absent"), np.dtype("float32"))


def test_a_folder_in_memory_is_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.training.feeding.block_cache_policy.is_in_memory", lambda folder: True)
    assert disk_room(SETTINGS) == 0
    assert disk_room(replace(SETTINGS, scratch=str(tmp_path))) > 0  # asked for by name
    if os.path.isdir("/dev/shm"):
        assert is_in_memory("/dev/shm")
    assert scratch_folder(replace(SETTINGS, scratch="/somewhere")) == "/somewhere"


@pytest.mark.parametrize("wrong", [{"keep_blocks": "tape"}, {"disk_budget": 0}])
def test_settings_without_a_meaning_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        replace(SETTINGS, **wrong)
