"""Columns of frames and stores keep their names: rows whose columns come in another order are refused."""

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import daskkern
from daskkern import KernelClassifier, KernelFeatures, KernelPCA, KernelRegressor
from daskkern.errors import DataError

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
