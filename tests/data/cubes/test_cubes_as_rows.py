"""The cells of a Dataset as rows: the features by name, whichever way they are stored, without cells with gaps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from daskkern.data.cubes import cube_grid
from daskkern.data.cubes.cube_features import named_features
from daskkern.data.cubes.cube_grid import grid_of
from daskkern.data.cubes.cube_opening import CubeChoice, cube_blocks
from daskkern.data.cubes.cube_predictions import predicted_cube
from daskkern.data.cubes.cube_reader import class_labels, map_in_threads, reader_of, surveyed
from daskkern.data.cubes.cube_stores import is_cube_store, open_cube
from daskkern.data.rows.grouped_rows import GroupedRows, RowTargets
from daskkern.data.rows.rows import Fields
from daskkern.errors import DataError

DIMS = ("time", "lat", "lon")
CHOICE = CubeChoice(("t2m",), DIMS, ("lat", "lon", "time"))
NAMES = ["z", "wind[level=500]", "wind[level=850]", "oro", "lat", "sin(lon)", "cos(lon)"]
NAMES += [f"{wave}({circle}(time))" for circle in ("dayofyear", "hour") for wave in ("sin", "cos")]


def naive(ds: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The table that a reader of the documentation makes by hand, in the order of the cells."""
    hours = ds.time.dt.hour / 24 * 2 * np.pi
    days = ((ds.time.dt.dayofyear - 1) + ds.time.dt.hour / 24) / 365.2425 * 2 * np.pi
    turn = np.deg2rad(ds.lon)
    columns = [ds.z, ds.wind.sel(level=500), ds.wind.sel(level=850), ds.oro, ds.lat, np.sin(turn), np.cos(turn)]
    columns += [np.sin(days), np.cos(days), np.sin(hours), np.cos(hours)]
    X = np.stack([column.broadcast_like(ds.t2m).transpose(*DIMS).values.ravel() for column in columns], axis=1)
    y = ds.t2m.transpose(*DIMS).values.ravel()
    keep = np.isfinite(X).all(axis=1) & np.isfinite(y)
    return X[keep], y[keep]


def rows_of(ds: Any, choice: CubeChoice = CHOICE, y: Any = None) -> tuple[GroupedRows, list[str]]:
    blocks = cube_blocks(ds, choice, y)
    found = surveyed(blocks, map_in_threads)
    reader = reader_of(blocks, found, None)
    rows = GroupedRows(reader, len(blocks.features), RowTargets("regression", 1), dtype="float64")
    return rows, [feature.name for feature in blocks.features]


def in_order(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    table = np.column_stack([y, X])
    return table[np.lexsort(table.T)]


def written(ds: xr.Dataset, folder: Path) -> Path:
    place = folder / "weather.zarr"
    packed = {"t2m": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 10.0, "_FillValue": -9999}}
    ds.chunk(time=5, lat=3).to_zarr(place, encoding=packed, zarr_format=3, consolidated=False)
    return place


@pytest.mark.parametrize(
    "kind", ["in memory", "dask", "stored", pytest.param("other chunks", marks=pytest.mark.repeated)]
)
def test_rows_are_the_cells_without_gaps(
    weather: xr.Dataset, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cube_grid, "LEAST_CELLS", 30)
    ds, expected = weather, weather
    if kind == "dask":
        ds = weather.chunk(time=5, lat=2)
    elif kind == "other chunks":
        ds = weather.chunk(time=7, lon=3)
        ds["z"] = ds.z.chunk(time=2, lon=8)
    elif kind == "stored":
        place = written(weather, tmp_path)
        assert is_cube_store(place)
        ds = open_cube(place)
        assert ds.t2m.variable.chunks is None
        expected = ds.load().copy()
        ds = open_cube(place)
    rows, names = rows_of(ds)
    X, y = naive(expected)
    assert sorted(names) == sorted(NAMES)
    block = rows.read(0, rows.n_rows)
    found = np.asarray(block.X)[:, [names.index(name) for name in NAMES]]
    np.testing.assert_allclose(in_order(found, block.y[:, 0]), in_order(X, y), rtol=1e-6)
    assert kind == "in memory" or len(rows._reader.sizes) > 2


def test_targets_alone_have_the_same_rows(weather: xr.Dataset) -> None:
    rows, _ = rows_of(weather.chunk(time=4))
    np.testing.assert_array_equal(rows.read(0, rows.n_rows).y, rows.read(0, rows.n_rows, Fields.y).y)


def test_arrays_of_labels_are_features_and_targets_too(weather: xr.Dataset) -> None:
    both = xr.concat([weather.z, weather.z**2], dim="band").transpose(*DIMS, "band").rename(None)
    rows, names = rows_of(both, CubeChoice(sample_dims=DIMS), weather.t2m)
    assert names == ["X[band=0]", "X[band=1]"]
    X, y = weather.z.values.ravel(), weather.t2m.values.ravel()
    keep = np.isfinite(X) & np.isfinite(y)
    block = rows.read(0, rows.n_rows)
    np.testing.assert_allclose(block.X, np.stack([X, X**2], axis=1)[keep])
    np.testing.assert_allclose(block.y[:, 0], y[keep])


