"""Sparse rows: on disk in AnnData's layout, by position, in batches; equal to the dense rows they stand for."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from daskkern.arrays import HostArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batches import BatchPlan, iter_batches
from daskkern.data.rows.csr import as_csr, csr_rows
from daskkern.data.rows.finite import first_not_finite
from daskkern.data.rows.rows import Fields, take
from daskkern.data.rows.subset import RowsWithout
from daskkern.data.schema.column_statistics import Moments
from daskkern.data.storage.csr_store import PARTS
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DataError, SpecError, StoreError


@pytest.fixture(name="S")
def sparse_rows(rng: np.random.Generator) -> HostArray:
    """Dense rows most of which is zero, an empty row and an empty column among them."""
    S = np.where(rng.random((103, 8)) < 0.2, rng.normal(3.0, 2.0, size=(103, 8)), 0).astype(np.float32)
    S[17], S[:, 5] = 0, 0
    return S


@pytest.fixture
def store_path(tmp_path: Path, S: HostArray) -> Path:
    return _write(tmp_path / "s", S)


def _write(path: Path, S: HostArray, **options: object) -> Path:
    y = np.arange(len(S)) % 3
    options = {"chunk_rows": 10, **options}
    with StoreWriter(
        path,
        n_features=S.shape[1],
        dtype=S.dtype,
        task="classification",
        classes=(1, 2, 3),
        sparse=True,
        **options,  # type: ignore[arg-type]
    ) as writer:
        for start, stop in [(0, 7), (7, 8), (8, 55), (55, len(S))]:
            writer.append(scipy.sparse.csr_array(S[start:stop]), y[start:stop])
    return path


def test_rows_come_back_in_annadata_layout(store_path: Path, S: HostArray) -> None:
    store = open_store(store_path)
    store.verify()
    group = store.group["X"]
    assert group.attrs.asdict() == {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [103, 8]}
    parts = tuple(np.asarray(group[name][:]) for name in ("data", "indices", "indptr"))
    np.testing.assert_array_equal(scipy.sparse.csr_array(parts, shape=(103, 8)).toarray(), S)
    rows = StoreRows(store, np.float64)
    assert (rows.is_sparse, rows.n_features, rows.n_stored) == (True, 8, np.count_nonzero(S))
    for start, stop in [(0, 103), (0, 0), (16, 19), (99, 103), (103, 103)]:
        block = rows.read(start, stop)
        assert isinstance(block.X, scipy.sparse.csr_array)
        assert block.X.dtype == np.float64
        np.testing.assert_array_equal(block.X.toarray(), S[start:stop].astype(np.float64))
        np.testing.assert_array_equal(block.y, np.arange(start, stop) % 3)


def test_reading_rows_reads_only_their_chunks(tmp_path: Path, S: HostArray) -> None:
    S = np.tile(S, (800, 1))  # 82,400 rows: several chunks of entries, and two of row pointers
    n, path = len(S), _write(tmp_path / "s", S, chunk_rows=5000)
    chunks = {part: sorted(int(chunk.name) for chunk in (path / "X" / part / "c").iterdir()) for part in PARTS}
    assert (len(chunks["data"]) > 3, chunks["indptr"]) == (True, [0, 1])
    rows = StoreRows(open_store(path))
    for start, stop in [(0, n), (65_000, 66_000), (65_535, 65_537), (n - 1, n)]:
        np.testing.assert_array_equal(_dense(rows.read(start, stop).X), S[start:stop])
    for part in ("data", "indices"):
        for number in chunks[part][1:]:
            (path / "X" / part / "c" / str(number)).write_bytes(b"")
    size = zarr.open_array(path / "X" / "data", mode="r").chunks[0]
    stop = int(np.searchsorted(np.cumsum(np.count_nonzero(S, axis=1)), size, side="right"))
    np.testing.assert_array_equal(_dense(rows.read(0, stop).X), S[:stop])
    with pytest.raises(StoreError, match=f"rows {n - 3} to {n} of X of the store"):
        rows.read(n - 3, n)


def _dense(X: object) -> HostArray:
    assert isinstance(X, scipy.sparse.csr_array)
    return X.toarray()


def test_statistics_are_those_of_the_dense_rows(
    store_path: Path, S: HostArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = open_store(store_path).info.statistics
    wide = S.astype(np.float64)
    for name, expected in (("mean", wide.mean(0)), ("std", wide.std(0)), ("min", wide.min(0)), ("max", wide.max(0))):
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr("daskkern.data.schema.column_statistics.WIDE", 4)
    store = open_store(_write(store_path.with_name("w"), S))
    assert store.group.attrs["statistics"] == {"array": "column_statistics"}
    assert store.info.statistics == found


@pytest.mark.parametrize(
    ("scale", "scaler"), [("maxabs", MaxAbsScaler()), ("unit_variance", StandardScaler(with_mean=False))]
)
def test_scalings_without_shift_are_those_of_scikit_learn(
    tmp_path: Path, S: HostArray, scale: str, scaler: MaxAbsScaler
) -> None:
    rows = StoreRows(open_store(_write(tmp_path / "s", S, scale=scale)), np.float64)
    np.testing.assert_allclose(_dense(rows.read(0, 103).X), scaler.fit_transform(S.astype(np.float64)), rtol=1e-6)


def test_scalings_that_shift_are_refused(tmp_path: Path, S: HostArray) -> None:
    for scale in ("standard", "common", "minmax"):
        with pytest.raises(SpecError, match="so that no zero would stay zero; choose maxabs"):
            _write(tmp_path / "s", S, scale=scale)


def test_what_does_not_belong_into_a_sparse_store_is_refused(tmp_path: Path, S: HostArray) -> None:
    bad = S.copy()
    bad[60, 3] = np.nan
    with pytest.raises(DataError, match=r"row 60 \(counted from 0\), column 3"):
        _write(tmp_path / "s", bad)
    with (
        pytest.raises(DataError, match="dense rows were appended to a store of sparse rows"),
        StoreWriter(tmp_path / "s", n_features=8, sparse=True) as writer,
    ):
        writer.append(S)
    with pytest.raises(DataError, match="no rows"), StoreWriter(tmp_path / "s", n_features=8, sparse=True):
        pass
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("part", ["data", "indices", "indptr"])
def test_missing_and_damaged_parts_are_found(store_path: Path, part: str) -> None:
    chunk = next((store_path / "X" / part / "c").iterdir())
    whole = chunk.read_bytes()
    chunk.write_bytes(bytes(255 - byte for byte in whole))
    with pytest.raises(StoreError, match=rf"array 'X/{part}' .*checksum differs"):
        open_store(store_path).verify()
    chunk.unlink()
    with pytest.raises(StoreError, match=f"chunk {chunk.name} of array 'X/{part}' is missing"):
        open_store(store_path)
    shutil.rmtree(store_path / "X" / part)
    with pytest.raises(StoreError, match="has no array"):
        open_store(store_path)


def test_column_numbers_outside_of_the_rows_are_refused(store_path: Path) -> None:
    zarr.open_array(store_path / "X" / "indices", mode="r+")[3] = 8
    with pytest.raises(DataError, match="no valid CSR rows of 8 features"):
        StoreRows(open_store(store_path)).read(0, 103)
    with pytest.raises(DataError, match="no valid CSR rows"):
        csr_rows(np.ones(2), np.array([0, 1]), np.array([0, 3, 2]), 2, "here")


@pytest.mark.parametrize("in_memory", [True, False])
def test_take_and_subsets_are_those_of_dense_rows(
    store_path: Path, S: HostArray, rng: np.random.Generator, in_memory: bool
) -> None:
    codes = np.arange(103) % 3
    rows = (
        ArrayRows(scipy.sparse.csc_array(S), codes, classes=(1, 2, 3))
        if in_memory
        else StoreRows(open_store(store_path))
    )
    positions = rng.integers(0, 103, 60)
    block = take(rows, positions)
    np.testing.assert_array_equal(_dense(block.X), S[positions])
    np.testing.assert_array_equal(block.y, positions % 3)
    assert _dense(take(rows, np.array([], np.int64)).X).shape == (0, 8)
    assert take(rows, positions, Fields.y).X is None
    excluded = np.array([0, 16, 17, 50, 102])
    rest = RowsWithout(rows, excluded)
    assert rest.is_sparse
    np.testing.assert_array_equal(_dense(rest.read(3, 90).X), np.delete(S, excluded, axis=0)[3:90])


plans = st.builds(
    BatchPlan,
    n_rows=st.integers(1, 200),
    chunk_rows=st.integers(1, 60),
    batch_size=st.integers(1, 90),
    seed=st.integers(0, 1000),
    window_rows=st.integers(1, 150),
)


@given(plan=plans, prefetch=st.integers(0, 2))
@settings(max_examples=30, deadline=None)
def test_batches_of_sparse_rows_are_those_of_dense_rows(plan: BatchPlan, prefetch: int) -> None:
    dense = np.where(np.arange(3 * plan.n_rows) % 4 == 0, np.arange(3 * plan.n_rows), 0.0).reshape(-1, 3)
    both = [ArrayRows(X, chunk_rows=plan.chunk_rows) for X in (scipy.sparse.csr_array(dense), dense)]
    ours, theirs = (list(iter_batches(rows, plan, 1, prefetch=prefetch)) for rows in both)
    for batch, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(_dense(batch.block.X), expected.block.X)
        np.testing.assert_array_equal(batch.positions, expected.positions)


def test_windows_hold_as_many_sparse_rows_as_their_entries_allow() -> None:
    rows = ArrayRows(scipy.sparse.random_array((1000, 10_000), density=0.001, format="csr"))  # 10 entries a row
    assert BatchPlan.for_rows(rows, 8, window_bytes=8800).window_rows == 100


@given(
    S=st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.5, -2.0]), min_size=3, max_size=3), min_size=1, max_size=20),
    cut=st.integers(0, 20),
)
def test_sparse_moments_are_dense_moments(S: list[list[float]], cut: int) -> None:
    dense, sparse = Moments(3), Moments(3)
    X = np.array(S)
    assert dense.update(X)
    for part in (X[:cut], X[cut:]):
        assert sparse.update(scipy.sparse.csr_array(part))
    np.testing.assert_allclose(sparse.result().table(), dense.result().table(), atol=1e-12)


def test_rows_that_are_not_canonical_are_put_in_order() -> None:
    messy = scipy.sparse.csr_array((np.array([1.0, 2, 3]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    tidy = as_csr(messy)
    assert (tidy.indices.tolist(), tidy.data.tolist()) == ([0, 2], [2, 4])
    assert messy.indices.tolist() == [2, 0, 2]


def test_the_first_entry_that_is_no_finite_number_is_found_by_its_place() -> None:
    X = scipy.sparse.csr_array(np.array([[0.0, 1, 0], [0, 0, 0], [2, 0, np.inf], [np.nan, 0, 0]]))
    assert first_not_finite(X) == (2, 2, np.inf)
    assert first_not_finite(X[:2]) is None
    assert first_not_finite(X[:2].astype(np.int64)) is None
