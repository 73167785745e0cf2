"""The intercept of classifiers, which the penalty does not shrink."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskkern
from daskkern import KernelClassifier
from daskkern.basis import Landmarks

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 3))
RARE = np.where(np.arange(300) < 30, "rare", "usual")
SETTINGS: dict[str, Any] = {"kernel": "gaussian:2", "device": "cpu", "dtype": "float64", "max_epochs": 5}


def _fitted(y: np.ndarray, **changes: Any) -> KernelClassifier:
    return KernelClassifier(**{**SETTINGS, **changes}).fit(X, y)


@pytest.mark.long
def test_a_penalty_that_leaves_nothing_else_leaves_the_shares_of_the_classes() -> None:
    logistic = _fitted(RARE, loss="logistic", alpha=1e6)
    np.testing.assert_allclose(logistic.predict_proba(X), np.tile([0.1, 0.9], (300, 1)), atol=1e-3)
    three = np.array(["a", "b", "c"])[np.repeat([0, 1, 2], [60, 90, 150])]
    joint = _fitted(three, loss="multinomial_logistic", alpha=1e6)
    np.testing.assert_allclose(joint.predict_proba(X), np.tile([0.2, 0.3, 0.5], (300, 1)), atol=1e-3)
    for loss in ("squared", "squared_hinge"):
        np.testing.assert_allclose(_fitted(RARE, loss=loss, alpha=1e6).decision_function(X), 0.8, atol=1e-3)
    assert abs(_fitted(RARE, alpha=1e6, fit_intercept=False).decision_function(X)).max() < 1e-3
    even = _fitted(RARE, loss="logistic", alpha=1e6, class_weight="balanced", calibrate=False)
    np.testing.assert_allclose(even.predict_proba(X), 0.5, atol=1e-3)
    calibrated = _fitted(RARE, loss="logistic", alpha=1e6, class_weight="balanced")
    np.testing.assert_allclose(calibrated.predict_proba(X), np.tile([0.1, 0.9], (300, 1)), atol=0.02)


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("solver", ["eigenpro", "direct", "falkon", "pcg", "sdca", "sgd"])
def test_least_squares_are_those_of_centred_codes(solver: str) -> None:
    y = (X[:, 0] + 0.3 * RNG.standard_normal(300) > 1).astype(int)
    basis = Landmarks(300) if solver == "falkon" else daskkern.AllRows()
    settings: dict[str, Any] = {"loss": "squared", "solver": solver, "alpha": 1e-2, "basis": basis, "max_epochs": 60}
    found = _fitted(y, **settings).decision_function(X)
    codes = 2.0 * y - 1
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 8)
    exact = codes.mean() + K @ np.linalg.solve(K + 1e-2 * 300 * np.eye(300), codes - codes.mean())
    np.testing.assert_allclose(found, exact, atol=0.05 if solver in ("sgd", "sdca", "eigenpro") else 1e-3)


def test_it_is_saved_and_goes_on_with_other_rows(tmp_path: Path) -> None:
    model = KernelClassifier(**{**SETTINGS, "basis": Landmarks(50)}, loss="logistic")
    model.partial_fit(X, RARE)
    constant = model.model_.target_shift
    assert constant is not None
    np.testing.assert_allclose(constant, np.log(0.9 / 0.1), rtol=1e-6)
    model.partial_fit(X[:100], RARE[:100])
    np.testing.assert_array_equal(model.model_.target_shift, constant)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(daskkern.load(tmp_path / "m").predict_proba(X), model.predict_proba(X))
