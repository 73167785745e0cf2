"""Features are gathered under the columns of the table that they were made of."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern import AllRows, KernelRegressor
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.errors import DataError, SpecError
from daskkern.estimators.frame_codes import encoded
from daskkern.inspection import TableColumns, columns_of, permutation_importance, score_gradients

ENCODING = (
    ColumnEncoding("age"),
    ColumnEncoding("colour", "onehot", ("blue", "green")),
    ColumnEncoding("size", "ordinal", ("s", "m", "l")),
)


def test_one_hot_features_are_one_column(make) -> None:
    found = columns_of(make(4, encoding=ENCODING, feature_names=("age", "colour=blue", "colour=green", "size")))
    assert found.names == ("age", "colour", "size")
    assert [found.features(k).tolist() for k in range(3)] == [[0], [1, 2], [3]]


def test_features_without_an_encoding_are_columns(make) -> None:
    assert columns_of(make(3)).names == ("feature 0", "feature 1", "feature 2")
    assert columns_of(make(3, feature_names=("a", "b", "c"))).names == ("a", "b", "c")


def test_groups_take_the_place_of_the_encoding(make) -> None:
    model = make(4, encoding=ENCODING, feature_names=tuple("abcd"))
    found = columns_of(model, {"ends": [3, 0], "b": [2]})
    assert found.names == ("ends", "b", "b")  # a group of the name of another feature remains apart
    assert found.owner.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("groups", [{"a": [4]}, {"a": [-1]}, {"a": [0, 0]}, {"a": [1], "b": [1]}, {"a": [True]}])
def test_groups_of_other_features_are_refused(make, groups: dict[str, list[int]]) -> None:
    with pytest.raises(SpecError, match=r"in the group '.'; expected numbers from 0 to 3, each in one group"):
        columns_of(make(4), groups)


@pytest.mark.parametrize("chosen", ["hue", 3, -1, True])
def test_other_columns_are_refused(make, chosen: object) -> None:
    columns = columns_of(make(4, encoding=ENCODING))
    assert columns.numbers(["size", 0]) == [2, 0]
    assert columns.numbers(None) == [0, 1, 2]
    with pytest.raises(SpecError, match=r"expected one of age, colour, size, or a number below 3"):
        columns.numbers([chosen])


@given(owner=st.lists(st.integers(0, 4), min_size=1, max_size=9), seed=st.integers(0, 9))
def test_sums_over_columns_keep_the_total(owner: list[int], seed: int) -> None:
    columns = TableColumns(tuple("abcde"), np.array(owner))
    values = np.random.default_rng(seed).standard_normal((len(owner), len(owner)))
    expected = np.zeros((5, 5))
    for i, j in np.ndindex(values.shape):
        expected[owner[i], owner[j]] += values[i, j]
    np.testing.assert_allclose(columns.sum(values), expected, atol=1e-12)
    np.testing.assert_allclose(columns.sum(values[0]), np.bincount(owner, values[0], minlength=5), atol=1e-12)


@pytest.mark.parametrize("kind", ["object", "category"])
def test_frames_are_encoded_as_the_training_rows_were(kind: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "k": rng.choice(["x", "y"], 200)}).astype({"k": kind})
    frame.loc[::9, "a"] = np.nan
    y = frame["a"].fillna(frame["a"].mean()) + (frame["k"] == "x")
    kernel = "gaussian:1" if kind == "object" else "laplacian_l1:2"  # whose kink rounding moves rows across
    model = KernelRegressor(kernel, basis=AllRows(), solver="direct", device="cpu").fit(frame, y)
    features = encoded(frame, model.model_.encoding)
    found, expected = (permutation_importance(model, X, y, n_repeats=2) for X in (frame, features))
    assert found["columns"] == ("a", "k")
    np.testing.assert_allclose(found["importances"], expected["importances"], rtol=1e-5, atol=1e-6)
    if kind == "object":
        slopes = score_gradients(model, features)
        np.testing.assert_allclose(score_gradients(model, frame), slopes, rtol=1e-4, atol=1e-4)
    with pytest.raises(DataError, match=r"predict_table, which encodes it|expected a table"):
        model.model_.predict(frame)
