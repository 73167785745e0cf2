"""ROC and precision-recall curves against scikit-learn's; the worst rows against a sort of all rows."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

import daskkern
from daskkern import KernelClassifier, KernelRegressor, Landmarks, plot
from daskkern.errors import DataError
from daskkern.evaluation.plot_data import observe
from daskkern.evaluation.ranking_curves import ranking_curve


def _counts(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, where = np.unique(scores, return_inverse=True)
    negatives, positives = (np.bincount(where[positive == sign], minlength=len(values)) for sign in (False, True))
    return negatives, positives


@pytest.mark.parametrize("n_rows", [40, 5_000])
def test_curves_are_those_of_scikit_learn(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    positive = rng.random(n_rows) < 0.3
    scores = np.round(rng.standard_normal(n_rows) + positive, 2 if n_rows < 100 else 6)  # with ties
    found = ranking_curve(*_counts(scores, positive))
    assert found is not None
    false, true, _ = roc_curve(positive, scores, drop_intermediate=False)
    precision, recall, _ = precision_recall_curve(positive, scores)
    np.testing.assert_allclose(found.area, roc_auc_score(positive, scores), rtol=1e-12)
    np.testing.assert_allclose(found.average_precision, average_precision_score(positive, scores), rtol=1e-12)
    assert found.prevalence == positive.mean()
    points = set(zip(np.round(false, 9), np.round(true, 9), strict=True))
    assert set(zip(np.round(found.false_positive_rate, 9), np.round(found.recall, 9), strict=True)) <= points
    pairs = set(zip(np.round(precision, 9), np.round(recall, 9), strict=True))
    assert set(zip(np.round(found.precision, 9), np.round(found.recall, 9), strict=True)) <= pairs
    assert (len(found.recall) == len(true)) if n_rows < 100 else (200 < len(found.recall) <= 258)
    assert (found.recall[0], found.recall[-1], found.false_positive_rate[-1]) == (0, 1, 1)


def test_rows_of_one_kind_have_no_curve() -> None:
    assert ranking_curve(np.array([1, 2]), np.array([0, 0])) is None


@pytest.fixture(scope="module")
def tumours() -> tuple[KernelClassifier, np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    model = KernelClassifier("gaussian:8", basis=Landmarks(40), loss="logistic", max_epochs=3, device="cpu")
    names = np.array(["malignant", "benign"])[y]
    return model.fit(X[::2], names[::2]), X[1::2], names[1::2]


def test_the_curve_of_two_classes_is_that_of_the_second(
    tumours: tuple[KernelClassifier, np.ndarray, np.ndarray],
) -> None:
    model, X, y = tumours
    score = observe(model.model_, X, y).score
    assert score.curves is not None
    (curve,) = score.curves
    assert curve is not None
    p = model.predict_proba(X)[:, 1]
    np.testing.assert_allclose(curve.area, roc_auc_score(y == model.classes_[1], p), atol=1e-4)
    np.testing.assert_allclose(curve.area, score.roc_auc, atol=1e-12)
    assert "curves" not in score.as_dict()
    axes = plot.roc_curve(model, X, y, axes=Figure().subplots())
    assert axes.get_legend().get_texts()[1].get_text() == f"malignant: area {curve.area:.3f}"
    axes = plot.precision_recall(model, X, y, axes=Figure().subplots())
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), curve.precision)


def test_the_worst_rows_of_a_classifier(tumours: tuple[KernelClassifier, np.ndarray, np.ndarray]) -> None:
    model, X, y = tumours
    worst = observe(model.model_, X, y).worst
    p = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    predicted = model.predict(X)
    wrong = [int(row) for row in np.argsort(p, kind="stable") if predicted[row] != y[row]][:10]
    assert [row.row for row in worst] == wrong
    assert [(row.truth, row.predicted) for row in worst] == [(y[row], predicted[row]) for row in wrong]
    np.testing.assert_allclose([row.measure for row in worst], p[wrong], rtol=1e-5)


@pytest.mark.parametrize("loss", ["squared_hinge", "squared"])
def test_without_probabilities_the_margin_decides(loss: str) -> None:
    X, y = load_iris(return_X_y=True)
    model = KernelClassifier(
        "gaussian:1", basis=Landmarks(20), loss=loss, max_epochs=2, calibrate=False, device="cpu"
    ).fit(X[::2], y[::2])
    worst = observe(model.model_, X, y).worst
    scores = model.decision_function(X)
    margins = scores[np.arange(len(y)), y] - scores.max(axis=1)
    wrong = [int(row) for row in np.argsort(margins, kind="stable") if margins[row] < 0][:10]
    assert worst
    assert [row.row for row in worst] == wrong


def test_the_worst_rows_of_a_store_are_counted_over_its_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = load_diabetes(return_X_y=True)
    model = KernelRegressor("gaussian:median", basis=Landmarks(30), max_epochs=2, device="cpu").fit(X, y)
    rows = rng.integers(0, len(X), 9_000)  # more than two blocks
    targets = y[rows] + rng.standard_normal(9_000)
    np.savez(tmp_path / "rows.npz", X=X[rows], y=targets)
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr", scale="none")
    worst = observe(model.model_, tmp_path / "rows.zarr").worst
    errors = np.abs(model.predict(X[rows].astype(np.float32)) - targets.astype(np.float32))
    assert [row.row for row in worst] == np.argsort(-errors, kind="stable")[:10].tolist()
    np.testing.assert_allclose([row.measure for row in worst], np.sort(errors)[::-1][:10], rtol=1e-4)


def test_a_regressor_has_no_ranking() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = KernelRegressor("gaussian:median", basis=Landmarks(20), max_epochs=1, device="cpu").fit(X, y)
    for draw in (plot.roc_curve, plot.precision_recall):
        with pytest.raises(DataError, match="ranks no classes"):
            draw(model, X, y, axes=Figure().subplots())
