"""Scores of dask arrays are those of scikit-learn on arrays; what arrays refuse is refused here as well."""

from typing import Any

import dask.array as da
import numpy as np
import pytest
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
    for y, p in ((Y, P), (Y[:, 0], P[:, 0]), (Y[:, :1], P[:, 0]), (Y[:, 1], P[:, 1]), (Y[:, 1], P[:, 0])):
        found = lazy_r2(_lazy(p), _lazy(y) if lazy else y, weight)
        assert found == pytest.approx(r2_score(y, p, sample_weight=weight), rel=1e-9)


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
