"""Batches that one rank reads for all: the same bits in the same order, each row read once, and no thread left."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from daskkern.backend.communicator import Channel, Communicator
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.batches import RowBatch, Visit, iter_batches
from daskkern.data.rows.packed_rows import PackedRows
from daskkern.data.rows.resampled import ResampledRows, chunk_masses
from daskkern.data.rows.rows import ALL, Fields, RowBlock, Rows
from daskkern.data.rows.shared_batches import AHEAD, messages_of, shared_batches
from daskkern.data.rows.subset import RowsWithout
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import CommunicatorClosedError, SpecError, StoreError
from daskkern.training.feeding.feed import close
from tests.support.threads import reading_threads, run_threads

N, D = 230, 7


class CountedRows(ArrayRows):
    """Rows that count how often each of them was read."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.seen = np.zeros(self.n_rows, int)
        self._lock = threading.Lock()

    def read(self, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        with self._lock:
            self.seen[start:stop] += 1
        return super().read(start, stop, fields)


def _rows(kind: str) -> Rows:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, D)).astype(np.float32)
    if kind == "sparse":
        X = scipy.sparse.csr_array(np.where(X > 0.5, X, 0))
    if kind == "targets":
        return ArrayRows(X, rng.normal(size=(N, 3)), weight=rng.uniform(size=N), chunk_rows=10)
    return ArrayRows(X, rng.integers(0, 3, N), classes=("a", "b", "c"), chunk_rows=10)


def _collected(stream: Iterator[RowBatch]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for batch in stream:
        X, y, weight = batch.block.X, batch.block.y, batch.block.weight
        if X is not None and scipy.sparse.issparse(X):
            assert X.has_canonical_format
        bits = [
            None if part is None else (part.toarray() if scipy.sparse.issparse(part) else part)
            for part in (X, y, weight)
        ]
        found.append(
            (
                batch.index,
                batch.positions.tolist(),
                *((b.dtype, b.shape, b.tobytes()) if b is not None else None for b in bits),
            )
        )
    return found


def _all_ranks(size: int, rows: Rows, plan: BatchPlan, epoch: int, **how: object) -> list[list[tuple[object, ...]]]:
    def work(comm: Communicator) -> list[tuple[object, ...]]:
        channel = comm.channel()
        assert channel is not None
        return _collected(_in_step(comm, shared_batches(channel, rows, plan, epoch, **how)))  # type: ignore[arg-type]

    return run_threads(size, work, channels=True)


def _in_step(comm: Communicator, stream: Iterator[RowBatch]) -> Iterator[RowBatch]:
    try:
        for batch in stream:
            yield batch
            comm.barrier()
    finally:  # the error of a barrier would hold the stream, and its threads
        close(stream)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["dense", "sparse", "targets"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_rank_gets_the_batches_that_it_would_have_read(kind: str, size: int) -> None:
    rows = _rows(kind)
    for reshuffle in (False, True):
        plan = BatchPlan(N, 10, 9, seed=5, window_rows=40, reshuffle=reshuffle)
        for epoch, start in ((1, 0), (2, 11)):
            alone = _collected(iter_batches(rows, plan, epoch, start=start))
            assert len(alone) == plan.n_batches - start
            for mine in _all_ranks(size, rows, plan, epoch, start=start):
                assert mine == alone


@pytest.mark.long
@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 80), st.integers(2, 4), st.integers(0, 5))
def test_any_plan_gives_the_same_batches(batch: int, chunk: int, window: int, size: int, start: int) -> None:
    rows = _rows("targets")
    plan = BatchPlan(N, chunk, batch, seed=1, window_rows=window)
    start = min(start, plan.n_batches)
    wanted = {0, 3, 4}

    def is_wanted(index: int) -> bool:
        return index % 5 in wanted

    alone = _collected(iter_batches(rows, plan, 3, start=start, wanted_X=is_wanted))
    for mine in _all_ranks(size, rows, plan, 3, start=start, wanted_X=is_wanted):
        assert mine == alone


def test_every_row_is_read_by_one_rank() -> None:
    X = np.random.default_rng(0).normal(size=(N, D))
    mine = [CountedRows(X, X[:, 0], chunk_rows=10) for _ in range(3)]
    plan = BatchPlan(N, 10, 9, window_rows=40)

    def work(comm: Communicator) -> int:
        channel = comm.channel()
        assert channel is not None
        return sum(len(batch.positions) for batch in _in_step(comm, shared_batches(channel, mine[comm.rank], plan, 1)))

    assert run_threads(3, work, channels=True) == [N] * 3
    np.testing.assert_array_equal(sum(rows.seen for rows in mine), 1)
    assert min(rows.seen.sum() for rows in mine) >= 70  # two of six windows


def test_weighted_draws_and_held_out_rows_are_the_same() -> None:
    rows = RowsWithout(_rows("targets"), np.arange(0, N, 9))

    def mass(block: RowBlock) -> np.ndarray:
        assert block.weight is not None
        return block.weight

    for some in (rows, ResampledRows(rows, chunk_masses(rows, mass), mass, 0.3)):
        plan = BatchPlan(some.n_rows, some.chunk_rows, 16, window_rows=50)
        alone = _collected(iter_batches(some, plan, 1))
        assert all(mine == alone for mine in _all_ranks(2, some, plan, 1))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (N, D)).astype(np.uint8)
    with StoreWriter(
        tmp_path / "s", n_features=D, task="classification", classes=(0, 1), dtype="uint8", chunk_rows=25
    ) as writer:
        writer.append(X, X[:, 0] % 2)
    return tmp_path / "s"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["none", "standard"])
