"""Every figure of a score, counted block by block, against scikit-learn on all rows at once."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, roc_auc_score
from sklearn.preprocessing import minmax_scale

from daskkern import KernelClassifier
from daskkern.arrays import HostArray
from daskkern.basis import Landmarks
from daskkern.evaluation.metrics import MetricAccumulator, Score
from daskkern.evaluation.rankings import Ranking, mean_area
from daskkern.kernels import Gaussian


def _fitted(loss: str, n_classes: int) -> tuple[KernelClassifier, HostArray, HostArray]:
    X, y = load_breast_cancer(return_X_y=True) if n_classes == 2 else load_digits(return_X_y=True)
    X = minmax_scale(X)
    train = len(X) // 2
    model = KernelClassifier(Gaussian(1.0), loss=loss, basis=Landmarks(100), max_epochs=2, device="cpu")
    return model.fit(X[:train], y[:train]), X[train:], y[train:]


def _score(model: KernelClassifier, X: HostArray, y: HostArray, step: int = 100) -> Score:
    accumulator = MetricAccumulator(model.model_, tuple(range(len(model.classes_))))
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        accumulator.add(model.model_.scores(model.model_.check(X[part])), y[part])
    return accumulator.result()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("loss", "n_classes"),
    [
        ("logistic", 2),
        ("squared_hinge", 2),
        ("multinomial_logistic", 2),
        ("multinomial_logistic", 10),
        ("logistic", 10),
    ],
)
def test_every_figure_is_scikit_learns(loss: str, n_classes: int) -> None:
    model, X, y = _fitted(loss, n_classes)
    score = _score(model, X, y)
    assert score.accuracy == pytest.approx(model.score(X, y))
    assert np.array_equal(score.confusion, confusion_matrix(y, model.predict(X)))
    p = model.predict_proba(X).astype(np.float64)
    p /= p.sum(axis=1, keepdims=True)  # float32 sums to 1 within rounding, which scikit-learn minds
    area = roc_auc_score(y, p[:, 1]) if n_classes == 2 else roc_auc_score(y, p, multi_class="ovr")
    assert score.roc_auc == pytest.approx(area, abs=1e-6)
    assert score.log_loss == pytest.approx(log_loss(y, p), rel=1e-5)
    assert score.brier == pytest.approx(brier_score_loss(y, p[:, 1] if n_classes == 2 else p), rel=1e-5)
    assert score.calibration is not None
    assert sum(part.n_rows for part in score.calibration) == len(y)
    right = sum(part.n_rows * part.accuracy for part in score.calibration)
    assert right == pytest.approx((p.argmax(axis=1) == y).sum())
    assert all(part.lower <= part.confidence <= part.upper for part in score.calibration)
    gaps = [part.n_rows * abs(part.confidence - part.accuracy) for part in score.calibration]
    assert score.calibration_error == pytest.approx(sum(gaps) / len(y))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.booleans()), min_size=2, max_size=60),
    st.integers(1, 60),
)
@example([(0.0, False), (-0.0, True)], 1)
def test_the_area_does_not_depend_on_the_blocks(rows: list[tuple[float, bool]], step: int) -> None:
    scores = np.round(np.array([[score] for score, _ in rows], np.float32), 1)
    positive = np.array([[sign] for _, sign in rows])
    ranking = Ranking(1)
    for start in range(0, len(rows), step):
        ranking.add(scores[start : start + step], positive[start : start + step])
    area = mean_area(ranking.curves())
    if positive.all() or not positive.any():
        assert area is None
        return
    assert area == pytest.approx(roc_auc_score(positive[:, 0], scores[:, 0]), abs=1e-9)


@pytest.mark.parametrize("order", ["random", "rising", "falling"])
def test_more_scores_than_are_kept_cost_little(order: str) -> None:
    rng = np.random.default_rng(0)
    positive = rng.random(40_000) < 0.3
    scores = 0.99 + 1e-4 * (rng.standard_normal(40_000) + positive)  # as probabilities that crowd below 1
    at = np.argsort(scores) if order == "rising" else np.argsort(-scores) if order == "falling" else np.arange(40_000)
    scores, positive = scores[at].astype(np.float32), positive[at]
    ranking = Ranking(1, most_scores=1024)
    for start in range(0, len(scores), 999):
        ranking.add(scores[start : start + 999, None], positive[start : start + 999, None])
    assert mean_area(ranking.curves()) == pytest.approx(roc_auc_score(positive, scores), abs=1e-3)


def test_labels_that_the_model_does_not_know_are_told_apart() -> None:
    model, X, y = _fitted("logistic", 10)
    accumulator = MetricAccumulator(model.model_, (*range(9), "ten"))  # code 9 is another label in these rows
    accumulator.add(model.model_.scores(X), y)
    score = accumulator.result()
    assert score.unknown == (y == 9).sum()
    assert np.sum(score.confusion) == (y != 9).sum()
    assert score.n_rows == len(y)
    assert score.accuracy == pytest.approx((model.predict(X[y != 9]) == y[y != 9]).sum() / len(y))


def test_a_score_is_json() -> None:
    model, X, y = _fitted("logistic", 2)
    read = json.loads(json.dumps(_score(model, X, y).as_dict()))
    assert {"n_rows", "accuracy", "error", "roc_auc", "confusion", "calibration", "log_loss"} <= read.keys()
    assert read["classes"] == [0, 1]
