"""Rows of one chunk of a local array are read from its file; others, and those of files in doubt, by Zarr."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskkern.arrays import HostArray
from daskkern.data.storage.random_access import rows_in_chunk
from daskkern.data.storage.store import read_array
from daskkern.errors import StoreError


@pytest.fixture
def values() -> HostArray:
    return np.random.default_rng(0).normal(size=(25, 3)).astype(np.float32)


def written(
    values: HostArray, place: Path | dict[str, object], chunks: tuple[int, int] = (10, 3), **settings: Any
) -> "zarr.Array[Any]":
    store = place if isinstance(place, dict) else str(place)
    array = zarr.create_array(store, shape=values.shape, dtype=values.dtype, chunks=chunks, **settings)
    array[...] = values
    return array


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (3, 7), (10, 20), (20, 25), (22, 99)])
def test_rows_of_a_chunk_are_those_of_zarr(values: HostArray, tmp_path: Path, start: int, stop: int) -> None:
    array = written(values, tmp_path / "a.zarr", compressors=None)
    found = rows_in_chunk(array, start, stop)
    assert found is not None
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, values[start:stop])
    np.testing.assert_array_equal(read_array(array, start, stop), values[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(5, 15), (0, 25), (5, 5), (25, 30)])
def test_other_rows_are_left_to_zarr(values: HostArray, tmp_path: Path, start: int, stop: int) -> None:
    array = written(values, tmp_path / "a.zarr", compressors=None)
    assert rows_in_chunk(array, start, stop) is None
    np.testing.assert_array_equal(read_array(array, start, stop), values[start:stop])


@pytest.mark.parametrize(
    "settings", [{}, {"compressors": None, "chunks": (10, 2)}, {"compressors": None, "shards": (20, 3)}]
)
def test_other_chunks_are_left_to_zarr(values: HostArray, tmp_path: Path, settings: dict[str, object]) -> None:
    array = written(values, tmp_path / "a.zarr", **settings)
    assert rows_in_chunk(array, 0, 10) is None
    np.testing.assert_array_equal(read_array(array, 0, 10), values[:10])


def test_a_missing_chunk_has_the_fill_value(values: HostArray, tmp_path: Path) -> None:
    array = written(values, tmp_path / "a.zarr", compressors=None, fill_value=7)
    (tmp_path / "a.zarr" / "c" / "1" / "0").unlink()
    np.testing.assert_array_equal(read_array(array, 10, 20), np.full((10, 3), 7))


def test_arrays_in_memory_are_left_to_zarr(values: HostArray) -> None:
    array = written(values, {}, compressors=None)
    assert rows_in_chunk(array, 0, 10) is None
    np.testing.assert_array_equal(read_array(array, 0, 10), values[:10])


@pytest.mark.parametrize("size", [60, 240])
def test_a_chunk_of_another_size_is_damaged_even_where_the_rows_are_there(
    values: HostArray, tmp_path: Path, size: int
) -> None:
    array = written(values, tmp_path / "a.zarr", compressors=None)
    chunk = tmp_path / "a.zarr" / "c" / "1" / "0"
    chunk.write_bytes((2 * chunk.read_bytes())[:size])
    assert rows_in_chunk(array, 10, 13) is None
    with pytest.raises(StoreError):
        read_array(array, 10, 13)
