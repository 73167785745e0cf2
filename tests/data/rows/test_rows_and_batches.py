"""Rows by position, and the laws of the batch order."""

import gc
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batches import BatchPlan, RowBatch, iter_batches
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.data.storage.store import Store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError, SpecError, StoreError


def _rows(n: int, chunk_rows: int) -> ArrayRows:
    X = np.arange(2 * n, dtype=np.float64).reshape(n, 2)
    return ArrayRows(X, np.arange(n, dtype=np.float64), weight=np.arange(n) + 1, chunk_rows=chunk_rows)


def _readers() -> int:
    return sum(thread.name.startswith("daskkern-read") for thread in threading.enumerate())


def test_memory_and_store_give_the_same_rows(make_store: Callable[..., Store], X: HostArray, codes: HostArray) -> None:
    on_disk = StoreRows(make_store(X, codes, task="classification", classes=("a", "b", "c")), dtype=np.float64)
    in_memory = ArrayRows(X, codes, classes=("a", "b", "c"), dtype=np.float64)
    for rows in (on_disk, in_memory):
        assert (rows.n_rows, rows.n_features, rows.n_targets, rows.task) == (103, 5, 1, "classification")
        assert rows.classes == ("a", "b", "c")
        assert rows.dtype == np.float64
        assert not rows.has_weight
        block = rows.read(17, 41)
        np.testing.assert_array_equal(block.X, X[17:41].astype(np.float64))
        np.testing.assert_array_equal(block.y, codes[17:41])
        assert block.weight is None


def test_a_recorded_scaling_is_applied_on_load(make_store: Callable[..., Store], X: HostArray) -> None:
    store = make_store(X, scale="standard")
    block = StoreRows(store).read(0, 103)
    expected = (X - X.mean(0, dtype=np.float64)) / X.std(0, dtype=np.float64)
    np.testing.assert_allclose(_part(block.X), expected, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(store.array("X")[:]), X)  # values stay as they came


def test_array_rows_copy_nothing_of_their_dtype(X: HostArray) -> None:
    block = ArrayRows(X).read(3, 9)
    assert block.X is not None
    assert np.shares_memory(block.X, X)
    assert block.y is None


def test_only_wanted_fields_are_read(X: HostArray) -> None:
    block = ArrayRows(X, X[:, 0]).read(0, 4, Fields.y)
    assert block.X is None
    assert block.y is not None
    assert block.y.shape == (4, 1)


def test_impossible_rows_are_refused(X: HostArray) -> None:
    with pytest.raises(DataError, match="expected real numbers"):
        ArrayRows(X[0])
    with pytest.raises(DataError, match="y has 4 rows, but X has 103"):
        ArrayRows(X, X[:4, 0])
    with pytest.raises(StoreError, match="codes from 0 to 102"):
        ArrayRows(X, np.arange(103), classes=(1, 2))
    with pytest.raises(SpecError, match="got rows 5 to 104, but"):
        ArrayRows(X).read(5, 104)
    with pytest.raises(SpecError, match="float32 or float64"):
        ArrayRows(X, dtype=np.int32)