def test_small_chunks_are_read_together_and_blocks_cover_all_cells(weather: xr.Dataset) -> None:
    ds = weather.chunk(time=1, lat=1, lon=1)
    grid = grid_of(ds, DIMS, ["t2m"], 3)
    assert grid.n_blocks == 1
    grid = grid_of(weather.chunk(time=5), DIMS, ["t2m"], 3)
    cells = sum(int(np.prod([p.stop - p.start for p in grid.block(k).values()])) for k in range(grid.n_blocks))
    assert cells == grid.n_cells == 12 * 6 * 8


@pytest.mark.parametrize("lazy", [False, True])
def test_predictions_have_the_coordinates_and_gaps_of_the_features(weather: xr.Dataset, lazy: bool) -> None:
    ds = weather.chunk(time=5, lat=4) if lazy else weather
    found = predicted_cube(ds, NAMES, lambda X: X @ np.arange(11.0), np.empty(0), name="t2m")
    assert (found.chunks is not None) == lazy
    assert found.dims == DIMS
    assert found.name == "t2m"
    X, _ = naive(weather.assign(t2m=weather.t2m.fillna(0)))
    values = found.values
    assert np.isnan(values[3, 4, 5])
    assert np.isnan(values).sum() == 1
    np.testing.assert_allclose(values[np.isfinite(values)], X @ np.arange(11.0), rtol=1e-6)
    xr.testing.assert_equal(found.coords.to_dataset(), weather.t2m.coords.to_dataset())


def test_predictions_of_a_store_are_lazy_and_of_several_values_have_a_dim(weather: xr.Dataset, tmp_path: Path) -> None:
    ds = open_cube(written(weather, tmp_path))
    found = predicted_cube(ds, ["z"], lambda X: np.hstack([X, -X]), np.empty((0, 2)), outputs=("class", ["a", "b"]))
    assert found.chunks is not None
    assert found.dims == (*DIMS, "class")
    np.testing.assert_allclose(found.sel({"class": "b"}).values, -weather.z.values)


def test_texts_are_empty_where_cells_miss_values(weather: xr.Dataset) -> None:
    found = predicted_cube(weather, ["z"], lambda X: np.where(X[:, 0] > 0, "warm", "cold"), np.empty(0, "U4"))
    assert found.values[3, 4, 5] == ""
    assert set(np.unique(found.values.astype(str))) == {"", "cold", "warm"}


def test_classes_are_found_in_the_survey(weather: xr.Dataset) -> None:
    kinds = (weather.t2m > 10).where(weather.t2m.notnull())
    blocks = cube_blocks(weather.assign(kind=kinds), CubeChoice(("kind",), drop=("t2m",)))
    found = surveyed(blocks, map_in_threads)
    assert class_labels(found) == (0, 1)
    reader = reader_of(blocks, found, (0, 1))
    y = GroupedRows(reader, 4, RowTargets("classification", 1, (0, 1))).read(0, 20).y
    assert y is not None
    assert set(y.tolist()) <= {0, 1}


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (CubeChoice(("t",)), "has no variable 't'; it has t2m, z"),
        (CubeChoice(()), "which variable is the target"),
        (CubeChoice(("t2m",), ("time", "x")), "sample dim 'x', which the Dataset does not have; its dims are"),
        (CubeChoice(("t2m",), ("time",)), "has the dim 'lat' too, which is not among sample_dims"),
        (CubeChoice(("t2m",), coords=("height",)), "coords='height'; expected coordinates"),
        (CubeChoice(("t2m",), coords=("level",)), "not all among sample_dims"),
        (CubeChoice(("t2m",), drop=("height",)), "drop='height'; expected variables"),
        (CubeChoice(("t2m",), drop=("z", "wind", "oro")), "no variable is left as a feature"),
    ],
)
def test_wrong_names_are_refused(weather: xr.Dataset, choice: CubeChoice, words: str) -> None:
    with pytest.raises(DataError, match=words):
        cube_blocks(weather, choice)


def test_other_coordinates_missing_features_and_empty_cubes_are_refused(weather: xr.Dataset) -> None:
    with pytest.raises(DataError, match="does not have the coordinates of X"):
        cube_blocks(weather[["z"]], CubeChoice(), weather.t2m.isel(time=slice(3)))
    with pytest.raises(DataError, match="the Dataset lacks 'q', a feature of the model"):
        named_features(["q"], weather)
    with pytest.raises(DataError, match="no level=700 of the variable 'wind'"):
        named_features(["wind[level=700]"], weather)
    with pytest.raises(DataError, match="no cell of the Dataset has values"):
        surveyed(cube_blocks(weather.assign(t2m=weather.t2m * np.nan), CHOICE), map_in_threads)
