"""AdaGrad: its first steps by hand, its L1 penalty beside scikit-learn's, and what rare features gain by it."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LogisticRegression

from daskkern import KernelClassifier, KernelRegressor, Linear
from daskkern.errors import SpecError
from daskkern.solvers import SGD, AdaGrad


def _regression(n: int = 400, d: int = 30) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    weights = np.zeros(d)
    weights[:5] = [3.0, -2.0, 1.5, -1.0, 0.5]
    y = X @ weights + 0.1 * rng.standard_normal(n)
    return X, (y - y.mean()) / y.std()  # targets are fitted in units of their deviation


def _regressor(solver: AdaGrad | SGD, epochs: int, batch_size: int = 400, **more: Any) -> KernelRegressor:
    return KernelRegressor(
        "linear", "squared", Linear(intercept=False), solver, more.pop("alpha", 0.0), max_epochs=epochs,
        batch_size=batch_size, dtype="float64", fit_intercept=False, scale=None, **more,
    )  # fmt: skip


def test_the_first_steps_are_those_of_the_formula() -> None:
    X, y = _regression()
    alpha, l1, w, squares, length = 0.1, 0.05, np.zeros(30), np.zeros(30), 0.0
    for step in range(3):
        g = X.T @ (X @ w - y) / 400 + alpha * w
        squares += g**2
        if not step:  # the length is read off the first change; soft thresholds are the same everywhere
            first = _regressor(AdaGrad(l1=l1), 1, alpha=alpha).fit(X, y).dual_coef_.ravel()
            moved = np.abs(first) > 0
            ratios = np.abs(first[moved]) / (1 - l1 / np.abs(g[moved]))
            length = float(np.median(ratios))
            np.testing.assert_allclose(ratios, length, rtol=1e-9)
        h = length / np.sqrt(squares)
        w = w - h * g
        w = np.sign(w) * np.maximum(np.abs(w) - h * l1, 0)
    found = _regressor(AdaGrad(l1=l1), 3, alpha=alpha).fit(X, y).dual_coef_.ravel()
    np.testing.assert_allclose(found, w, rtol=1e-9, atol=1e-12)


def test_the_first_change_is_as_long_as_that_of_plain_steps() -> None:
    X, y = _regression()
    lengths = [
        np.linalg.norm(_regressor(solver, 1).fit(X, y).dual_coef_)
        for solver in (AdaGrad(), SGD("constant", averaging=0.0))
    ]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-9)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batch_size", [400, 50])
def test_it_finds_the_lasso(batch_size: int) -> None:
    X, y = _regression()
    wanted = Lasso(alpha=0.05, fit_intercept=False, tol=1e-12).fit(X, y).coef_
    found = _regressor(AdaGrad(l1=0.05), 1000, batch_size).fit(X, y).dual_coef_.ravel()
    np.testing.assert_allclose(found, wanted, atol=1e-6 if batch_size == 400 else 5e-3)
    if batch_size == 400:
        np.testing.assert_array_equal(found == 0, wanted == 0)
        assert 0 < np.count_nonzero(found) < 10


@pytest.mark.repeated
def test_it_finds_the_sparse_logistic_model() -> None:
    X, y = _regression()
    labels = (y > 0).astype(int)
    peer = LogisticRegression(l1_ratio=1, C=1 / (400 * 0.05), solver="liblinear", fit_intercept=False, tol=1e-10)
    wanted = peer.fit(X, labels).coef_.ravel()
    ours = KernelClassifier(
        "linear", "logistic", Linear(intercept=False), AdaGrad(l1=0.05), 0.0, 1500, 400, dtype="float64", scale=None,
        fit_intercept=False,
    ).fit(X, labels)  # fmt: skip
    found = ours.decision_function(np.eye(30)).ravel()
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.count_nonzero(found) < 10


@pytest.mark.long
def test_rare_features_are_learnt_sooner_than_by_plain_steps() -> None:
    rng = np.random.default_rng(1)
    rates = np.geomspace(0.5, 0.005, 20)
    X = (rng.random((4000, 20)) < rates).astype(float)
    y = X.sum(axis=1)
    errors = [
        np.abs(_regressor(solver, 5, batch_size=20).fit(X, y).predict(np.eye(20)) - 1)[-5:].mean()
        for solver in (AdaGrad(), SGD(averaging=0.0))
    ]
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"theta": 0.0}, "theta=0.0"), ({"l1": -1.0}, "l1=-1.0"), ({"averaging": 2.0}, "averaging=2.0")],
)
def test_settings_without_a_meaning_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        AdaGrad(**changes)
