"""Columns of frames and stores keep their names: rows whose columns come in another order are refused."""

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

import daskkern
from daskkern import KernelClassifier, KernelFeatures, KernelPCA, KernelRegressor, Landmarks
from daskkern.errors import DataError, SpecError

RNG = np.random.default_rng
WRONG = "the model was trained on feature 'a' where X has 'c'"


def _frame(seed: int = 0) -> pd.DataFrame:
    return pd.DataFrame(RNG(seed).standard_normal((120, 3)), columns=list("abc"))


def _regressor() -> KernelRegressor:
    return KernelRegressor("gaussian:2", max_epochs=2, device="cpu")


def _store(folder: Path, name: str, columns: list[str]) -> Path:
    frame = _frame()
    frame[columns].assign(y=frame["a"] * 2.0).to_csv(folder / f"{name}.csv", index=False)
    daskkern.ingest([str(folder / f"{name}.csv")], folder / name, target="y", shuffle=False)
    return folder / name


def test_a_fit_to_a_store_refuses_a_frame_of_another_order(tmp_path: Path) -> None:
    model = _regressor().fit(_store(tmp_path, "s", ["a", "b", "c"]))
    frame = _frame()
    expected = model.predict(frame)
    np.testing.assert_array_equal(model.predict(frame.to_numpy()), expected)
    for rows in (frame[["c", "b", "a"]], frame.rename(columns={"b": "z"})):
        with pytest.raises(DataError, match="the model was trained on feature"):
            model.predict(rows)


@pytest.mark.parametrize("kind", ["frame", "store"])
def test_a_saved_model_knows_the_columns(kind: str, tmp_path: Path) -> None:
    frame = _frame()
    fitted = _regressor()
    fitted.fit(_store(tmp_path, "s", ["a", "b", "c"])) if kind == "store" else fitted.fit(frame, frame["a"])
    fitted.save(tmp_path / "m")
    model = daskkern.load(tmp_path / "m")
    assert model.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.to_numpy()))
    for method in (model.predict, model.decision_function):
        with pytest.raises(DataError, match=f"{WRONG}; give the same columns in the same order"):
            method(frame[["c", "b", "a"]])


def test_columns_without_names_are_taken_by_position(tmp_path: Path) -> None:
    frame = _frame()
    model = _regressor().fit(frame.to_numpy(), frame["a"])
    assert model.model_.feature_names is None
    stored = _regressor().fit(_store(tmp_path, "s", ["a", "b", "c"]))
    numbered = frame.set_axis([0, 1, 2], axis=1)
    np.testing.assert_array_equal(stored.predict(numbered), stored.predict(frame))


def test_validation_rows_of_another_order_are_refused(tmp_path: Path) -> None:
    frame, other = _frame(), _frame(1)[["c", "b", "a"]]
    store = _store(tmp_path, "s", ["a", "b", "c"])
    wrong_store = _store(tmp_path, "w", ["c", "b", "a"])
    right = (_frame(1), np.zeros(120))
    words = "the training rows have feature 'a' where the validation rows have 'c'"
    for validation in ((other, np.zeros(120)), wrong_store):
        with pytest.raises(DataError, match=words):
            _regressor().fit(frame, frame["a"], validation=validation)
        with pytest.raises(DataError, match=words):
            _regressor().fit(store, validation=validation)
    labels = np.arange(120) % 2
    with pytest.raises(DataError, match=words):
        KernelClassifier(device="cpu").fit(frame, labels, validation=(other, labels))
    _regressor().fit(frame, frame["a"], validation=right)
    _regressor().fit(store, validation=right)
    _regressor().fit(frame.to_numpy(), frame["a"], validation=right)


def test_names_of_an_earlier_fit_are_forgotten(tmp_path: Path) -> None:
    frame = _frame()
    model = _regressor().fit(frame[["c", "b", "a"]], frame["a"])
    model.fit(_store(tmp_path, "s", ["a", "b", "c"]))
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.to_numpy()))
    with pytest.raises(DataError, match=WRONG):
        model.predict(frame[["c", "b", "a"]])


def test_rows_of_a_stream_keep_their_columns(tmp_path: Path) -> None:
    frame, store = _frame(), _store(tmp_path, "s", ["c", "b", "a"])
    model = KernelRegressor("gaussian:2", basis=daskkern.Landmarks(20), device="cpu").partial_fit(frame, frame["a"])
    with pytest.raises(DataError, match="a"):
        model.partial_fit(store)


def test_a_text_column_that_the_training_rows_lack_is_named_as_such() -> None:
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 2)), columns=["a", "b"])
    model = KernelRegressor("gaussian:1", device="cpu").fit(X, X["a"])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- town"):
        model.predict(X.assign(town="Rome"))


