"""Ingestion of dask arrays and dask dataframes."""

from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.data.ingest import DaskArrays, ingest
from daskkern.data.rows.rows import RowBlock
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError


def _read(path: Path) -> RowBlock:
    store = open_store(path)
    store.verify()
    return StoreRows(store).read(0, store.info.n_rows)


@pytest.mark.parametrize("labels", [np.arange(103) % 3, np.array([f"l{i % 3}" for i in range(103)], dtype=object)])
def test_arrays_in_different_chunks(tmp_path: Path, X: HostArray, labels: HostArray) -> None:
    lazy = DaskArrays(da.from_array(X, chunks=(20, 2)), da.from_array(labels, chunks=50), da.arange(103, chunks=40))
    report = ingest(lazy, tmp_path / "s", shuffle=False)
    assert (report.format, report.task, report.n_rows) == ("dask", "classification", 103)
    block = _read(tmp_path / "s")
    np.testing.assert_array_equal(block.X, X)
    np.testing.assert_array_equal(block.y, np.arange(103) % 3)
    np.testing.assert_array_equal(block.weight, np.arange(103))


def test_chunks_of_unknown_length_and_sparse_blocks(tmp_path: Path, X: HostArray) -> None:
    dense = np.where(X > 3, X, 0)
    lazy = da.from_array(dense, chunks=(20, 5)).map_blocks(scipy.sparse.csr_array, dtype=np.float32)
    ingest(DaskArrays(lazy), tmp_path / "s", target=())
    found = _read(tmp_path / "s").X
    assert isinstance(found, scipy.sparse.csr_array)
    np.testing.assert_array_equal(found.toarray(), dense)
    whole = da.from_array(X, chunks=(20, 5))
    kept = whole[whole[:, 0] > 3]
    ingest(DaskArrays(kept, kept[:, 1]), tmp_path / "t")
    np.testing.assert_array_equal(_read(tmp_path / "t").X, X[X[:, 0] > 3])


def test_each_block_is_computed_once(tmp_path: Path, X: HostArray) -> None:
    seen: list[int] = []

    def load(block: HostArray) -> HostArray:
        seen.append(len(block))
        return block

    lazy = da.from_array(X, chunks=(20, 5)).map_blocks(load, meta=np.empty((0, 0), np.float32))
    with dask.config.set(scheduler="synchronous"):
        ingest(DaskArrays(lazy, lazy[:, 0]), tmp_path / "s")
    assert seen == [20, 20, 20, 20, 20, 3]


def test_a_dataframe_with_categories(tmp_path: Path, rng: np.random.Generator) -> None:
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=100),
            "b": rng.choice(["x", "y"], 100),
            "c": pd.Categorical(rng.choice(["u", "v"], 100)),
            "t": np.arange(100) % 2,
        }
    )
    lazy = dd.from_pandas(frame, npartitions=4)
    report = ingest(lazy, tmp_path / "s", target="t", categorical="onehot", shuffle=False)
    assert (report.task, report.n_features) == ("classification", 5)
    expected = pd.get_dummies(frame[["a", "b", "c"]], columns=["b", "c"]).to_numpy(np.float32)
    np.testing.assert_array_equal(_read(tmp_path / "s").X, expected)
    ingest(lazy, tmp_path / "u", like=tmp_path / "s", shuffle=False)
    np.testing.assert_array_equal(_read(tmp_path / "u").X, expected)


def test_what_does_not_go_together_is_refused(tmp_path: Path, X: HostArray) -> None:
    whole = da.from_array(X, chunks=(20, 5))
    cut = whole[whole[:, 0] > 3]
    for arrays, words in (
        (DaskArrays(whole), r"y is missing; give DaskArrays\(X, y\)"),
        (DaskArrays(whole, whole[:50, 0]), "X has 103 rows, but y has 50"),
        (DaskArrays(cut, da.arange(50, chunks=50)), "y has 1 row chunks and X has 6"),
        (DaskArrays(cut, whole[:, 0]), "row chunk 0 of X has .* rows, but that of y has 20"),
        (DaskArrays(whole[:, 0], whole[:, 0]), r"and shape \(103,\); expected a dask array of real numbers"),
        (whole, "got a Array; give a dask dataframe, or DaskArrays"),
    ):
        with pytest.raises(DataError, match=words):
            ingest(arrays, tmp_path / "s")
    with pytest.raises(DataError, match="name columns, which dask arrays do not have"):
        ingest(DaskArrays(whole, whole[:, 0]), tmp_path / "s", drop=["a"])
    assert not any(tmp_path.iterdir())
