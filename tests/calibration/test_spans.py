"""Leave-one-out scores of support vectors against machines that were fitted without each row."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.svm import SVC, SVR

from daskkern import AllRows, KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.calibration.spans import span_moves
from daskkern.kernels import Gaussian
from daskkern.solvers import SVM

KERNEL, GAMMA = Gaussian(2.0), 1 / 8


def _rows(n: int, seed: int = 0) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("with_offset", [True, False])
def test_spans_are_distances_from_combinations_of_free_rows(with_offset: bool) -> None:
    X, _ = _rows(30)
    K, free = KERNEL.block(X, X), np.arange(30) % 3 > 0
    moves = span_moves(K, np.ones(30), free, with_offset)
    for i in range(30):
        others = np.flatnonzero(free & (np.arange(30) != i))
        A, right = K[np.ix_(others, others)], K[others, i]
        if with_offset:  # factors that add up to 1
            A = np.block([[A, np.ones((others.size, 1))], [np.ones((1, others.size)), np.zeros((1, 1))]])
            right = np.append(right, 1.0)
        factors = np.linalg.solve(A, right)[: others.size]
        expected = K[i, i] - 2 * factors @ K[others, i] + factors @ K[np.ix_(others, others)] @ factors
        assert moves[i] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_scores_are_about_those_of_machines_without_the_row(C: float) -> None:
    X, y = _rows(120)
    machine = SVC(C=C, gamma=GAMMA, tol=1e-8).fit(X, y)
    coef = np.zeros(len(y))
    coef[machine.support_] = machine.dual_coef_[0]
    support = machine.support_
    free = np.abs(coef[support]) < C * (1 - 1e-6)
    found = machine.decision_function(X)
    found[support] -= span_moves(KERNEL.block(X[support], X[support]), coef[support], free, True)
    true = np.empty(len(y))
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        true[i] = SVC(C=C, gamma=GAMMA, tol=1e-8).fit(X[kept], y[kept]).decision_function(X[i : i + 1])[0]
    assert np.median(np.abs(found - true)) < 0.05 * true.std()
    assert np.corrcoef(found, true)[0, 1] > 0.95


@pytest.mark.parametrize(("n", "length_scale", "weighted"), [(400, 2.0, False), (400, 2.0, True), (2500, 3.0, False)])
def test_probabilities_are_nearly_those_that_other_rows_give(n: int, length_scale: float, weighted: bool) -> None:
    """By a bound of the second derivative in place of spans the log loss was up to 12% above theirs."""
    X, y = _noisy(n, 0)
    new, labels = _noisy(3000, 1)
    weight = np.random.default_rng(2).uniform(0.5, 2, n) if weighted else None
    model = KernelClassifier(Gaussian(length_scale), "hinge", AllRows(), SVM(), 1 / (100 * n), scale=None, device="cpu")
    model.fit(X, y, sample_weight=weight)
    other, other_labels = _noisy(3000, 2)
    scaling = LogisticRegression(C=1e6).fit(model.decision_function(other)[:, None], other_labels)
    best = log_loss(labels, scaling.predict_proba(model.decision_function(new)[:, None])[:, 1])
    assert log_loss(labels, model.predict_proba(new)[:, 1]) < 1.04 * best


def _noisy(n: int, seed: int) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    return X, (X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("others", [{"solver": SVM(nu=0.4), "alpha": 0.0}, {"fit_intercept": False}])
def test_machines_with_nu_and_without_an_offset_have_probabilities(others: dict[str, Any]) -> None:
    X, y = _rows(300)
    new, labels = _rows(3000, seed=1)
    model = KernelClassifier(KERNEL, "hinge", AllRows(), SVM(), 1 / 3000, scale=None, device="cpu")
    model.set_params(**others).fit(X, y)
    assert log_loss(labels, model.predict_proba(new)[:, 1]) < 0.62


def test_intervals_of_regression_cover_their_share() -> None:
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(300, 4)), rng.normal(size=(4000, 4))
    y, true = (np.sin(2 * rows[:, 0]) + 0.3 * rng.normal(size=len(rows)) for rows in (X, new))
    model = KernelRegressor(KERNEL, "epsilon_insensitive:0.1", AllRows(), SVM(), 1 / 3000, device="cpu").fit(X, y)
    low, high = np.moveaxis(model.predict_interval(new, 0.9), -1, 0)
    assert ((true >= low.ravel()) & (true <= high.ravel())).mean() == pytest.approx(0.9, abs=0.04)
    assert model.score(new, true) > SVR(C=10, gamma=GAMMA).fit(X, y).score(new, true) - 0.1
