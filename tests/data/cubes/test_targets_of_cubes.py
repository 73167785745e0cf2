"""Targets of Datasets: texts of every kind, variables given apart, cells that are stacked; others are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from daskkern import AllRows, KernelClassifier, KernelPCA, KernelRegressor, load
from daskkern.errors import DataError

EXACT = {"basis": AllRows(), "solver": "direct", "alpha": 1e-3, "device": "cpu", "calibrate": False}


def regressor() -> KernelRegressor:
    """A regressor of few cells."""
    return KernelRegressor("gaussian:1.5", "squared", **EXACT)


def classifier() -> KernelClassifier:
    """A classifier of few cells."""
    return KernelClassifier("gaussian:1.5", "squared", **EXACT)


@pytest.fixture
def grid() -> xr.Dataset:
    """A feature and a target by time and lat."""
    ds = xr.Dataset({"z": (("time", "lat"), np.random.default_rng(0).normal(size=(20, 10)))})
    return ds.assign(t=np.sin(ds.z)).assign_coords(time=np.arange(20), lat=np.linspace(-1, 1, 10))


@pytest.mark.parametrize("chunks", [None, {}])
def test_texts_of_a_store_are_classes(grid: xr.Dataset, tmp_path: Path, chunks: Any) -> None:
    ds = grid.drop_vars("t").assign(c=xr.where(grid.z > 0, "cold", "warm").astype(object))
    ds.to_zarr(tmp_path / "c.zarr", zarr_format=3, consolidated=False)
    opened = xr.open_zarr(tmp_path / "c.zarr", chunks=chunks, consolidated=False)
    expected = classifier().fit(ds, target="c")
    for X in (opened, str(tmp_path / "c.zarr")):
        model = classifier().fit(X, target="c")
        assert model.classes_.tolist() == ["cold", "warm"]
        np.testing.assert_array_equal(model.predict(ds), expected.predict(ds))
    assert model.score(opened) == expected.score(ds) > 0.9


def test_texts_of_variable_width_are_classes(grid: xr.Dataset, tmp_path: Path) -> None:
    kinds = np.where(grid.z.values > 0, "cold", "warm").astype(np.dtypes.StringDType(na_object=None))
    kinds[0, :3] = [None, "", "cold"]
    ds = grid.drop_vars("t").assign(c=(("time", "lat"), kinds))
    model = classifier().fit(ds, target="c")
    assert model.classes_.tolist() == ["cold", "warm"]
    assert model.score(ds) > 0.9
    model.save(tmp_path / "m.zarr")
    assert load(tmp_path / "m.zarr").classes == ("cold", "warm")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.full(200, b"a"), r"variable 't' of the Dataset holds bytes \(\|S1\); expected text"),
        (np.full(200, 1j), "variable 't' of the Dataset holds complex128 values; expected numbers, or text as classes"),
        (np.full(200, np.datetime64("2001-01-01", "ns")), r"holds datetime64\[ns\] values; expected numbers"),
    ],
)
def test_targets_of_other_kinds_are_refused(grid: xr.Dataset, values: np.ndarray, words: str) -> None:
    ds = grid.assign(t=(("time", "lat"), values.reshape(20, 10)))
    for model in (classifier(), regressor()):
        with pytest.raises(DataError, match=words):
            model.fit(ds, target="t")


@pytest.mark.parametrize("labels", [(1, 2), (1, "a"), (b"a", b"b"), (True, False)])
def test_objects_that_are_no_texts_are_refused(grid: xr.Dataset, labels: Any) -> None:
    kinds = np.array(labels, object)[(grid.z.values > 0).astype(int)]
    with pytest.raises(DataError, match=r"variable 't' of the Dataset holds the object .* of type (int|bytes|bool)"):
        classifier().fit(grid.assign(t=(("time", "lat"), kinds)), target="t")


def test_levels_of_stacked_cells_are_coordinates(grid: xr.Dataset) -> None:
    stacked = grid.stack(cell=("time", "lat"))
    model = regressor().fit(stacked, target="t", sample_dims="cell", coords=("lat", "time"))
    assert model.model_.feature_names == ("z", "lat", "time")
    plain = regressor().fit(grid, target="t", coords=("lat", "time"))
    for ds in (stacked, stacked.chunk(cell=50)):
        found = model.predict(ds).unstack("cell")
        np.testing.assert_allclose(found, plain.predict(grid), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["memory", "dask", "file", "selected"])
def test_a_variable_that_is_the_target_is_no_feature(grid: xr.Dataset, kind: str, tmp_path: Path) -> None:
    ds = grid
    if kind == "dask":
        ds = grid.chunk(time=7)
    elif kind == "file":
        grid.to_zarr(tmp_path / "grid.zarr", consolidated=False)
        ds = xr.open_zarr(tmp_path / "grid.zarr", chunks=None, consolidated=False)
    y = ds.t
    if kind == "selected":
        ds, y = ds.isel(time=slice(9)), y.isel(time=slice(9))
    model = regressor().fit(ds, y)
    assert model.model_.feature_names == ("z",)
    assert model.model_.target_names == ("t",)
    assert model.score(ds) > 0.9
    later = regressor().fit(ds, ds.t.roll(time=1))
    assert sorted(later.model_.feature_names) == ["t", "z"]


def test_names_that_are_no_text_and_trees_are_refused(grid: xr.Dataset) -> None:
    for ds in (grid.rename(z=2), grid.drop_vars("lat").rename(lat="2").rename({"2": 2})):
        with pytest.raises(DataError, match="a variable or dim named 2, of type int; expected names that are text"):
            regressor().fit(ds, target="t")
        with pytest.raises(DataError, match="a variable or dim named 2, of type int"):
            regressor().fit(grid, target="t").predict(ds)
    with pytest.raises(DataError, match="got a DataTree of xarray; give one of its Datasets"):
        regressor().fit(xr.DataTree(grid), target="t")
    with pytest.raises(DataError, match="got a DataTree of xarray; give one of its Datasets"):
        regressor().fit(grid, target="t").predict(xr.DataTree(grid))


def test_estimators_without_targets_say_that_they_take_no_datasets(grid: xr.Dataset) -> None:
    with pytest.raises(
        DataError, match="got X of type Dataset for KernelPCA, which takes tables; give its cells as rows"
    ):
        KernelPCA().fit(grid)
