"""Estimators that are made of saved models: what they predict, and what they refuse."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import daskkern
from daskkern import AutoKernelRegressor, KernelClassifier, KernelRegressor, Linear, RandomFeatures
from daskkern.errors import DataError, ModelError, SpecError

xr = pytest.importorskip("xarray", reason="install daskkern[xarray]")


def _frame(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.standard_normal(n), "kind": rng.choice(["x", "y", "z"], n)})


@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize("saved", ["path", "model"])
def test_labels_of_a_data_frame(categories: bool, saved: str, tmp_path: Path) -> None:
    X = _frame().astype({"kind": "category"} if categories else {})
    y = np.where((X["a"] > 0) ^ (X["kind"].astype(str) == "x"), "yes", "no")
    fitted = KernelClassifier(loss="logistic", max_epochs=3).fit(X, y)
    fitted.save(tmp_path / "model.zarr")
    place = tmp_path / "model.zarr"
    again = KernelClassifier.from_model(place if saved == "path" else daskkern.load(place))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.score(X, y) == fitted.score(X, y)
    assert again.classes_.tolist() == ["no", "yes"]
    for name in ("n_features_in_", "alpha_", "kernel_", "stop_reason_", "n_iter_"):
        assert getattr(again, name) == getattr(fitted, name), name
    assert len(again.history_) == 3
    assert again.loss == "logistic"


def test_a_dataset_and_lazy_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ds = xr.Dataset({name: (("t", "x"), rng.standard_normal((20, 15))) for name in ("u", "v")})
    ds["w"] = ds["u"] + np.sin(ds["v"])
    fitted = KernelRegressor("gaussian:median", calibrate=False).fit(ds, target="w")
    fitted.save(tmp_path / "model.zarr")
    again = KernelRegressor.from_model(tmp_path / "model.zarr")
    xr.testing.assert_identical(again.predict(ds), fitted.predict(ds))
    assert again.score(ds) == fitted.score(ds) > 0.9
    with pytest.raises(DataError, match=r"got a Dataset; .* use KernelRegressor\.from_model\(model\)"):
        daskkern.load(tmp_path / "model.zarr").predict(ds)
    X = np.stack([ds["u"].values.ravel(), ds["v"].values.ravel()], axis=1)
    lazy = again.predict(da.from_array(X, chunks=(100, -1)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), fitted.predict(ds).values.ravel(), rtol=1e-6)


def test_several_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 3))
    Y = (X[:, :2] > 0).astype(int)
    fitted = KernelClassifier(max_epochs=2).fit(X, Y)
    fitted.save(tmp_path / "model.zarr")
    again = KernelClassifier.from_model(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.classes_.tolist() == fitted.classes_.tolist()


def test_a_later_fit_has_the_kernel_of_the_model(tmp_path: Path) -> None:
    X = _frame()[["a"]].to_numpy()
    y = np.sin(3 * X[:, 0])
    fitted = KernelRegressor(solver="direct", calibrate=False).fit(X, y)
    fitted.save(tmp_path / "model.zarr")
    again = KernelRegressor.from_model(tmp_path / "model.zarr")
    refitted = clone(again).set_params(solver="direct", calibrate=False).fit(X, y)
    np.testing.assert_allclose(refitted.predict(X), fitted.predict(X), atol=1e-3)


@pytest.mark.parametrize("basis", [RandomFeatures(40), Linear()])
def test_a_later_fit_of_features_has_the_kernel_of_rows(basis: Any, tmp_path: Path) -> None:
    X = _frame()[["a"]].to_numpy()
    KernelRegressor("auto", basis=basis, calibrate=False).fit(X, X[:, 0]).save(tmp_path / "model.zarr")
    again = KernelRegressor.from_model(tmp_path / "model.zarr")
    assert (again.kernel, again.alpha) == ("auto", "auto")
    assert again.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.9


def test_importances_of_learned_features_are_restored(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((300, 4))
    fitted = KernelRegressor("laplacian:median", learn_features="diagonal", calibrate=False).fit(X, np.sin(3 * X[:, 0]))
    fitted.save(tmp_path / "model.zarr")
    found = KernelRegressor.from_model(tmp_path / "model.zarr").feature_importances_
    np.testing.assert_array_equal(found, fitted.feature_importances_)


def _model(kind: Any, tmp_path: Path) -> Path:
    X = _frame()[["a"]].to_numpy()
    kind(max_epochs=1, calibrate=False).fit(X, X[:, 0] > 0 if kind is KernelClassifier else X[:, 0]).save(
        tmp_path / "m.zarr"
    )
    return tmp_path / "m.zarr"


def test_the_other_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"a model of regression; use KernelRegressor\.from_model"):
        KernelClassifier.from_model(_model(KernelRegressor, tmp_path))
    with pytest.raises(SpecError, match=r"a model of classification; use KernelClassifier\.from_model"):
        KernelRegressor.from_model(_model(KernelClassifier, tmp_path))


def test_training_state_is_not_in_a_model(tmp_path: Path) -> None:
    again = KernelRegressor.from_model(_model(KernelRegressor, tmp_path))
    with pytest.raises(SpecError, match="partial_fit on an estimator of a saved model"):
        again.set_params(basis=50).partial_fit([[0.0], [1.0]], [0.0, 1.0])


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model"):
        KernelRegressor.from_model(tmp_path / "nothing.zarr")
    with pytest.raises(SpecError, match="got a dict; expected a saved model"):
        KernelRegressor.from_model({})
    assert not hasattr(AutoKernelRegressor, "from_model")
