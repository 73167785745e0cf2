"""Arrays as users have them: few rows that weigh something, masks, repeated sparse entries, extreme targets."""

import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge

import daskkern
from daskkern import KernelClassifier, KernelDensity, KernelFeatures, KernelPCA, KernelRegressor, Landmarks
from daskkern.errors import DataError

RNG = np.random.default_rng


@pytest.mark.parametrize("basis", ["auto", Landmarks(50)])
def test_few_rows_that_weigh_something_are_fitted(basis: str | Landmarks) -> None:
    X = RNG(0).standard_normal((600, 4))
    y, weight = np.sin(X[:, 0]), np.zeros(600)
    weight[[10, 300, 500]] = 1.0
    model = KernelRegressor("laplacian:3", basis=basis, alpha=1e-3, scale=None, max_epochs=30, device="cpu")
    assert np.isfinite(model.fit(X, y, sample_weight=weight).predict(X)).all()
    label = KernelClassifier(basis=basis, device="cpu").fit(X, y > 0, sample_weight=np.where(weight > 0, 1.0, 0.0))
    assert np.isfinite(label.decision_function(X)).all()


def test_sparse_rows_with_repeated_entries_are_those_with_the_sums() -> None:
    rng = RNG(4)
    dense = np.where(rng.random((300, 20)) < 0.2, rng.standard_normal((300, 20)), 0)
    once = scipy.sparse.csr_array(dense)
    twice = scipy.sparse.csr_array(
        (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), once.indptr * 2), shape=once.shape
    )
    y = dense[:, :5].sum(axis=1) + dense[:, 0] ** 2
    model = KernelRegressor("gaussian:median", random_state=0, device="cpu").fit(once, y)
    assert any(model.model_.scaling.bend)
    np.testing.assert_array_equal(model.predict(twice), model.predict(once))
    assert twice.nnz == 2 * once.nnz  # the user's rows stay as they are


@pytest.mark.parametrize("size", [1e-200, 1e150, 1e300])
def test_targets_whose_squares_are_lost_are_refused(size: float) -> None:
    X = RNG(0).standard_normal((50, 2))
    with pytest.raises(DataError, match="multiply the targets by a power of ten"):
        KernelRegressor(device="cpu").fit(X, X[:, 0] * size)


@pytest.mark.parametrize("size", [1e-100, 1e100])
def test_other_targets_are_fitted_whatever_their_unit(size: float) -> None:
    X = RNG(0).standard_normal((200, 2))
    model = KernelRegressor("gaussian:1", alpha=1e-3, solver="direct", scale=None, dtype="float64", device="cpu")
    ridge = KernelRidge(kernel="rbf", gamma=0.5, alpha=1e-3 * 200).fit(X, X[:, 0] - X[:, 0].mean())
    expected = ridge.predict(X) + X[:, 0].mean()
    np.testing.assert_allclose(model.fit(X, X[:, 0] * size).predict(X) / size, expected, rtol=1e-5, atol=1e-6)


def test_masked_entries_are_refused() -> None:
    X = RNG(0).standard_normal((50, 3))
    y = X[:, 0].copy()
    masked = np.ma.masked_greater(X, 2.0)
    for estimator, target in ((KernelRegressor(device="cpu"), y), (KernelClassifier(device="cpu"), y > 0)):
        with pytest.raises(DataError, match=r"X has \d+ masked entries; fill them in"):
            estimator.fit(masked, target)
        estimator.fit(np.ma.array(X), target)  # without a mask it is an array
        with pytest.raises(DataError, match="masked entries"):
            estimator.predict(masked)
    with pytest.raises(DataError, match="y has 1 masked entries"):
        KernelRegressor(device="cpu").fit(X, np.ma.masked_equal(y, y[3]))


def _masked(array: np.ndarray) -> np.ma.MaskedArray:
    """Return the array with a masked entry, whose value no fit should see."""
    found = np.ma.array(array.astype(float), copy=True)
    found[7] = -9999.0
    return np.ma.masked_equal(found, -9999.0)


def _chunked(array: np.ma.MaskedArray) -> da.Array:
    """Return a dask array whose chunks are masked, which it does not announce."""
    return da.from_delayed(dask.delayed(lambda: array)(), array.shape, array.dtype, meta=np.empty((0,) * array.ndim))


X = RNG(0).standard_normal((60, 3))
Y, ONES = X[:, 0].copy(), np.ones(60)
LABELS = (Y > 0).astype(int)
LAZY = da.from_array(X, chunks=(30, 3))


def _new(kind: type = KernelRegressor) -> Any:
    return kind("gaussian:2", max_epochs=1, device="cpu")


