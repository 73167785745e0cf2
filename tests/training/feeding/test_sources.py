"""Sources of rows: what they know of their rows, and where their stores are opened."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern.data.schema.column_scaling import Scaling
from daskkern.errors import StoreError
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.setup.scaling import with_scaling
from tests.support.fits import toy_source


@pytest.fixture
def source(tmp_path: Path) -> StoreSource:
    X = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.savez(tmp_path / "rows.npz", X=X, y=X[:, 0])
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr", task="regression", chunk_rows=5)
    return StoreSource.at(str(tmp_path / "rows.zarr"))


def test_a_store_is_opened_once_in_a_process_and_again_by_a_worker(source: StoreSource) -> None:
    scaled = with_scaling(source, Scaling("standard", (1.0,) * 3, (2.0,) * 3))
    assert scaled.store() is source.store()
    sent = pickle.loads(pickle.dumps(source))
    assert sent == source
    assert sent.opened is None
    next(Path(str(source.location)).glob("X/c/1/*")).unlink()
    with pytest.raises(StoreError, match="chunk 1 of array 'X' is missing"):
        sent.open("float32")


def test_what_a_source_says_of_its_rows(source: StoreSource) -> None:
    assert source.origin == source.location
    assert source.description()["name"] == "rows.zarr"
    assert source.local_bytes == 0
    statistics = source.statistics()
    assert statistics is not None
    np.testing.assert_allclose(statistics.mean, [28.5, 29.5, 30.5])
    arrays = toy_source()
    assert isinstance(arrays, ArraySource)
    assert arrays.origin == f"{arrays.info.n_rows:,} rows x {arrays.info.n_features} features in memory"
    assert arrays.description()["name"] == "arrays in memory"
    assert arrays.local_bytes == sum(array.nbytes for array in (arrays.X, arrays.y, arrays.weight) if array is not None)
    assert arrays.statistics() is None


def test_a_digest_differs_where_values_do(source: StoreSource) -> None:
    assert source.digest() == StoreSource.at(source.location).digest()
    assert set(source.digest()["checksums"]) == {"X", "y"}
    arrays = toy_source()
    X = np.array(arrays.X)
    X[-1, -1] += 1
    other = ArraySource(X, arrays.y, arrays.weight, arrays.info).digest()["checksums"]
    known = arrays.digest()["checksums"]
    assert (other["X"] != known["X"], other["y"] == known["y"]) == (True, True)
