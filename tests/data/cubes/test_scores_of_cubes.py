"""Scores of the cells of a Dataset, and names of its variables that targets without a name could take."""

import numpy as np
import pytest
import xarray as xr
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
