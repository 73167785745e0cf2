"""Data frames with columns of categories: codes that the model records, for later frames too; and unknown ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import OneHotEncoder

import daskkern
from daskkern import AllRows, AutoKernelClassifier, KernelClassifier, KernelFeatures, KernelRegressor
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.errors import DataError, SpecError
from daskkern.kernels import L1Laplacian

RNG = np.random.default_rng(0)
N = 150
TOWNS = np.array(["Bonn", "Lyon", "Ulm", "Graz"])


def _frame() -> pd.DataFrame:
    towns = pd.Series(TOWNS[np.arange(N) % 4]).astype("category").cat.add_categories(["Rome"])
    size = pd.Series(np.where(np.arange(N) % 7 == 0, None, np.where(np.arange(N) % 2 == 0, "big", "small")))
    return pd.DataFrame({"x": RNG.standard_normal(N), "town": towns, "size": size.astype("category")})


FRAME = _frame()
CODES = np.column_stack([
    FRAME["x"], np.argsort(np.argsort(TOWNS))[np.arange(N) % 4],
    np.where(np.arange(N) % 7 == 0, 1, np.where(np.arange(N) % 2 == 0, 0, 2)),
])  # fmt: skip
Y = np.cos(3.0 * CODES[:, 1]) + CODES[:, 0] + 0.5 * (CODES[:, 2] == 1)


def _regressor(kernel: object = "laplacian_l1:2") -> KernelRegressor:
    return KernelRegressor(kernel, basis=AllRows(), solver="direct", alpha=1e-4, device="cpu")


def test_a_fit_to_a_frame_is_that_to_its_codes(tmp_path: Path) -> None:
    model = _regressor().fit(FRAME, Y)
    assert model.model_.encoding == (
        ColumnEncoding("x"),
        ColumnEncoding("town", "code", ("Bonn", "Graz", "Lyon", "Ulm")),
        ColumnEncoding("size", "code", ("big", "missing", "small"), "missing"),
    )
    by_codes = _regressor(L1Laplacian(2.0, categories=(1, 2))).fit(CODES, Y)
    np.testing.assert_allclose(model.predict(FRAME), by_codes.predict(CODES), rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.predict(FRAME), Y, rtol=0, atol=0.1)
    model.save(tmp_path / "model")
    assert daskkern.load(tmp_path / "model").encoding == model.model_.encoding


def test_later_frames_have_the_codes_of_the_first(tmp_path: Path) -> None:
    model = _regressor().fit(FRAME, Y)
    later = FRAME.iloc[[0, 1, 2, 3]].reset_index(drop=True)
    expected = model.predict(later)
    texts = later.assign(town=later["town"].astype(object), size=later["size"].astype("string"))
    np.testing.assert_array_equal(model.predict(texts), expected)
    unseen = model.predict(later.assign(town=["Rome", "Oslo", None, "Graz"]))
    codes = CODES[:4].copy()
    codes[:3, 1] = 4
    codes[3, 1] = 1
    np.testing.assert_array_equal(unseen, model.predict(pd.DataFrame(codes, columns=["x", "town", "size"])))
    with pytest.raises((DataError, ValueError), match=r"feature|order"):
        model.predict(later[["town", "x", "size"]])


def test_classes_follow_from_categories() -> None:
    labels = np.where(CODES[:, 1] % 2 == 0, "even", "odd")
    model = KernelClassifier(basis=AllRows(), device="cpu").fit(FRAME, labels)
    assert model.model_.kernel.categories == (1, 2)
    assert model.score(FRAME, labels) > 0.97


def test_numbers_of_the_dtype_category_are_numbers() -> None:
    numbers = pd.DataFrame({"x": FRAME["x"], "k": pd.Series(np.arange(N) % 3).astype("category")})
    assert _regressor("gaussian:1").fit(numbers, Y).model_.encoding is None
    with pytest.raises(SpecError, match="the gaussian kernel has no categories"):
        _regressor("gaussian:1").fit(FRAME, Y)
    with pytest.raises(DataError, match="names of columns that are not text"):
        _regressor().fit(FRAME.rename(columns={"x": 3}), Y)


TEXTS = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 60), "town": np.array(["Bonn", "Lyon", "Ulm"])[np.arange(60) % 3]})
IS_LYON = np.where(TEXTS["town"] == "Lyon", 1, 0)
OTHERS = pd.DataFrame({"x": [0.5, -0.5], "town": ["Rome", "Lyon"]})
FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "dask": lambda frame: dd.from_pandas(frame, npartitions=2),
}


def _of_texts(handle_unknown: str = "error", X: Any = TEXTS) -> KernelRegressor:
    model = KernelRegressor(
        "gaussian:1", basis=AllRows(), solver="direct", alpha=1e-3, handle_unknown=handle_unknown, device="cpu"
    )
    return model.fit(X, IS_LYON.astype(float))


def _encoded_by_hand() -> np.ndarray:
    """Predictions where scikit-learn encodes, whose encoder ignores what it does not know."""
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(TEXTS[["town"]])
    features, later = (np.column_stack([f["x"], encoder.transform(f[["town"]])]) for f in (TEXTS, OTHERS))
    names = ["x", "a", "b", "c"]
    return _of_texts("error", pd.DataFrame(features, columns=names)).predict(pd.DataFrame(later, columns=names))


@pytest.mark.parametrize("form", FORMS)
def test_ignored_categories_have_features_of_zero(form: str) -> None:
    found = _of_texts("ignore").predict(FORMS[form](OTHERS))
    np.testing.assert_allclose(np.asarray(found), _encoded_by_hand(), rtol=0, atol=1e-6)


def test_tables_in_files_are_read_alike(tmp_path: Path) -> None:
    OTHERS.assign(y=[0.0, 1.0]).to_csv(tmp_path / "later.csv", index=False)
    model = _of_texts("ignore")
    np.testing.assert_allclose(model.predict(tmp_path / "later.csv"), model.predict(OTHERS), rtol=0, atol=1e-6)
    with pytest.raises(DataError, match="Rome"):
        _of_texts().predict(tmp_path / "later.csv")


@pytest.mark.parametrize("form", FORMS)
def test_others_are_refused_with_what_to_do(form: str) -> None:
    with pytest.raises(
        DataError, match=r"'Rome'.*set handle_unknown='ignore', which sets the features of the column to 0"
    ):
        np.asarray(_of_texts().predict(FORMS[form](OTHERS)))


def test_transformers_have_the_same_choice() -> None:
    with pytest.raises(DataError, match=r"'Rome'.* set handle_unknown='ignore'"):
        KernelFeatures("gaussian:1", 20).fit(TEXTS).transform(OTHERS)
    ignoring = KernelFeatures("gaussian:1", 20, handle_unknown="ignore").fit(TEXTS)
    strict = KernelFeatures("gaussian:1", 20).fit(TEXTS)
    np.testing.assert_array_equal(ignoring.transform(OTHERS)[1], strict.transform(OTHERS.iloc[[1]])[0])


def test_another_word_is_refused() -> None:
    with pytest.raises(SpecError, match="got handle_unknown='zero'; expected 'error' or 'ignore'"):
        _of_texts("zero")
    with pytest.raises(SpecError, match="got handle_unknown=0; expected"):
        KernelClassifier(handle_unknown=0, device="cpu").fit(CODES, CODES[:, 1] > 1)


def test_validation_rows_are_encoded_alike() -> None:
    model = KernelClassifier(basis=AllRows(), handle_unknown="ignore", early_stopping=True, device="cpu")
    later = pd.concat([TEXTS.iloc[:20], OTHERS])
    model.fit(TEXTS, IS_LYON, validation=(later, np.concatenate([IS_LYON[:20], [0, 1]])))
    assert model.score(later, np.concatenate([IS_LYON[:20], [0, 1]])) > 0.9
    with pytest.raises(DataError, match="Rome"):
        model.set_params(handle_unknown="error").fit(
            TEXTS, IS_LYON, validation=(later, np.concatenate([IS_LYON[:20], [0, 1]]))
        )


def test_rare_categories_do_not_end_cross_validation() -> None:
    rare = TEXTS.assign(town=np.where(np.arange(60) == 7, "Rome", TEXTS["town"]))
    model = KernelClassifier(basis=AllRows(), handle_unknown="ignore", device="cpu")
    assert cross_val_score(model, rare, IS_LYON, cv=3, error_score="raise").mean() > 0.9


def test_searches_pass_it_on() -> None:
    model = AutoKernelClassifier(max_seconds=5, handle_unknown="ignore", device="cpu").fit(TEXTS, IS_LYON)
    assert model.best_estimator_.handle_unknown == "ignore"
    assert model.predict(OTHERS)[1] == 1


@pytest.mark.parametrize("later", ["int64", "Int64", "float64", "category", "str"])
def test_digits_are_categories_whatever_later_columns_hold(later: str) -> None:
    zones = np.arange(N) % 5 + 1
    frame = pd.DataFrame({"x": FRAME["x"], "zone": pd.Categorical(zones.astype(str))})
    y = np.array([0.0, 5.0, -3.0, 8.0, 1.0, -7.0])[zones] + FRAME["x"]
    model = _regressor().fit(frame, y)
    expected = model.predict(frame)
    assert np.corrcoef(expected, y)[0, 1] > 0.99
    np.testing.assert_array_equal(model.predict(frame.assign(zone=pd.Series(zones).astype(later))), expected)


@pytest.mark.parametrize("number", [7.0, 0.5, -1.0, np.nan])
def test_numbers_that_are_no_codes_are_refused(number: float) -> None:
    model = _regressor().fit(FRAME.assign(size=FRAME["size"].cat.add_categories("none").fillna("none")), Y)
    later = pd.DataFrame({"x": [0.0], "town": [number], "size": [0]})
    with pytest.raises(DataError, match="column 'town', where the training rows had categories such as 'Bonn'; give a"):
        model.predict(later)