def test_stored_bytes_are_sent_and_scaled_where_they_arrive(store: Path, dtype: str, kind: str) -> None:
    opened = open_store(str(store))
    assert opened.info.statistics is not None
    rows = StoreRows(opened, dtype, Scaling.of(kind, opened.info.statistics))
    assert rows.encoded().dtype == np.uint8
    plan = BatchPlan.for_rows(rows, 20, window_bytes=50 * rows.row_bytes)
    assert plan.n_windows > 2
    alone = _collected(iter_batches(rows, plan, 1))
    assert all(mine == alone for mine in _all_ranks(3, rows, plan, 1))
    block = RowBlock(rows.encoded().read(0, 5).X, rows.read(0, 5).y, None)
    assert sum(part.nbytes for part in PackedRows.of(rows.encoded(), ALL).pack(block)) == 5 * D + 5


def test_bent_columns_are_scaled_by_the_rank_that_reads(store: Path) -> None:
    scaling = Scaling("standard", (1.0,) * D, (2.0,) * D, (0.5,) * D)
    rows = StoreRows(open_store(str(store)), "float32", scaling)
    assert rows.encoded() is rows


def test_a_window_that_cannot_be_read_ends_all_ranks_with_its_sentence(store: Path) -> None:
    before = reading_threads()
    (store / "X" / "c" / "4" / "0").write_bytes(b"no chunk")
    rows = StoreRows(open_store(str(store)))
    plan = BatchPlan(N, 25, 20, window_rows=50)

    def alone() -> None:
        for _ in iter_batches(rows, plan, 1):
            pass

    with pytest.raises(StoreError) as each:
        alone()
    with pytest.raises(StoreError) as once:
        _all_ranks(3, rows, plan, 1)
    assert str(once.value) == str(each.value)
    assert reading_threads() <= before


def test_a_stream_that_is_left_early_leaves_no_thread() -> None:
    before = reading_threads()
    rows, plan = _rows("dense"), BatchPlan(N, 10, 9, window_rows=40)

    def work(comm: Communicator) -> int:
        channel = comm.channel()
        assert channel is not None
        stream = shared_batches(channel, rows, plan, 1)
        first = next(stream).index
        stream.close()  # type: ignore[attr-defined]
        return first

    assert len(set(run_threads(3, work, channels=True))) == 1
    assert reading_threads() <= before


def test_an_abort_wakes_those_that_wait_for_rows() -> None:
    before = reading_threads()
    rows, plan = _rows("dense"), BatchPlan(N, 10, 9, window_rows=40)

    def work(comm: Communicator) -> None:
        channel = comm.channel()
        assert channel is not None
        if comm.rank == 0:  # which reads the first window
            time.sleep(0.1)
            raise StoreError("this rank has lost its store")
        for _ in shared_batches(channel, rows, plan, 1):
            pass

    with pytest.raises(StoreError, match="lost its store"):
        run_threads(2, work, channels=True)
    assert reading_threads() <= before


def test_ranks_send_only_a_little_ahead() -> None:
    before = reading_threads()
    X = np.zeros((400, 1 << 14), np.float32)  # a row of 64 kB, so that 16 of them are a message
    rows, sent = ArrayRows(X, X[:, 0], chunk_rows=50), []

    class Quiet(Channel):
        rank, size = 0, 2

        def send(self, parts: object) -> None:
            sent.append(1)

        def receive(self, root: int) -> np.ndarray:
            raise CommunicatorClosedError("nobody sends")

        def close(self) -> None:
            return None

    stream = shared_batches(Quiet(), rows, BatchPlan(400, 50, 8, window_rows=400), 1)
    for taken in range(1, 5):
        for _ in range(2):  # batches of a message
            next(stream)
        deadline = time.monotonic() + 10
        while len(sent) < taken + AHEAD and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        assert len(sent) == taken + AHEAD
    stream.close()  # type: ignore[attr-defined]
    assert reading_threads() <= before


def test_small_batches_are_sent_together_and_large_ones_alone() -> None:
    plan = BatchPlan(100, 10, 10, window_rows=100)
    visit = Visit(1, 0, tuple(range(10)), frozenset(range(10)))
    for row_bytes, sizes in ((1, [10]), (1 << 16, [1] * 10), (1 << 15, [3, 3, 3, 1]), (1 << 25, [1] * 10)):
        parts = messages_of(plan, visit, row_bytes)
        assert [len(part.batches) for part in parts] == sizes
        assert sum((part.batches for part in parts), ()) == visit.batches


def test_what_does_not_fit_the_plan_is_refused() -> None:
    def work(comm: Communicator) -> None:
        channel = comm.channel()
        assert channel is not None
        next(shared_batches(channel, _rows("dense"), BatchPlan(N + 1, 10, 9), 1))

    with pytest.raises(SpecError, match=f"the batch plan is for {N + 1} rows"):
        run_threads(2, work, channels=True)
