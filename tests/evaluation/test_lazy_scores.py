"""Scores of dask arrays are those of scikit-learn on arrays; what arrays refuse is refused here as well."""

from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.delayed import delayed
from sklearn.metrics import accuracy_score, r2_score

from daskkern import KernelClassifier, KernelRegressor
from daskkern.errors import DataError
from daskkern.evaluation.lazy_scores import lazy_accuracy, lazy_r2

RNG = np.random.default_rng(0)
Y = RNG.standard_normal((40, 3))
Y[:, 1] = 7.0
P = Y + [0.3, 0.0, 1.0] * RNG.standard_normal((40, 3))
WEIGHT = RNG.random(40)
LABELS = np.array(["a", "b", "c"])[RNG.integers(3, size=40)]


def _lazy(array: Any) -> da.Array:
    return da.from_array(np.asarray(array), chunks=(16, *np.shape(array)[1:]))


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("lazy", [True, False])
def test_r2_is_that_of_arrays(weight: Any, lazy: bool) -> None:
    for y, p in ((Y, P), (Y[:, 0], P[:, 0]), (Y[:, :1], P[:, 0]), (Y[:, 1], P[:, 1])):
        found = lazy_r2(_lazy(p), _lazy(y) if lazy else y, weight)
        assert found == pytest.approx(r2_score(y, p, sample_weight=weight), rel=1e-9)


@pytest.mark.parametrize("value", [0.1, -1e9 / 3, 0.0])
def test_r2_of_targets_that_are_all_the_same_is_1_or_0(value: float) -> None:
    y = np.full(40, value)
    assert lazy_r2(_lazy(y), y, WEIGHT) == 1
    assert lazy_r2(_lazy(y + P[:, 0]), y, WEIGHT) == 0
    spread = y + max(1e-12, 1e-12 * abs(value)) * Y[:, 0]
    assert lazy_r2(_lazy(spread), spread, WEIGHT) == 1
    assert lazy_r2(_lazy(np.full(40, spread.mean())), spread) == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_accuracy_is_that_of_arrays(weight: Any) -> None:
    guess = np.where(WEIGHT > 0.4, LABELS, "a")
    for y in (LABELS, _lazy(LABELS), LABELS[:, None], LABELS.tolist()):
        found = lazy_accuracy(_lazy(guess), y, weight)
        assert found == pytest.approx(accuracy_score(LABELS, guess, sample_weight=weight), rel=1e-12)


@pytest.mark.parametrize(
    ("y", "weight", "words"),
    [
        (Y[:30, 0], None, r"got y of shape \(30,\) for predictions of shape \(40,\)"),
        (Y, None, r"got y of shape \(40, 3\) for predictions of shape \(40,\)"),
        (np.where(WEIGHT > 0.5, np.nan, Y[:, 0]), None, "y holds NaN"),
        (Y[:, 0], WEIGHT[:9], r"got sample_weight of shape \(9,\) for 40 rows"),
    ],
)
def test_targets_of_another_shape_and_missing_ones_are_refused(y: Any, weight: Any, words: str) -> None:
    for score in (lazy_r2, lazy_accuracy):
        with pytest.raises(DataError, match=words):
            score(_lazy(P[:, 0]), y, weight)


@pytest.mark.parametrize(("weight", "words"), [(0 * WEIGHT, "0"), (np.where(WEIGHT > 0.5, np.nan, WEIGHT), "nan")])
def test_weights_that_arrays_refuse_are_refused(weight: Any, words: str) -> None:
    for score, y in ((lazy_r2, P[:, 0]), (lazy_accuracy, LABELS)):
        with pytest.raises(DataError, match=f"sample_weight adds up to {words}; "):
            score(_lazy(y), y, _lazy(weight))


def test_labels_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match="y holds numbers; expected labels that are text"):
        lazy_accuracy(_lazy(LABELS), np.arange(40))
    with pytest.raises(DataError, match="y holds text; expected labels that are numbers"):
        lazy_accuracy(_lazy(np.arange(40)), LABELS)


