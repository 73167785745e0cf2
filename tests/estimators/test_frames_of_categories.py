"""Data frames with columns of categories: codes that the model records, for later frames too."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import daskkern
from daskkern import AllRows, KernelClassifier, KernelRegressor
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
