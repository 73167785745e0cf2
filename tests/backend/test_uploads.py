"""Uploads to a device: what arrives is what was sent, however late the copies run. The device is a stand-in."""

import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daskkern.backend.uploads import Uploads, begun_ahead
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batches import BatchPlan, iter_batches
from tests.support.gpu.fake_arrays import FakeArray, on_device
from tests.support.gpu.fake_gpu import cuda_module


@pytest.fixture
def xp() -> ModuleType:
    module = ModuleType("cupy")
    module.__dict__.update(
        cuda=cuda_module(), ndarray=FakeArray, empty=lambda shape, dtype: on_device(np.full(shape, 77, dtype))
    )
    return module


def _batch(k: int, rows: int) -> tuple[np.ndarray, np.ndarray, None]:
    return np.full((rows, 3), k, np.float32), np.full((rows, 1), -k, np.float64), None


@pytest.mark.parametrize("ahead", [0, 1])
def test_each_batch_arrives_as_it_was_sent(xp: ModuleType, ahead: int) -> None:
    uploads, sizes = Uploads(xp), [5, 9, 2, 40, 1, 0, 7]
    sent = ((k, uploads.begin(*_batch(k, rows))) for k, rows in enumerate(sizes))
    for (k, arrived), rows in zip(begun_ahead(sent, ahead), sizes, strict=True):
        X, y, weight = arrived()
        assert weight is None
        for found, expected in zip((X, y), _batch(k, rows), strict=False):
            np.testing.assert_array_equal(found.get(), expected, strict=True)


def test_pinned_buffers_have_the_size_of_the_largest_batch_and_are_given_back(xp: ModuleType) -> None:
    sizes: list[int] = []
    memory = xp.cuda.PinnedMemory
    xp.cuda.PinnedMemory = lambda size: sizes.append(size) or memory(size)
    uploads = Uploads(xp)
    for rows in (100, 100, 40, 200, 200):
        uploads.begin(np.ones((rows, 64)))()
    assert sizes == [51_200, 51_200, 102_400, 102_400]  # of two slots
    held = [weakref.ref(slot) for slot in uploads._slots]
    del uploads
    assert [slot() for slot in held] == [None, None]


def test_a_copy_runs_beside_the_steps_until_it_is_waited_for(xp: ModuleType) -> None:
    uploads = Uploads(xp)
    seen: list[Any] = []
    xp.empty = lambda shape, dtype: seen.append(on_device(np.full(shape, 77, dtype))) or seen[-1]
    arrived = uploads.begin(np.ones(3))
    assert seen[0].get().tolist() == [77, 77, 77]
    assert arrived()[0].get().tolist() == [1, 1, 1]
    assert uploads.ahead == 1


def test_memory_is_not_given_away_while_a_copy_into_it_is_on_its_way(xp: ModuleType) -> None:
    targets: list[Any] = []
    empty = xp.empty

    def noted(shape: Any, dtype: Any) -> Any:
        made = empty(shape, dtype)
        targets.append(weakref.ref(made))
        return made

    xp.empty = noted
    uploads = Uploads(xp)
    uploads.begin(np.ones(3))  # nobody comes for it: a fit that was stopped between two batches
    arrived = uploads.begin(np.ones(4))
    assert [target() is None for target in targets] == [False, False]
    arrived()
    del arrived
    assert [target() is None for target in targets] == [False, True]
    uploads.close()
    assert targets[0]() is None


def test_what_was_sent_may_change_at_once(xp: ModuleType) -> None:
    uploads, rows = Uploads(xp), np.ones(3)
    arrived = uploads.begin(rows[::-1])
    rows[:] = 5
    assert arrived()[0].get().tolist() == [1, 1, 1]


def test_rows_are_decoded_into_the_memory_that_they_are_sent_from(xp: ModuleType) -> None:
    sizes: list[int] = []
    memory = xp.cuda.PinnedMemory
    xp.cuda.PinnedMemory = lambda size: sizes.append(size) or memory(size)
    X, y = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32), np.arange(100)
    rows = ArrayRows(X, y, classes=tuple(range(100)), chunk_rows=10)
    plan, uploads = BatchPlan(100, 8, 10, seed=1, window_rows=40), Uploads(xp)
    seen = np.zeros(100, int)
    for epoch in range(3):
        stream = iter_batches(rows, plan, epoch, empty=uploads.empty, readers=2)
        sent = ((item, uploads.begin(item.block.X)) for item in stream)
        for item, arrived in begun_ahead(sent, uploads.ahead):
            np.testing.assert_array_equal(arrived()[0].get(), X[item.positions], strict=True)
            seen[item.positions] += 1
            del item, arrived
    assert (seen == 3).all()
    assert min(sizes) >= 32 * X[:1].nbytes  # windows, and no copy of a batch
    assert len(sizes) <= 8


def test_pinned_memory_is_not_lent_again_before_the_copy_from_it_has_ended(xp: ModuleType) -> None:
    uploads = Uploads(xp)
    rows = uploads.empty((4, 3), np.dtype(np.float32))
    rows[:] = 7
    place = rows.ctypes.data
    arrived = uploads.begin(rows[1:3])
    del rows
    other = uploads.empty((4, 3), np.dtype(np.float32))
    other[:] = 8
    assert other.ctypes.data != place
    assert arrived()[0].get().tolist() == [[7.0] * 3] * 2
    for _ in range(2):  # the slots are taken in turn, and wait for their last copy
        uploads.begin(other)()
    assert uploads.empty((3, 3), np.dtype(np.float32)).ctypes.data == place


def test_where_no_memory_can_be_pinned_rows_are_copied(xp: ModuleType) -> None:
    memory = xp.cuda.PinnedMemory

    def refused(size: int) -> Any:
        if size > 300:
            raise RuntimeError("cudaErrorMemoryAllocation: out of memory")
        return memory(size)

    xp.cuda.PinnedMemory = refused
    uploads = Uploads(xp)
    rows = uploads.empty((40, 3), np.dtype(np.float32))  # 480 bytes
    rows[:] = 7
    assert uploads.begin(rows[:2])()[0].get().tolist() == [[7.0] * 3] * 2


def test_numpy_arrays_stay_what_they_are() -> None:
    rows = np.ones((2, 2))
    uploads = Uploads(np)
    assert uploads.ahead == 0
    assert uploads.begin(rows, None)()[0] is rows
    assert uploads.empty((2, 3), np.dtype(np.float32)).shape == (2, 3)


def test_items_are_made_before_the_ones_in_use_are_done() -> None:
    log = SimpleNamespace(made=[])

    def make(k: int) -> int:
        log.made.append(k)
        return k

    for ahead in (0, 1, 2, 9):
        log.made.clear()
        seen = []
        for k in begun_ahead(map(make, range(4)), ahead):
            seen.append(k)
            assert log.made == list(range(min(4, k + 1 + ahead)))
        assert seen == [0, 1, 2, 3]
