"""Windows are stratified samples of the order of a store, and made of pieces where chunks are few."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import ZstdCodec
from zarr.storage import LocalStore, WrapperStore

from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batches import BatchPlan, iter_batches
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import SpecError

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


def rows_of(n: int, chunk_rows: int) -> ArrayRows:
    X = np.arange(2 * n, dtype=np.float64).reshape(n, 2)
    rows = ArrayRows(X, np.arange(n, dtype=np.float64), chunk_rows=chunk_rows)
    rows.reads_pieces = True  # as those of stores
    return rows


@given(plan=plans | pieces)
@settings(max_examples=80, deadline=None)
def test_a_window_has_a_part_of_every_stretch_of_the_order(plan: BatchPlan) -> None:
    stretches = -(-plan.n_parts // plan.n_windows)
    for window in range(plan.n_windows):
        of = (plan.parts_of(window) // plan.n_windows).tolist()
        assert of == list(range(stretches)) or of == list(range(stretches - 1))  # the last stretch may be incomplete
        assert sum(plan.batch_sizes[list(plan.batches_of(window))]) <= plan.most_window_rows
    per_window = max(1, plan.window_rows // plan.part_rows, -(-plan.batch_size // plan.part_rows))
    assert plan.most_window_rows <= per_window * plan.part_rows


def test_parts_are_dealt_by_the_seed_and_sizes_are_not() -> None:
    plans = [BatchPlan(103, 10, 7, seed=seed, window_rows=30) for seed in range(6)]
    assert len({tuple(plan.parts_of(0).tolist()) for plan in plans}) > 3
    assert len({tuple(plan.batch_sizes.tolist()) for plan in plans}) == 1


def test_windows_of_few_chunks_are_made_of_pieces_of_them() -> None:
    rows, whole = rows_of(4000, 400), rows_of(4000, 400)  # 8 bytes a row
    whole.reads_pieces = False
    plan = BatchPlan.for_rows(rows, 100, window_bytes=8 * 800)
    assert plan.piece_rows == 50
    assert plan.most_window_rows == 800
    assert BatchPlan.for_rows(rows, 100, window_bytes=8 * 4000).piece_rows == 0  # one window: a full shuffle
    assert BatchPlan.for_rows(rows_of(4000, 40), 100, window_bytes=8 * 800).piece_rows == 0  # chunks enough
    assert BatchPlan.for_rows(rows_of(4000, 401), 100, window_bytes=8 * 800).piece_rows == 50  # 401 is prime
    assert BatchPlan.for_rows(whole, 100, window_bytes=8 * 800).piece_rows == 0
    with pytest.raises(SpecError, match="got pieces of 61 rows; expected 1 to 60, or 0"):
        BatchPlan(100, 60, 10, piece_rows=61)


def test_windows_in_pieces_represent_a_drifting_order() -> None:
    """Every batch has nearly the mean of all rows, where windows of whole chunks are off by much of the range."""
    rows = rows_of(8000, 1000)
    plan = BatchPlan.for_rows(rows, 250, seed=2, window_bytes=8 * 2000)
    whole = replace(plan, piece_rows=0)

    def farthest(plan: BatchPlan) -> float:
        return max(abs(float(np.mean(plan.positions(b))) - 3999.5) for b in range(plan.n_batches)) / 8000

    assert farthest(plan) < 0.08  # chance alone: 2300 / 250^(1/2) / 8000 is 0.02
    assert farthest(whole) > 0.1


def test_zipped_stores_give_the_batches_of_their_folder(tmp_path: Path, make_store: Callable[..., Store]) -> None:
    X = np.random.default_rng(3).random((500, 3), dtype=np.float32)
    store = make_store(X, X[:, 0].astype(np.float64), task="regression", chunk_rows=100)
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", store.path)
    folder, zipped = StoreRows(store), StoreRows(open_store(archive))
    plan = BatchPlan.for_rows(folder, 20, seed=5, window_bytes=12 * 200)
    assert plan.piece_rows == 10
    assert plan == BatchPlan.for_rows(zipped, 20, seed=5, window_bytes=12 * 200)
    for one, other in zip(iter_batches(folder, plan, 1), iter_batches(zipped, plan, 1), strict=True):
        np.testing.assert_array_equal(one.positions, other.positions)
        np.testing.assert_array_equal(one.block.X, X[one.positions])
        np.testing.assert_array_equal(other.block.X, X[one.positions])


def test_chunks_of_wide_rows_are_cut_into_pieces_of_half_a_megabyte() -> None:
    wide = ArrayRows(np.zeros((30_000, 784), np.uint8), chunk_rows=4096)
    wide.reads_pieces = True
    plan = BatchPlan.for_rows(wide, 200)
    assert plan.piece_rows == 128
    assert len(plan.parts_of(0)) > 100
    assert BatchPlan.for_rows(wide, 200, window_bytes=4 << 20).piece_rows == 4096 // 64  # 16 of a small window


def test_chunks_that_are_decoded_whole_are_cut_into_as_few_pieces_as_windows_allow() -> None:
    for chunk_rows, piece_rows, reads in ((1024, 0, 1), (4096, 1024, 2)):
        wide = ArrayRows(np.zeros((30_000, 784), np.uint8), chunk_rows=chunk_rows)
        wide.reads_pieces = wide.decodes_chunks = True
        plan = BatchPlan.for_rows(wide, 200)
        assert (plan.piece_rows, plan.chunk_reads) == (piece_rows, reads)
        wide.decodes_chunks = False
        assert BatchPlan.for_rows(wide, 200).piece_rows == 128


@given(plan=plans | pieces, epochs=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)))
@settings(max_examples=80, deadline=None)
def test_rows_are_dealt_anew_to_batches_of_the_same_sizes(plan: BatchPlan, epochs: tuple[int, int]) -> None:
    reshuffled = replace(plan, reshuffle=True)
    assert reshuffled.batch_sizes.tolist() == plan.batch_sizes.tolist()
    for epoch in epochs:
        met = [reshuffled.positions(int(batch), epoch) for batch in reshuffled.order(epoch)]
        assert [len(rows) for rows in met] == reshuffled.batch_sizes[reshuffled.order(epoch)].tolist()
        np.testing.assert_array_equal(np.sort(np.concatenate(met)), np.arange(plan.n_rows))
        np.testing.assert_array_equal(plan.positions(0, epoch), plan.positions(0))


def test_no_batch_comes_twice_where_rows_are_dealt_anew() -> None:
    plan = BatchPlan(2000, 50, 20, seed=3, window_rows=400, reshuffle=True)
    met = [{frozenset(plan.positions(b, epoch).tolist()) for b in range(plan.n_batches)} for epoch in range(4)]
    assert len(set().union(*met)) == 4 * plan.n_batches
    assert {tuple(plan.parts_of(0, epoch)) for epoch in range(4)} != {tuple(plan.parts_of(0, 0))}
    rows = rows_of(2000, 50)
    for batch in iter_batches(rows, plan, 2):
        np.testing.assert_array_equal(batch.positions, plan.positions(batch.index, 2))
        np.testing.assert_array_equal(batch.block.y, batch.positions[:, None])
    # Raw Philox numbers: these may never change, or saved fits could not be resumed.
    assert plan.positions(0, 1)[:5].tolist() == [1789, 1101, 1797, 813, 161]


class CountingStore(WrapperStore[LocalStore]):
    """Counts how often each chunk of X is fetched, which decodes it."""

    fetched: ClassVar[Counter[str]] = Counter()

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if key.startswith("X/c/"):
            self.fetched[key] += 1
        return await super().get(key, prototype, byte_range)


@pytest.mark.parametrize(("chunk_rows", "times"), [(10, 1), (100, 5)])
def test_compressed_chunks_are_decoded_once_where_sixteen_fit_in_a_window(
    chunk_rows: int, times: int, make_store: Callable[..., Store]
) -> None:
    """Windows of 200 rows. Larger chunks are cut into as few pieces as windows of 16 stretches allow."""
    X = np.random.default_rng(3).random((1000, 3), dtype=np.float32)
    store = make_store(X, X[:, 0].astype(np.float64), task="regression", chunk_rows=chunk_rows)
    zarr.create_array(f"{store.path}/X", data=X, chunks=(chunk_rows, 3), compressors=ZstdCodec(), overwrite=True)
    rows = StoreRows(open_store(zarr.open_group(CountingStore(LocalStore(store.path, read_only=True)), mode="r")))
    plan = BatchPlan.for_rows(rows, 20, seed=5, window_bytes=12 * 200)
    CountingStore.fetched.clear()
    for batch in iter_batches(rows, plan, 1):
        np.testing.assert_array_equal(batch.block.X, X[batch.positions])
    assert set(CountingStore.fetched.values()) == {times}
    assert len(CountingStore.fetched) == 1000 // chunk_rows
    assert plan.chunk_reads == times