MASKED: dict[str, Callable[[], object]] = {
    "weight of a fit": lambda: _new().fit(X, Y, _masked(ONES)),
    "weight of partial_fit": lambda: _new().set_params(basis=Landmarks(9)).partial_fit(X, Y, _masked(ONES)),
    "weight of a lazy fit": lambda: _new().fit(LAZY, Y, _masked(ONES)),
    "weight of a density": lambda: KernelDensity().fit(X, sample_weight=_masked(ONES)),
    "weight of a score": lambda: _new().fit(X, Y).score(X, Y, _masked(ONES)),
    "weight of accuracy": lambda: _new(KernelClassifier).fit(X, LABELS).score(X, LABELS, _masked(ONES)),
    "targets of a lazy fit": lambda: _new().fit(LAZY, _masked(Y)),
    "labels of a lazy fit": lambda: _new(KernelClassifier).fit(LAZY, _masked(LABELS)),
    "targets of a score": lambda: _new().fit(X, Y).score(X, _masked(Y)),
    "targets of a lazy score": lambda: _new().fit(X, Y).score(LAZY, _masked(Y)),
    "labels of a score": lambda: _new(KernelClassifier).fit(X, LABELS).score(X, _masked(LABELS)),
    "validation rows": lambda: _new().fit(X, Y, validation=(_masked(X), Y)),
    "lazy validation rows": lambda: _new().fit(X, Y, validation=(_chunked(_masked(X)), Y)),
    "validation targets": lambda: _new().fit(X, Y, validation=(X, _masked(Y))),
    "validation labels": lambda: _new(KernelClassifier).fit(X, LABELS, validation=(X, _masked(LABELS))),
    "rows of features": lambda: KernelFeatures("gaussian:2", 8).fit(_masked(X)),
    "rows of a transform": lambda: KernelFeatures("gaussian:2", 8).fit(X).transform(_masked(X)),
    "chunks of a transform": lambda: KernelFeatures("gaussian:2", 8).fit(X).transform(_chunked(_masked(X))).compute(),
    "rows of a model": lambda: _new().fit(X, Y).model_.predict(_masked(X)),
    "rows of an importance": lambda: daskkern.permutation_importance(_new().fit(X, Y), _masked(X), Y),
    "chunks of an importance": lambda: daskkern.permutation_importance(_new().fit(X, Y), _chunked(_masked(X)), Y),
    "targets of an importance": lambda: daskkern.permutation_importance(_new().fit(X, Y), X, _masked(Y)),
    "chunks of targets of an importance": lambda: daskkern.permutation_importance(
        _new().fit(X, Y), LAZY, _chunked(_masked(Y))
    ),
    "rows of gradients": lambda: daskkern.score_gradients(_new().fit(X, Y), _masked(X)),
    "chunks of a fit": lambda: _new().fit(_chunked(_masked(X)), Y),
    "chunks of targets": lambda: _new().fit(LAZY, _chunked(_masked(Y))),
    "chunks of labels": lambda: _new(KernelClassifier).fit(LAZY, _chunked(_masked(LABELS))),
    "chunks of weights": lambda: _new().fit(LAZY, Y, _chunked(_masked(ONES))),
    "chunks of a prediction": lambda: _new().fit(X, Y).predict(_chunked(_masked(X))).compute(),
    "chunks of components": lambda: KernelPCA(2, "gaussian:2").fit(_chunked(_masked(X))),
}


@pytest.mark.parametrize("call", MASKED.values(), ids=MASKED)
def test_masked_entries_are_refused_wherever_they_are(call: Callable[[], object]) -> None:
    with pytest.raises(DataError, match="masked entries; fill them in"):
        call()


def _frame() -> pd.DataFrame:
    return pd.DataFrame(RNG(8).standard_normal((40, 3)), columns=list("abc"))


def test_columns_without_numbers_are_named() -> None:
    frame, y = _frame(), np.arange(40) % 2
    fitted = KernelClassifier(device="cpu", max_epochs=2).fit(frame.assign(w=0.0), y)
    durations = frame.assign(w=pd.to_timedelta(np.arange(40), unit="s"))
    with pytest.raises(DataError, match=r"column 'w' of X holds duration\[.*\] values; convert it to numbers or texts"):
        KernelClassifier(device="cpu").fit(durations, y)
    with pytest.raises(DataError, match="column 'w' of X holds dates or durations"):
        fitted.predict(durations)
    with pytest.raises(DataError, match=r"column 'w' of X holds text such as 'x'.*, encode it as numbers"):
        fitted.predict(frame.assign(w=["x", "y"] * 20))


def test_columns_of_objects_that_are_numbers_are_taken() -> None:
    frame, y = _frame(), np.arange(40) % 2
    model, other = (KernelClassifier(device="cpu", max_epochs=2).fit(rows, y) for rows in (frame, frame.astype(object)))
    np.testing.assert_array_equal(model.decision_function(frame), other.decision_function(frame.astype(object)))


def test_a_column_name_that_occurs_twice_is_refused() -> None:
    frame = _frame()
    frame.columns = ["a", "b", "a"]
    with pytest.raises(DataError, match="X has more than one column 'a'"):
        KernelRegressor(device="cpu").fit(frame, np.arange(40.0))