@pytest.mark.parametrize("columns", [["c", "b", "a"], ["c", "b", "z"]])
def test_dask_frames_of_other_columns_are_refused(columns: list[str]) -> None:
    frame = _frame()
    model, features = _regressor().fit(frame, frame["a"]), KernelFeatures("gaussian:1", 10).fit(frame)
    lazy = dd.from_pandas(frame, npartitions=2)
    np.testing.assert_allclose(model.predict(lazy).compute(), model.predict(frame), rtol=1e-6)
    np.testing.assert_allclose(features.transform(lazy).compute(), features.transform(frame), rtol=1e-6)
    other = dd.from_pandas(frame.assign(z=0.0)[columns], npartitions=2)
    with pytest.raises(DataError, match=WRONG):
        model.predict(other)
    with pytest.raises(DataError, match=WRONG):
        KernelPCA(2, "gaussian:1").fit(frame).transform(other)
    with pytest.raises(DataError, match="X has"):
        features.transform(other)


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatch])
def test_arrow_tables_of_another_order_are_refused(kind: type, tmp_path: Path) -> None:
    frame = _frame()
    model, other = _regressor().fit(frame, frame["a"]), kind.from_pandas(frame[["c", "b", "a"]])
    model.save(tmp_path / "m")
    labels = np.arange(120) % 2
    with pytest.raises(DataError, match=WRONG):
        daskkern.load(tmp_path / "m").predict(other)
    with pytest.raises(DataError, match=WRONG):
        KernelRegressor.from_model(tmp_path / "m").score(other, labels)
    with pytest.raises(DataError, match=WRONG):
        daskkern.permutation_importance(model, other, labels)
    with pytest.raises(DataError, match="where the validation rows have 'c'"):
        KernelClassifier(device="cpu").fit(frame, labels, validation=(other, labels))
    for estimator in (model, KernelPCA(2, "gaussian:1").fit(frame), KernelFeatures("gaussian:1", 10).fit(frame)):
        with pytest.raises(ValueError, match="same order"):
            getattr(estimator, "transform", model.predict)(other)


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatch])
def test_fits_to_arrow_tables_know_the_columns_and_give_what_frames_give(kind: type) -> None:
    frame = _frame()
    arrow = kind.from_pandas(frame)
    for estimator in (_regressor(), KernelPCA(2, "gaussian:1"), KernelFeatures("gaussian:1", 10)):
        of_frame = estimator.fit(frame, frame["a"])
        method = "transform" if hasattr(estimator, "transform") else "predict"
        expected = getattr(of_frame, method)(frame)
        found = estimator.fit(arrow, frame["a"])
        assert list(found.feature_names_in_) == ["a", "b", "c"]
        np.testing.assert_array_equal(getattr(found, method)(arrow), expected)


def _interrupt(event: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("columns", [["c", "b", "a"], ["a", "b"]])
@pytest.mark.parametrize(
    ("estimator", "broken", "error"),
    [
        (_regressor(), {"alpha": -1}, SpecError),
        (_regressor(), {"callbacks": [_interrupt]}, KeyboardInterrupt),
        (KernelClassifier(device="cpu", max_epochs=2), {"alpha": -1}, SpecError),
        (KernelPCA(2, "gaussian:1"), {"n_components": 9999}, SpecError),
        (KernelFeatures("gaussian:1", 10), {"kernel": "none"}, SpecError),
        (KernelFeatures("gaussian:1", 10), {"basis": Landmarks(points=np.zeros((3, 9)))}, DataError),
    ],
)
def test_a_refit_that_fails_leaves_the_model_its_columns(
    columns: list[str], estimator: Any, broken: dict[str, object], error: type[BaseException]
) -> None:
    frame, model = _frame(), clone(estimator)
    labels = np.arange(120) % 2
    model.fit(frame, labels)
    method = "transform" if hasattr(model, "transform") else "predict"
    expected = getattr(model, method)(frame)
    with pytest.raises(error):
        model.set_params(**broken).fit(frame[columns], labels + 1)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    np.testing.assert_array_equal(getattr(model, method)(frame), expected)
    with pytest.raises(ValueError, match="feature names"):
        getattr(model, method)(frame[columns])


def test_a_call_of_partial_fit_that_fails_changes_nothing() -> None:
    frame, labels = _frame(), np.arange(120) % 2
    model = KernelClassifier("gaussian:2", basis=Landmarks(20), device="cpu").partial_fit(frame, labels)
    before = dict(vars(model))
    with pytest.raises(DataError, match="not among the classes"):
        model.partial_fit(frame, labels + 5)
    assert vars(model) == before
