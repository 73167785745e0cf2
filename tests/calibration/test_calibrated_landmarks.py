"""Calibration of exact fits whose landmarks are training rows."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from daskkern import KernelClassifier, KernelRegressor, Landmarks


def test_rows_that_are_landmarks_do_not_count_where_others_are_enough() -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:900], order[900:]
    model = KernelClassifier(solver="direct", loss="squared", basis=Landmarks(600), random_state=0)
    whole = KernelClassifier(solver="direct", loss="squared", random_state=0)
    losses = [log_loss(y[test], m.fit(X[train], y[train]).predict_proba(X[test])) for m in (model, whole)]
    assert losses[0] < 1.5 * losses[1]
    assert model.model_.calibration.n_rows == 300


def test_intervals_are_no_wider_than_needed() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2300, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.05 * rng.standard_normal(2300)
    model = KernelRegressor(
        solver="direct", basis=Landmarks(500), alpha=1e-10, kernel="gaussian:median", random_state=0
    )
    low, high = model.fit(X[:800], y[:800]).predict_interval(X[800:], confidence=0.9).T
    assert 0.85 < np.mean((low <= y[800:]) & (y[800:] <= high)) < 0.95
