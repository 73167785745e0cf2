"""Ridge regression on landmarks, against the solution of the normal equations and a search over penalties."""

import numpy as np
import pytest

from daskkern.arrays import FloatArray
from daskkern.feature_learning.ridge import Ridge
from daskkern.kernels import Gaussian, Kernel, Laplacian

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
y = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1) + 0.3 * RNG.standard_normal((60, 2))
W = RNG.uniform(0.5, 2, 60)
W /= W.sum()
KERNEL = Laplacian(2.0)


def test_coefficients_solve_the_normal_equations() -> None:
    Z = X[:15]
    ridge = Ridge.of(KERNEL, Z, X, y, W)
    C, K = KERNEL.block(X, Z), KERNEL.block(Z, Z.copy())
    for alpha in (1e-6, 1e-2, 0.5):
        system = C.T @ (W[:, None] * C) + alpha * K
        expected = np.linalg.solve(system, C.T @ (W[:, None] * y))
        np.testing.assert_allclose(ridge.coefficients(alpha), expected, rtol=1e-4, atol=1e-6)


def test_the_best_penalty_is_that_of_a_search() -> None:
    ridge = Ridge.of(KERNEL, X[:40], X[:40], y[:40], W[:40] / W[:40].sum())
    held, truth, weight = X[40:], y[40:], np.full(20, 1 / 20)
    grid = [start * 10 ** (k / 2) for start in (1e-2,) for k in range(-10, 5)]

    def losses(scores: FloatArray) -> FloatArray:
        return ((scores - truth) ** 2).sum(axis=1)

    errors = [float(losses(ridge.scores(alpha, held)) @ weight) for alpha in grid]
    for start in (1e-2, 1.0):
        alpha, found = ridge.best(held, losses, weight, start)
        assert alpha == pytest.approx(grid[int(np.argmin(errors))])
        assert float(found @ weight) == pytest.approx(min(errors))


def test_repeated_landmarks_are_no_error() -> None:
    Z = np.concatenate([X[:10], X[:10]])
    once, twice = (Ridge.of(KERNEL, points, X, y, W) for points in (X[:10], Z))
    np.testing.assert_allclose(once.scores(1e-2, X), twice.scores(1e-2, X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kernel", [Laplacian(5.0), Gaussian(50.0)], ids=str)
@pytest.mark.parametrize("times", [1, 20])
def test_few_different_rows_have_a_solution_without_a_penalty(kernel: Kernel, times: int) -> None:
    Z = np.repeat(np.random.default_rng(0).integers(0, 3, (30, 2)).astype(float), times, axis=0)
    ridge = Ridge.of(kernel, Z, Z, Z[:, :1], np.full(len(Z), 1 / len(Z)))
    np.testing.assert_allclose(ridge.scores(0.0, Z), Z[:, :1], atol=1e-3)
