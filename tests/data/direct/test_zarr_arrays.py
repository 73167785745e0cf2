"""Zarr arrays and opened groups as rows: labels of text, of bytes, and the arrays that a group needs."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from daskkern import AllRows, KernelClassifier, KernelRegressor
from daskkern.errors import DataError

EXACT = {"basis": AllRows(), "solver": "direct", "alpha": 1e-3, "device": "cpu", "calibrate": False}
X = np.random.default_rng(0).normal(size=(150, 2))


@pytest.fixture
def group(tmp_path: Path) -> zarr.Group:
    """A group with features X, targets y, labels c and weights w."""
    made = zarr.open_group(tmp_path / "rows.zarr", mode="w", zarr_format=3)
    labels = np.where(X[:, 0] > 0, "warm", "cold").astype(np.dtypes.StringDType())
    for name, values in (("X", X), ("y", np.sin(X[:, 0])), ("c", labels), ("w", np.ones(150))):
        made.create_array(name, data=values, chunks=(60, *values.shape[1:]))
    return zarr.open_group(tmp_path / "rows.zarr", mode="r")


def test_texts_of_variable_width_are_labels(group: zarr.Group, tmp_path: Path) -> None:
    expected = KernelClassifier("gaussian:1.5", "squared", **EXACT).fit(X, np.where(X[:, 0] > 0, "warm", "cold"))
    named = {"target": "c"}
    for rows, given in ((group["X"], {"y": group["c"]}), (group, named), (str(tmp_path / "rows.zarr"), named)):
        model = KernelClassifier("gaussian:1.5", "squared", **EXACT).fit(rows, **given)
        assert model.classes_.tolist() == ["cold", "warm"]
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))


def test_labels_that_are_bytes_are_refused() -> None:
    arrays = [zarr.array(X), zarr.array(np.where(X[:, 0] > 0, b"warm", b"cold"), zarr_format=2)]
    with pytest.raises(DataError, match=r"got class labels of type \|S4; use strings, integers, floats or booleans"):
        KernelClassifier("gaussian:1.5", "squared", **EXACT).fit(*arrays)


def test_an_opened_group_is_as_good_as_its_path(group: zarr.Group, tmp_path: Path) -> None:
    expected = KernelRegressor("gaussian:1.5", **EXACT).fit(str(tmp_path / "rows.zarr"), target="y")
    model = KernelRegressor("gaussian:1.5", **EXACT).fit(group, target="y", sample_weight="w")
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=1e-5)
    with pytest.raises(DataError, match="has no array 'z'; it has "):
        KernelRegressor().fit(group, target="z")
    with pytest.raises(DataError, match="with a group of Zarr arrays; name one array of "):
        KernelRegressor().fit(group, target=("y", "w"))


def test_an_opened_group_of_xarray_is_a_dataset(tmp_path: Path) -> None:
    ds = xr.Dataset({"a": ("n", X[:, 0]), "t": ("n", np.sin(X[:, 0]))})
    ds.to_zarr(tmp_path / "cube.zarr", consolidated=False)
    model = KernelRegressor("gaussian:1.5", **EXACT).fit(zarr.open_group(tmp_path / "cube.zarr", mode="r"), target="t")
    assert model.model_.feature_names == ("a",)
    assert model.score(ds) > 0.9
    with pytest.raises(DataError, match=r"whose cells an estimator .*\.predict\(xarray.open_zarr\(store\)\)"):
        model.predict(str(tmp_path / "cube.zarr"))
    with pytest.raises(DataError, match=r"whose cells an estimator .*\.score\(xarray.open_zarr\(store\)\)"):
        model.score(str(tmp_path / "cube.zarr"))