def test_take_reads_each_chunk_once_and_keeps_the_order(rng: np.random.Generator) -> None:
    rows = _Counting(_rows(95, 10))
    positions = rng.integers(0, 95, 60)
    block = take(rows, positions)
    np.testing.assert_array_equal(block.y, positions[:, None])
    np.testing.assert_array_equal(block.X, 2 * positions[:, None] + [0, 1])
    np.testing.assert_array_equal(block.weight, positions + 1)
    chunks = [start // 10 for start in rows.starts]
    assert len(chunks) == len(set(chunks))
    assert take(rows, np.array([], np.int64)).y is not None
    with pytest.raises(SpecError, match="0 to 94"):
        take(rows, np.array([95]))


class _Counting(Rows):
    """Rows that remember what was read, and can fail or wait."""

    def __init__(self, rows: Rows, fail_at: int | None = None) -> None:
        self.n_rows, self.n_features, self.n_targets = rows.n_rows, rows.n_features, rows.n_targets
        self.chunk_rows, self.task, self.classes = rows.chunk_rows, rows.task, rows.classes
        self.has_weight, self.dtype = rows.has_weight, rows.dtype
        self._rows, self._fail_at = rows, fail_at
        self.starts: list[int] = []
        self.X_rows = 0

    def _read_features(self, start: int, stop: int) -> HostArray:
        self.starts.append(start)
        if self._fail_at is not None and len(self.starts) > self._fail_at:
            raise StoreError("the disk is gone")
        self.X_rows += stop - start
        return _part(self._rows.read(start, stop).X)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        return _part(self._rows.read(start, stop).y)

    def _read_weight(self, start: int, stop: int) -> HostArray:
        return _part(self._rows.read(start, stop).weight)


def _part(array: HostArray | None) -> HostArray:
    assert array is not None
    return array


plans = st.builds(
    BatchPlan,
    n_rows=st.integers(1, 400),
    chunk_rows=st.integers(1, 60),
    batch_size=st.integers(1, 90),
    seed=st.integers(0, 2**64),
    window_rows=st.integers(1, 300),
    piece_rows=st.sampled_from([0, 1]),
)
pieces = st.builds(
    BatchPlan,
    n_rows=st.integers(1, 400),
    chunk_rows=st.just(60),
    batch_size=st.integers(1, 90),
    seed=st.integers(0, 2**64),
    window_rows=st.integers(1, 300),
    piece_rows=st.integers(1, 60),
)


@given(plan=plans | pieces, epoch=st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_every_row_comes_exactly_once_an_epoch(plan: BatchPlan, epoch: int) -> None:
    order = plan.order(epoch)
    assert sorted(order) == list(range(plan.n_batches))
    positions = np.concatenate([plan.positions(b) for b in order])
    np.testing.assert_array_equal(np.sort(positions), np.arange(plan.n_rows))


@given(plan=plans | pieces)
@settings(max_examples=80, deadline=None)
def test_batches_are_nearly_equal_and_windows_are_visited_whole(plan: BatchPlan) -> None:
    sizes = plan.batch_sizes
    assert sizes.sum() == plan.n_rows
    assert 1 <= sizes.min() <= sizes.max() <= plan.batch_size
    windows = [plan.window_of(b) for b in plan.order(3)]
    assert len([w for w, v in pairwise(windows) if w != v]) == plan.n_windows - 1
    assert list(dict.fromkeys(windows)) == plan.windows(3).tolist()
    for window in range(plan.n_windows):
        within = sizes[list(plan.batches_of(window))]
        assert within.max() - within.min() <= 1
        parts = {int(p) // plan.part_rows for b in plan.batches_of(window) for p in plan.positions(b)}
        assert parts == set(plan.parts_of(window).tolist())
        assert all(len(plan.positions(b)) == sizes[b] for b in plan.batches_of(window))


@given(
    plan=plans | pieces, prefetch=st.integers(0, 4), readers=st.integers(1, 5), epoch=st.integers(0, 5), data=st.data()
)
@settings(max_examples=30, deadline=None)
def test_batches_do_not_depend_on_who_reads_them_and_hold_their_rows(
    plan: BatchPlan, prefetch: int, readers: int, epoch: int, data: st.DataObject
) -> None:
    rows = _rows(plan.n_rows, plan.chunk_rows)
    start = data.draw(st.integers(0, plan.n_batches))
    seen = list(iter_batches(rows, plan, epoch, prefetch=prefetch, start=start, readers=readers))
    assert [batch.index for batch in seen] == plan.order(epoch)[start:].tolist()
    for batch in seen:
        np.testing.assert_array_equal(batch.positions, plan.positions(batch.index))
        _check_block(batch)


def _check_block(batch: RowBatch) -> None:
    np.testing.assert_array_equal(batch.block.y, batch.positions[:, None])
    np.testing.assert_array_equal(batch.block.X, 2 * batch.positions[:, None] + [0, 1])
    np.testing.assert_array_equal(batch.block.weight, batch.positions + 1)


def test_the_order_is_fixed_by_the_seed_for_ever() -> None:
    plan = BatchPlan(40, 8, 5, seed=7, window_rows=16)
    assert plan.order(0).tolist() == BatchPlan(40, 8, 5, seed=7, window_rows=16).order(0).tolist()
    assert plan.order(0).tolist() != plan.order(1).tolist()
    assert plan.positions(0).tolist() != BatchPlan(40, 8, 5, seed=8, window_rows=16).positions(0).tolist()
    # Raw Philox numbers: these may never change, or saved fits could not be resumed.
    assert plan.order(0).tolist() == [8, 9, 2, 1, 3, 0, 5, 6, 4, 7]
    assert plan.positions(0).tolist() == [30, 31, 27, 12]
    wider = BatchPlan(97, 8, 5, seed=7, window_rows=24)
    parts = [wider.parts_of(window).tolist() for window in range(wider.n_windows)]
    assert parts == [[1, 6, 11], [3, 9, 10], [4, 5, 12], [0, 7], [2, 8]]


def test_the_order_ignores_the_compute_dtype(X: HostArray) -> None:
    wide, narrow = ArrayRows(X, dtype=np.float64), ArrayRows(X, dtype=np.float32)
    assert BatchPlan.for_rows(wide, 10, 1, window_bytes=400) == BatchPlan.for_rows(narrow, 10, 1, window_bytes=400)


def test_one_window_is_a_full_shuffle() -> None:
    plan = BatchPlan(1000, 10, 50, seed=1)
    assert plan.n_windows == 1
    assert len({int(p) // 10 for p in plan.positions(0)}) > 20


def test_impossible_plans_are_refused(X: HostArray) -> None:
    with pytest.raises(SpecError):
        BatchPlan(0, 1, 1)
    with pytest.raises(SpecError):
        BatchPlan(1, 1, 0)
    plan = BatchPlan(10, 2, 3)
    with pytest.raises(SpecError, match="got batch 4, but"):
        plan.positions(4)
    with pytest.raises(SpecError, match="plan is for 10 rows, but there are 103"):
        iter_batches(ArrayRows(X), plan, 0)
    with pytest.raises(SpecError, match="start 9"):
        iter_batches(_rows(10, 2), plan, 0, start=9)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_features_that_nobody_wants_are_not_read(prefetch: int) -> None:
    plan = BatchPlan(100, 10, 5, seed=3, window_rows=20)
    wanted = set(plan.batches_of(2)) - {plan.batches_of(2)[0]}
    rows = _Counting(_rows(100, 10))
    for batch in iter_batches(rows, plan, 0, wanted_X=wanted.__contains__, prefetch=prefetch):
        assert (batch.block.X is not None) == (batch.index in wanted)
        assert batch.block.y is not None
    assert rows.X_rows == 20
    assert all(b.block.X is None for b in iter_batches(rows, plan, 1, fields=Fields.y, prefetch=prefetch))
    assert rows.X_rows == 20


def test_reading_runs_at_most_the_promised_windows_ahead() -> None:
    plan = BatchPlan(100, 10, 10, seed=3, window_rows=10)
    requested: list[int] = []

    def wanted(batch: int) -> bool:
        requested.append(batch)
        return True

    batches = iter_batches(_rows(100, 10), plan, 0, prefetch=3, wanted_X=wanted)
    next(batches)
    assert len(requested) == 4
    next(batches)
    assert len(requested) == 5
    del batches
    gc.collect()


@pytest.mark.parametrize("readers", [1, 3])
def test_a_reading_error_surfaces_and_threads_end(readers: int) -> None:
    rows = _Counting(_rows(100, 10), fail_at=4)
    plan = BatchPlan(100, 10, 10, seed=3, window_rows=30)
    with pytest.raises(StoreError, match="the disk is gone"):
        list(iter_batches(rows, plan, 0, readers=readers))
    assert _readers() == 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("how", ["close", "drop", "raise", "exhaust"])
def test_threads_end_with_the_iterator(how: str, readers: int) -> None:
    batches = iter_batches(_rows(100, 10), BatchPlan(100, 10, 10, seed=3, window_rows=20), 0, readers=readers)
    next(batches)
    assert _readers() > 0
    if how == "close":
        batches.close()  # type: ignore[attr-defined]
    elif how == "exhaust":
        list(batches)
    elif how == "raise":
        with pytest.raises(KeyboardInterrupt):
            batches.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    del batches
    gc.collect()
    assert _readers() == 0


def test_an_iterator_never_started_starts_nothing() -> None:
    batches = iter_batches(_rows(10, 2), BatchPlan(10, 2, 3), 0)
    assert _readers() == 0
    del batches
