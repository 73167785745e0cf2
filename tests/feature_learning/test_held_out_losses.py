"""Losses of held-out rows, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from daskkern.feature_learning.held_out import row_losses

RNG = np.random.default_rng(0)
WEIGHT = RNG.uniform(0.5, 2, 50)
WEIGHT /= WEIGHT.sum()


def test_regression_has_squared_errors() -> None:
    scores, y = RNG.standard_normal((2, 50, 3))
    np.testing.assert_allclose(row_losses(scores, y, None, WEIGHT), ((scores - y) ** 2).sum(axis=1))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_classes_have_log_losses_at_the_best_temperature(n_classes: int) -> None:
    labels = RNG.integers(0, n_classes, 50)
    f = np.eye(n_classes)[labels] + 0.6 * RNG.standard_normal((50, n_classes))
    f = f if n_classes > 2 else f[:, 1:] - f[:, :1]
    found = float(row_losses(f, f, labels, WEIGHT) @ WEIGHT)
    whole = f if n_classes > 2 else np.concatenate([-f, f], axis=1)
    trials = []
    for t in np.linspace(0.1, 20, 200):
        p = np.exp(t * whole)
        trials.append(log_loss(labels, p / p.sum(axis=1, keepdims=True), sample_weight=WEIGHT, labels=range(n_classes)))
    assert min(trials) - 1e-9 <= found < 1.02 * min(trials)


def test_it_does_not_depend_on_the_size_of_scores() -> None:
    labels = RNG.integers(0, 3, 50)
    f = np.eye(3)[labels] + 0.6 * RNG.standard_normal((50, 3))
    np.testing.assert_allclose(row_losses(f, f, labels, WEIGHT), row_losses(f / 16, f, labels, WEIGHT), rtol=1e-9)


def test_scores_without_information_have_the_loss_of_guesses() -> None:
    labels = RNG.integers(0, 3, 50)
    assert row_losses(np.zeros((50, 3)), np.zeros((50, 3)), labels, WEIGHT) == pytest.approx(np.full(50, np.log(3)))
