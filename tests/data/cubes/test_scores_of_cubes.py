"""Scores of the cells of a Dataset, and names of its variables that targets without a name could take."""

import tracemalloc
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, r2_score

from daskkern import AllRows, KernelClassifier, KernelRegressor
from daskkern.errors import DataError

EXACT = {"basis": AllRows(), "solver": "direct", "alpha": 1e-2, "device": "cpu", "calibrate": False}


@pytest.fixture
def cube() -> xr.Dataset:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6, 5))
    a[0, 1] = np.nan
    y = np.sin(a) + rng.normal(size=(6, 5)) / 2
    made = xr.Dataset({"a": (("t", "x"), a), "target": (("t", "x"), b), "y": (("t", "x"), np.where(b > 1, np.nan, y))})
    return made.assign_coords(x=np.arange(5.0))


def test_a_score_is_that_of_all_cells_with_values(cube: xr.Dataset) -> None:
    model = KernelRegressor("gaussian:2", **EXACT).fit(cube, target="y")
    predicted, weight = model.predict(cube), xr.DataArray(np.arange(1.0, 6.0), dims="x")
    there = (np.isfinite(predicted) & np.isfinite(cube.y)).values
    y, found = cube.y.values[there], predicted.values[there]
    assert model.score(cube) == pytest.approx(r2_score(y, found))
    assert model.score(cube.transpose("x", "t"), cube.y) == pytest.approx(r2_score(y, found))
    weights = np.broadcast_to(weight, (6, 5))[there]
    assert model.score(cube, cube.y, weight) == pytest.approx(r2_score(y, found, sample_weight=weights))
    with pytest.raises(DataError, match="has no variable 'y' to score predictions against"):
        model.score(cube.drop_vars("y"))
    with pytest.raises(DataError, match="give a DataArray"):
        model.score(cube, cube.y.values)
    with pytest.raises(DataError, match="does not have the coordinates of X"):
        model.score(cube, cube.y.assign_coords(x=np.arange(5.0) + 1))


@pytest.mark.parametrize("labels", [("cold", "warm"), (3, 7), (False, True)])
def test_an_accuracy_is_that_of_all_cells_with_values(cube: xr.Dataset, labels: tuple[object, object]) -> None:
    named = cube.assign(c=(("t", "x"), np.array(labels)[(cube.target.values > 0).astype(int)]))
    model = KernelClassifier("gaussian:2", "squared", **EXACT).fit(named.drop_vars("y"), target="c")
    there = np.isfinite(cube.a.values) & np.isfinite(cube.target.values)
    found = model.predict(named).values[there].astype(named.c.dtype)
    expected = accuracy_score(named.c.values[there], found)
    assert model.score(named) == pytest.approx(expected)
    assert model.score(named, named.c) == pytest.approx(expected)


def test_targets_without_a_name_take_no_feature(cube: xr.Dataset) -> None:
    rows = cube.drop_vars("y").rename(a="sample_weight")
    weight = xr.ones_like(cube.y).rename(None)
    model = KernelRegressor("gaussian:2", **EXACT).fit(rows, cube.y.rename(None), weight)
    assert model.model_.feature_names == ("sample_weight", "target")


@pytest.mark.parametrize("lazy", [False, True])
def test_cells_with_an_empty_text_have_no_class(cube: xr.Dataset, lazy: bool) -> None:
    kinds = xr.where(cube.target > 0.5, "warm", xr.where(cube.target > -0.5, "cold", ""))
    model = KernelClassifier("gaussian:2", "squared", **EXACT).fit(cube.assign(y=kinds), target="y")
    assert model.classes_.tolist() == ["cold", "warm"]
    ds = cube.assign(y=kinds.chunk(t=2) if lazy else kinds)
    found, there = model.predict(ds).values, np.isfinite(cube.a.values) & (kinds.values != "")
    assert model.score(ds) == pytest.approx(np.mean(found[there] == kinds.values[there]))


def test_targets_and_weights_may_have_dims_that_predictions_lack(cube: xr.Dataset) -> None:
    ds = xr.Dataset({"h": cube.target.isel(t=0, drop=True), "y": cube.y})
    model = KernelRegressor("gaussian:2", **EXACT).fit(ds, target="y")
    found, there = model.predict(ds), np.isfinite(ds.y).values
    assert found.dims == ("x",)
    expected = np.broadcast_to(found.values, (6, 5))[there]
    for other in (ds, ds.chunk(t=2), ds.transpose("x", "t")):
        assert model.score(other) == pytest.approx(r2_score(ds.y.values[there], expected))
    weight = xr.DataArray(np.arange(1.0, 7.0), dims="t")
    weights = np.broadcast_to(weight.values[:, None], (6, 5))[there]
    assert model.score(ds, ds.y, weight) == pytest.approx(r2_score(ds.y.values[there], expected, sample_weight=weights))
    with pytest.raises(DataError, match="sample_weight has the dim 'z', which neither y nor the predictions have"):
        model.score(ds, ds.y, xr.DataArray(np.ones(3), dims="z"))
    with pytest.raises(DataError, match="the weights of all cells with a target and a prediction are 0"):
        model.score(ds, ds.y, weight * 0)
    with pytest.warns(UndefinedMetricWarning, match="R2 of a single cell is undefined"):
        assert np.isnan(model.score(ds.isel(t=[0], x=[0])))


@pytest.mark.parametrize("classes", [False, True])
def test_a_file_is_scored_block_by_block(classes: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 40, 40))
    y = np.sin(z) + rng.normal(size=z.shape)
    ds = xr.Dataset({"z": (("t", "x", "w"), z), "y": (("t", "x", "w"), np.where(y > 0, 3, 8) if classes else y + 1e3)})
    stored = {"chunks": (10, 40, 40)}
    ds.to_zarr(tmp_path / "cube.zarr", encoding={"z": stored, "y": stored}, consolidated=False)
    kind = KernelClassifier if classes else KernelRegressor
    model = kind("gaussian:2", "squared", **EXACT).fit(ds.isel(t=0), target="y")
    found, true = model.predict(ds).values.ravel(), ds.y.values.ravel()
    expected = accuracy_score(true, found) if classes else r2_score(true, found)
    for chunks in (None, {}):
        opened = xr.open_zarr(tmp_path / "cube.zarr", chunks=chunks, consolidated=False)
        tracemalloc.start()
        with dask.config.set(scheduler="synchronous"):
            assert model.score(opened) == pytest.approx(expected)
        assert tracemalloc.get_traced_memory()[1] < z.nbytes
        tracemalloc.stop()
