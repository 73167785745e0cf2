"""Rows in groups of unequal size: the same as arrays, and every group is decoded once per pass of batches."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from daskkern.arrays import HostArray, IntArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.batches import iter_batches
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.grouped_rows import GroupedRows, GroupReader, RowTargets, grouped_sizes, merged
from daskkern.data.rows.rows import ALL, Fields, RowBlock, take
from daskkern.data.rows.subset import RowsWithout
from daskkern.errors import DataError, SpecError

SIZES = (5, 17, 3, 40, 11, 24, 8, 30, 1, 19)


class CountingReader(GroupReader):
    """Groups of arrays; counts how often each is decoded."""

    def __init__(self, X: HostArray, y: HostArray, sizes: tuple[int, ...] = SIZES) -> None:
        self.sizes, self._X, self._y = sizes, X, y
        self._edges = np.concatenate([[0], np.cumsum(sizes)])
        self.decoded: Counter[int] = Counter()
        self.gate = threading.Event()
        self.gate.set()

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        self.gate.wait(10)
        self.decoded[number] += Fields.X in fields
        part = slice(self._edges[number], self._edges[number + 1])
        X = self._X[part].astype(dtype) if Fields.X in fields else None
        return RowBlock(X, self._y[part] if Fields.y in fields else None, None)


def made(cache_bytes: int = 0, sizes: tuple[int, ...] = SIZES) -> tuple[GroupedRows, CountingReader, ArrayRows]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(sum(sizes), 3)), rng.normal(size=(sum(sizes), 1))
    reader = CountingReader(X, y, sizes)
    rows = GroupedRows(reader, 3, RowTargets("regression", 1), cache_bytes=cache_bytes)
    return rows, reader, ArrayRows(X, y)


def test_reads_and_samples_are_those_of_arrays() -> None:
    rows, _, arrays = made()
    for start, stop in ((0, rows.n_rows), (4, 6), (0, 0), (20, 100), (157, 158)):
        found, expected = rows.read(start, stop), arrays.read(start, stop)
        np.testing.assert_array_equal(found.X, expected.X)
        np.testing.assert_array_equal(found.y, expected.y)
    positions = np.array([150, 3, 3, 71, 0])
    np.testing.assert_array_equal(take(rows, positions).X, take(arrays, positions).X)
    with pytest.raises(SpecError, match="got rows 0 to 159, but there are 158 rows"):
        rows.read(0, 159)


@pytest.mark.parametrize("reshuffle", [False, True])
def test_a_pass_of_batches_decodes_every_group_once_and_has_every_row_once(reshuffle: bool) -> None:
    rows, reader, arrays = made()
    plan = BatchPlan.for_rows(rows, 8, 3, window_bytes=60 * 12, reshuffle=reshuffle)
    assert plan.n_windows >= 3
    for epoch in range(2):
        reader.decoded.clear()
        batches = list(iter_batches(rows, plan, epoch, fields=Fields.X | Fields.y))
        positions = np.concatenate([batch.positions for batch in batches])
        assert sorted(positions.tolist()) == list(range(rows.n_rows))
        assert reader.decoded == Counter(range(len(SIZES)))
        for batch in batches:
            np.testing.assert_array_equal(batch.block.X, take(arrays, batch.positions, Fields.X).X)
            assert len(batch.positions) == plan.batch_sizes[batch.index] <= 8


def test_groups_stay_whole_where_rows_are_held_out() -> None:
    rows, reader, arrays = made()
    held: IntArray = np.array([0, 4, 22, 23, 24, 60, 157])
    rest = RowsWithout(rows, held)
    plan = BatchPlan.for_rows(rest, 8, 3, window_bytes=60 * 12)
    seen = np.concatenate([batch.block.X for batch in iter_batches(rest, plan, 0, fields=Fields.X)])
    expected = np.delete(arrays.read(0, rows.n_rows).X, held, axis=0)
    np.testing.assert_array_equal(np.sort(seen[:, 0]), np.sort(expected[:, 0]))
    assert reader.decoded == Counter(number for number in range(len(SIZES)) if number != 2)  # all of group 2 is held


def test_equal_groups_stay_whole_where_rows_are_held_out() -> None:
    rows, reader, arrays = made(sizes=(20,) * 9 + (7,))
    held = np.array([0, 33, 34, 35, 100, 186])
    rest = RowsWithout(rows, held)
    plan = BatchPlan.for_rows(rest, 8, 3, window_bytes=60 * 12)
    positions = [batch.positions for batch in iter_batches(rest, plan, 0, fields=Fields.X | Fields.y)]
    assert sorted(np.concatenate(positions).tolist()) == list(range(rest.n_rows))
    assert reader.decoded == Counter(range(10))
    np.testing.assert_array_equal(take(rest, np.arange(rest.n_rows)).X, np.delete(arrays.read(0, 187).X, held, axis=0))


def test_recent_groups_are_cached_and_threads_decode_a_group_once() -> None:
    rows, reader, _ = made(cache_bytes=1 << 20)
    reader.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(rows.read, 30, 40) for _ in range(4)]
        reader.gate.set()
        for read in reading:
            assert read.result(10).X is not None
    rows.read(25, 65)
    assert reader.decoded == Counter({3: 1})


def test_a_group_that_changed_is_refused() -> None:
    rows, reader, _ = made()
    reader._edges[4] -= 1
    with pytest.raises(DataError, match=r"group 3 of the rows has \[39\] rows, but had 40"):
        rows.read(30, 40, ALL)


def test_equal_groups_have_the_batches_of_equal_chunks() -> None:
    rows, _, arrays = made(sizes=(16, 16, 16, 7))
    assert rows.chunk_edges is None
    plan = BatchPlan.for_rows(rows, 4, 1, window_bytes=1)
    assert plan == BatchPlan.for_rows(ArrayRows(arrays._X, chunk_rows=16), 4, 1, window_bytes=1)


def test_edges_are_values() -> None:
    edges = ChunkEdges([3, 0, 4])
    assert edges == ChunkEdges([3, 4])
    assert hash(edges) == hash(ChunkEdges(np.array([3, 4])))
    assert edges != ChunkEdges([4, 3])
    assert edges.without(np.array([0, 1, 2])) == ChunkEdges([4])
    assert edges.chunks_of(np.array([0, 2, 3, 6])).tolist() == [0, 0, 1, 1]
    with pytest.raises(SpecError, match="without rows"):
        ChunkEdges([0])


def test_small_groups_are_joined() -> None:
    assert merged([1, 1, 5, 2, 9, 1], 4) == [(0, 3), (3, 5), (5, 6)]
    assert grouped_sizes(10, 4) == (4, 4, 2)
