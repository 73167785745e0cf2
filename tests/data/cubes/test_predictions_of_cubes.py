"""Predictions of Datasets: their attributes, dtype, dims and chunks, and those of selections."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from daskkern import AllRows, KernelClassifier, KernelRegressor
from daskkern.data.cubes import cube_grid
from daskkern.data.cubes.cube_predictions import predicted_cube
from daskkern.errors import DataError
from daskkern.evaluation.cubes import predict_cube

EXACT = {"basis": AllRows(), "solver": "direct", "alpha": 1e-3, "device": "cpu", "calibrate": False}
STORED = {"z": {"chunks": (6, 5)}, "t": {"chunks": (6, 5)}, "h": {"chunks": (5,)}}


def regressor() -> KernelRegressor:
    """A regressor of few cells."""
    return KernelRegressor("gaussian:1.5", **EXACT)


@pytest.fixture
def grid() -> xr.Dataset:
    """A feature of time and lat, one of lat, and a target of both."""
    rng = np.random.default_rng(0)
    ds = xr.Dataset({"h": ("lat", rng.normal(size=10)), "z": (("time", "lat"), rng.normal(size=(20, 10)))})
    return ds.assign(t=np.sin(ds.z)).assign_coords(lat=("lat", np.arange(10.0), {"units": "degrees_north"}))


def test_predictions_have_no_attributes_of_features(grid: xr.Dataset, tmp_path: Path) -> None:
    packed = {"scale_factor": 0.01, "add_offset": 273.0, "units": "m", "standard_name": "height"}
    raw = grid.assign(z=(("time", "lat"), np.rint(grid.z.values * 9).astype("i2"), packed)).drop_vars("h")
    model = regressor().fit(raw, target="t")
    for ds in (raw, raw.chunk(time=7)):
        found = model.predict(ds)
        assert found.attrs == {}
        assert found.lat.attrs == {"units": "degrees_north"}
    raw.drop_attrs().to_zarr(tmp_path / "raw.zarr", consolidated=False)
    predict_cube(model.model_, str(tmp_path / "raw.zarr"), tmp_path / "out.zarr")
    again = xr.open_zarr(tmp_path / "out.zarr", consolidated=False)
    np.testing.assert_allclose(again.t.values, found.values, rtol=1e-6)


@pytest.mark.parametrize("chunks", [None, {"time": 7}])
def test_classes_that_floats_cannot_hold_stay_integers(grid: xr.Dataset, chunks: dict[str, int] | None) -> None:
    ds = grid.assign(c=xr.where(grid.z > 0, 2**60 + 1, 2**60)).drop_vars("t")
    model = KernelClassifier("gaussian:1.5", "squared", **EXACT).fit(ds, target="c")
    ds = ds if chunks is None else ds.chunk(chunks)
    found = model.predict(ds)
    assert found.dtype == np.int64
    assert set(np.unique(found)) == {2**60, 2**60 + 1}
    right = float((found == ds.c).mean())
    assert model.score(ds) == pytest.approx(right)
    assert right < 1
    with pytest.raises(DataError, match="a cell lacks a feature, and the classes are integers beyond"):
        model.predict(ds.assign(z=ds.z.where(ds.lat > 0))).compute()
    with pytest.raises(DataError, match="a float that stands for several integers"):
        model.score(ds, ds.c.astype(float))
    with pytest.raises(DataError, match="a float that stands for several integers"):
        KernelClassifier("gaussian:1.5", "squared", **EXACT).fit(
            ds.assign(c=xr.where(grid.z > 0, 2.0**60, 2.0**61)), target="c"
        )


def test_selections_of_a_file_are_predicted_lazily(grid: xr.Dataset, tmp_path: Path) -> None:
    grid.to_zarr(tmp_path / "grid.zarr", encoding=STORED, consolidated=False)
    opened = xr.open_zarr(tmp_path / "grid.zarr", chunks=None, consolidated=False)
    model = regressor().fit(opened, target="t")
    whole = model.predict(opened)
    assert whole.chunks == ((6, 6, 6, 2), (5, 5))
    for where in ({"time": -1}, {"lat": [1, 3]}, {"time": slice(3, 11), "lat": 2}, {"time": -1, "lat": 0}):
        np.testing.assert_allclose(model.predict(opened.isel(where)), whole.isel(where), rtol=1e-6)
    assert model.predict(opened.isel(time=slice(0))).shape == (0, 10)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_single_cell_is_predicted(grid: xr.Dataset, lazy: bool) -> None:
    model = regressor().fit(grid, target="t", coords="lat")
    ds = grid.chunk(time=7) if lazy else grid
    found = model.predict(ds.isel(time=3, lat=2))
    assert found.dims == ()
    assert float(found) == pytest.approx(float(model.predict(grid)[3, 2]), rel=1e-6)


@pytest.mark.parametrize("names", [("lat", "time"), ("h", "time"), ("h", "sin(hour(time))"), ("lat", "z")])
def test_predictions_are_cut_along_all_dims_in_the_order_of_the_cube(
    grid: xr.Dataset, names: tuple[str, ...], tmp_path: Path
) -> None:
    grid = grid.assign_coords(time=np.datetime64("2020-01-01", "ns") + np.arange(20) * np.timedelta64(1, "h"))
    if "time" in names:
        grid = grid.assign_coords(time=np.arange(20.0))
    grid.to_zarr(tmp_path / "grid.zarr", encoding=STORED, consolidated=False)
    opened = xr.open_zarr(tmp_path / "grid.zarr", chunks=None, consolidated=False)
    sizes: list[int] = []

    def first(X: np.ndarray) -> np.ndarray:
        sizes.append(len(X))
        return X[:, 0] + 3 * X[:, 1]

    expected = predicted_cube(grid, names, first, np.empty(0))
    for ds in (opened, grid.chunk(time=6, lat=5)):
        found = predicted_cube(ds, names, first, np.empty(0))
        assert found.dims == expected.dims == ("time", "lat")
        assert found.chunks == ((6, 6, 6, 2), (5, 5))
        sizes.clear()
        np.testing.assert_allclose(found.values, expected.values)
        assert max(sizes) == 30


def test_dims_without_chunks_are_cut_too(grid: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = grid[["h"]].chunk(lat=5).assign_coords(time=np.arange(20.0))
    found = predicted_cube(ds, ["h", "time"], lambda X: X[:, 1], np.empty(0))
    assert found.chunks == ((5, 5), (20,))
    assert cube_grid.LEAST_CELLS > 20
    long = ds.assign_coords(time=np.arange(1e6))
    assert max(predicted_cube(long, ["h", "time"], lambda X: X[:, 1], np.empty(0)).chunks[1]) < 1e6
