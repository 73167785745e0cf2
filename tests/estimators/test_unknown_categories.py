"""Categories of later rows that the training rows lack: refused, or ignored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from daskkern import AllRows, AutoKernelClassifier, KernelClassifier, KernelRegressor
from daskkern.errors import DataError, SpecError

TOWNS = np.array(["Bonn", "Lyon", "Ulm"])
FRAME = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 60), "town": TOWNS[np.arange(60) % 3]})
Y = np.where(FRAME["town"] == "Lyon", 1, 0)
LATER = pd.DataFrame({"x": [0.5, -0.5], "town": ["Rome", "Lyon"]})
FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "dask": lambda frame: dd.from_pandas(frame, npartitions=2),
}


def _fitted(handle_unknown: str = "error", X: Any = FRAME) -> KernelRegressor:
    model = KernelRegressor(
        "gaussian:1", basis=AllRows(), solver="direct", alpha=1e-3, handle_unknown=handle_unknown, device="cpu"
    )
    return model.fit(X, Y.astype(float))


def _by_hand() -> np.ndarray:
    """Predictions where scikit-learn encodes, whose encoder ignores what it does not know."""
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(FRAME[["town"]])
    features, later = (np.column_stack([f["x"], encoder.transform(f[["town"]])]) for f in (FRAME, LATER))
    names = ["x", "a", "b", "c"]
    return _fitted("error", pd.DataFrame(features, columns=names)).predict(pd.DataFrame(later, columns=names))


@pytest.mark.parametrize("form", FORMS)
def test_ignored_categories_have_features_of_zero(form: str) -> None:
    found = _fitted("ignore").predict(FORMS[form](LATER))
    np.testing.assert_allclose(np.asarray(found), _by_hand(), rtol=0, atol=1e-6)


def test_tables_in_files_are_read_alike(tmp_path: Path) -> None:
    LATER.assign(y=[0.0, 1.0]).to_csv(tmp_path / "later.csv", index=False)
    model = _fitted("ignore")
    np.testing.assert_allclose(model.predict(tmp_path / "later.csv"), model.predict(LATER), rtol=0, atol=1e-6)
    with pytest.raises(DataError, match="Rome"):
        _fitted().predict(tmp_path / "later.csv")


@pytest.mark.parametrize("form", FORMS)
def test_others_are_refused_with_what_to_do(form: str) -> None:
    with pytest.raises(
        DataError, match=r"'Rome'.*set handle_unknown='ignore', which sets the features of the column to 0"
    ):
        np.asarray(_fitted().predict(FORMS[form](LATER)))


def test_another_word_is_refused() -> None:
    with pytest.raises(SpecError, match="got handle_unknown='zero'; expected 'error' or 'ignore'"):
        _fitted("zero")


def test_validation_rows_are_encoded_alike() -> None:
    model = KernelClassifier(basis=AllRows(), handle_unknown="ignore", early_stopping=True, device="cpu")
    later = pd.concat([FRAME.iloc[:20], LATER])
    model.fit(FRAME, Y, validation=(later, np.concatenate([Y[:20], [0, 1]])))
    assert model.score(later, np.concatenate([Y[:20], [0, 1]])) > 0.9
    with pytest.raises(DataError, match="Rome"):
        model.set_params(handle_unknown="error").fit(FRAME, Y, validation=(later, np.concatenate([Y[:20], [0, 1]])))


def test_rare_categories_do_not_end_cross_validation() -> None:
    rare = FRAME.assign(town=np.where(np.arange(60) == 7, "Rome", FRAME["town"]))
    model = make_pipeline(KernelClassifier(basis=AllRows(), handle_unknown="ignore", device="cpu"))
    assert cross_val_score(model, rare, Y, cv=3, error_score="raise").mean() > 0.9


def test_searches_pass_it_on() -> None:
    model = AutoKernelClassifier(max_seconds=5, handle_unknown="ignore", device="cpu").fit(FRAME, Y)
    assert model.best_estimator_.handle_unknown == "ignore"
    assert model.predict(LATER)[1] == 1