@pytest.mark.parametrize("gap", [None, pd.NA, float("nan"), pd.NaT])
def test_missing_labels_are_counted(gap: object) -> None:
    y = [gap if i % 9 == 3 else "a" if i % 2 else "b" for i in range(40)]
    with pytest.raises(DataError, match=r"y has no value in 5 of 40 rows, the first of which is row 3"):
        KernelClassifier(device="cpu").fit(_frame(), y)


@pytest.mark.parametrize("gap", [pd.NA, pd.NaT])
def test_missing_values_among_objects_are_named(gap: object) -> None:
    frame = _frame().astype(object)
    frame.iloc[5, 1] = gap
    with pytest.raises(DataError, match="X has no value in row 5, column 1; remove or fill such rows"):
        KernelRegressor(device="cpu").fit(frame.to_numpy(), np.arange(40.0))


@pytest.mark.parametrize("kind", [list, lambda y: np.array(y, dtype=object), lambda y: pd.Series(y, dtype=object)])
def test_labels_that_are_partly_text_are_refused(kind: Callable[[list[object]], object]) -> None:
    y = kind(["b" if i % 2 else 1 for i in range(40)])
    with pytest.raises(DataError, match="y holds text such as 'b' and 1; make all of them text, or all numbers"):
        KernelClassifier(device="cpu").fit(_frame(), y)


@pytest.mark.parametrize("dtype", ["boolean", "Int64"])
def test_labels_of_a_frame_with_nullable_dtypes_keep_their_names(dtype: str) -> None:
    labels = pd.array(LABELS > 0, dtype="boolean").astype(dtype)
    expected = np.asarray(LABELS, bool if dtype == "boolean" else np.int64)
    for given in (pd.DataFrame({"y": labels}), pd.Series(labels)):
        model = KernelClassifier("gaussian:2", max_epochs=1, device="cpu").fit(X, np.asarray(given).ravel())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A column-vector y")
            found = _new(KernelClassifier).fit(X, given)
        assert found.classes_.dtype == expected.dtype
        np.testing.assert_array_equal(found.predict(X), model.predict(X).astype(expected.dtype))


@pytest.mark.parametrize(
    ("rows", "targets"),
    [
        (X, Y[:, None]),
        (X.astype(object), Y),
        (pd.DataFrame(X).astype("Float64"), Y),
        (pd.DataFrame(X).astype(object), Y.astype(object)),
        (X.tolist(), Y.tolist()),
    ],
)
def test_validation_rows_are_taken_as_those_of_a_fit(rows: Any, targets: Any) -> None:
    expected = _new().fit(X, Y, validation=(X, Y)).history_["validation_loss"]
    np.testing.assert_array_equal(_new().fit(X, Y, validation=(rows, targets)).history_["validation_loss"], expected)
    labels = pd.DataFrame({"y": pd.array(LABELS, dtype="Int64")})
    _new(KernelClassifier).fit(X, LABELS, validation=(rows, labels))
    _new(KernelClassifier).fit(X, LABELS, validation=(rows, LABELS[:, None]))


@pytest.mark.parametrize(
    ("rows", "targets", "words"),
    [
        (X[:0], Y[:0], "got 0 validation rows; give one at least"),
        (X, None, "got validation rows without targets"),
        (X, ["low"] * 60, "got 'low' among the targets; a regressor needs numbers"),
        (np.full((60, 3), "low", object), Y, r"got validation rows of shape \(60, 3\) and object; expected a table"),
        (pd.DataFrame(X).astype("Float64").mask(lambda frame: frame > 2), Y, "X has NaN"),
    ],
)
def test_validation_rows_that_are_none_are_refused(rows: Any, targets: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        _new().fit(X, Y, validation=(rows, targets))


def test_partial_fit_takes_a_single_row_after_the_first_call() -> None:
    model = _new().set_params(basis=Landmarks(40)).partial_fit(X, Y)
    before = model.predict(X)
    assert not np.array_equal(model.partial_fit(X[:1], Y[:1] + 1).predict(X), before)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        clone(model).partial_fit(X[:1], Y[:1])


def test_sparse_targets_are_refused_in_a_sentence() -> None:
    for kind, y in ((KernelRegressor, Y), (KernelRegressor, np.column_stack([Y, Y]))):
        with pytest.raises(DataError, match=r"got targets as a sparse matrix of shape .*; give a dense array"):
            _new(kind).fit(X, scipy.sparse.csr_array(y.reshape(60, -1)))
    labels = np.column_stack([LABELS, 1 - LABELS])
    expected = _new(KernelClassifier).fit(LAZY, labels).predict(X)
    np.testing.assert_array_equal(_new(KernelClassifier).fit(LAZY, scipy.sparse.csr_array(labels)).predict(X), expected)