def test_estimators_score_dask_arrays_as_arrays() -> None:
    X = RNG.standard_normal((120, 3))
    model = KernelRegressor("gaussian:2", device="cpu").fit(X, X[:, 0])
    rows = da.from_array(X, chunks=(50, 3))
    assert model.score(rows, X[:, :1]) == pytest.approx(model.score(X, X[:, 0]), rel=1e-9)
    labelled = KernelClassifier("gaussian:2", device="cpu").fit(X, X[:, 0] > 0)
    assert labelled.score(rows, X[:, 0] > 0) == pytest.approx(labelled.score(X, X[:, 0] > 0))


def _rows_of(mask: np.ndarray, array: Any) -> da.Array:
    """Return rows of an array as a dask array of unknown length."""
    return _lazy(array)[_lazy(mask)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kinds", [(True, True), (True, False), (False, True)])
def test_arrays_of_unknown_length_are_scored(kinds: tuple[bool, bool], weighted: bool) -> None:
    mask = WEIGHT > 0.3
    for y, p in ((Y[:, 0], P[:, 0]), (Y, P)):
        found, true = (
            _rows_of(mask, a) if unknown else _lazy(a[mask]) for unknown, a in zip(kinds, (p, y), strict=True)
        )
        weights = (None, None) if not weighted else (WEIGHT[mask], _rows_of(mask, WEIGHT))
        for weight in weights:
            expected = r2_score(y[mask], p[mask], sample_weight=WEIGHT[mask] if weighted else None)
            assert lazy_r2(found, true if kinds[1] else y[mask], weight) == pytest.approx(expected, rel=1e-9)
    guess = np.where(WEIGHT > 0.4, LABELS, "a")
    assert lazy_accuracy(_rows_of(mask, guess), LABELS[mask]) == pytest.approx(np.mean((guess == LABELS)[mask]))
    with pytest.raises(DataError, match=r"got y of shape \(40,\) for predictions of shape"):
        lazy_accuracy(_rows_of(mask, guess), _rows_of(mask | True, LABELS))


@pytest.mark.parametrize("name", ["y", "sample_weight"])
@pytest.mark.parametrize("score", [lazy_r2, lazy_accuracy])
def test_masked_chunks_that_dask_does_not_know_of_are_refused(name: str, score: Any) -> None:
    values = np.arange(6.0) + 1

    def masked() -> Any:
        return np.ma.MaskedArray(values, mask=values == 3)

    hidden = da.from_delayed(delayed(masked)(), (6,), meta=np.empty(0))
    plain = da.from_array(values, chunks=3)
    given = {"y": plain, "sample_weight": plain} | {name: hidden}
    with pytest.raises(DataError, match=f"a chunk of {name} has 1 masked entries"):
        score(plain, given["y"], given["sample_weight"])


def test_labels_that_are_objects_are_scored() -> None:
    guess = np.where(WEIGHT > 0.4, LABELS, "a")
    for y in (LABELS.astype(object), _lazy(LABELS.astype(object).astype("U1")).astype(object)):
        assert lazy_accuracy(_lazy(guess), y) == pytest.approx(accuracy_score(LABELS, guess))
    with pytest.raises(DataError, match="y holds text; expected labels that are numbers"):
        lazy_accuracy(_lazy(np.arange(40)), LABELS.astype(object))
    numbers = np.arange(40) % 3
    assert lazy_accuracy(_lazy(numbers), numbers.astype(object)) == 1.0


def test_estimators_score_rows_of_unknown_length() -> None:
    X = RNG.standard_normal((200, 2))
    model = KernelRegressor("gaussian:2", device="cpu").fit(X, np.sin(X[:, 0]))
    mask = X[:, 1] > 0
    expected = model.score(X[mask], np.sin(X[mask, 0]))
    rows = _rows_of(mask, X)
    for y in (da.sin(rows[:, 0]), np.sin(X[mask, 0])):
        assert model.score(rows, y) == pytest.approx(expected, rel=1e-6)
