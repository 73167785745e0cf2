"""Kernel ridge regression on weighted rows, and the scores that rows get from all others."""

import numpy as np
import pytest

from daskkern.arrays import FloatArray
from daskkern.linalg.leave_one_out import left_out_scores, ridge_coefficients

N, ALPHA = 40, 1e-3


def _problem() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a kernel matrix (n, n), weights (n,) with the sum 1 of which two are 0, and targets (n, 2)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    gram = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    weight = rng.uniform(0.5, 2.0, N)
    weight[[3, 7]] = 0.0
    return gram, weight / weight.sum(), np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)


def test_coefficients_minimise_the_weighted_loss() -> None:
    gram, weight, y = _problem()
    a = ridge_coefficients(gram, weight, y, ALPHA)
    slope = gram @ (weight[:, None] * (gram @ a - y) + ALPHA * a)
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    assert not a[[3, 7]].any()


def test_scores_of_rows_that_are_left_out_are_those_of_fits_without_them() -> None:
    gram, weight, y = _problem()
    found = left_out_scores(gram, weight, y, ALPHA)
    for i in range(N):
        others = np.delete(np.arange(N), i)
        a = ridge_coefficients(gram[np.ix_(others, others)], weight[others], y[others], ALPHA)
        np.testing.assert_allclose(found[i], gram[i, others] @ a, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("function", [ridge_coefficients, left_out_scores])
def test_a_matrix_without_a_factor_gives_zeros(function: object) -> None:
    _, weight, y = _problem()
    assert callable(function)
    assert not function(-np.eye(N), weight, y, ALPHA).any()
