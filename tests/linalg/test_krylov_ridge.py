"""Errors by Lanczos steps are those of ridge regression solved exactly."""

import numpy as np
import pytest

from daskkern.kernels import Gaussian, Laplacian
from daskkern.linalg.krylov_ridge import halves_errors


def _grams(kernel: Laplacian | Gaussian, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    half = len(X) // 2
    K = kernel.block(X, kernel.points(X, kernel.placement_for(X))).astype(np.float32)
    return K[:half, :half], K[half:, half:], K[half:, :half]


def _solved(K: np.ndarray, y: np.ndarray, weight: np.ndarray, shift: float) -> float:
    """Return the sums of squares of each half, predicted from the other by a linear solve."""
    half, total = len(K) // 2, 0.0
    first, second = np.arange(half), np.arange(half, len(K))
    for fitted, held in ((first, second), (second, first)):
        mean = weight[fitted] @ y[fitted] / weight[fitted].sum()
        system = weight[fitted, None] * K[np.ix_(fitted, fitted)] + shift * np.eye(len(fitted))
        a = np.linalg.solve(system, weight[fitted, None] * (y[fitted] - mean))
        total += float(weight[held] @ ((y[held] - mean - K[np.ix_(held, fitted)] @ a) ** 2).sum(axis=1))
    return total


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [Laplacian(2.0), Gaussian(1.0)])
def test_errors_are_those_of_linear_systems(kernel: Laplacian | Gaussian, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((301, 3))
    y = np.column_stack([np.sin(X[:, 0]) + rng.standard_normal(301), X[:, 1] + 5.0])
    weight = rng.integers(0, 4, 301).astype(float) if weighted else np.ones(301)
    shifts = np.array([0.1, 1.0, 30.0])
    found = halves_errors(_grams(kernel, X), y, weight if weighted else None, shifts)
    K = kernel.block(X, kernel.points(X, kernel.placement_for(X)))
    np.testing.assert_allclose(found, [_solved(K, y, weight, shift) for shift in shifts], rtol=2e-3)


def test_repeated_rows_and_constant_targets_end_the_steps_early() -> None:
    X = np.repeat(np.eye(3), 40, axis=0)[np.random.default_rng(1).permutation(120)]
    grams = _grams(Laplacian(1.0), X)
    y = X @ np.array([[1.0], [2.0], [4.0]])
    errors = halves_errors(grams, y, None, np.array([1e-3, 1e3]))
    assert errors[0] < 1e-6 < errors[1]
    assert (halves_errors(grams, np.ones((120, 1)), None, np.array([1.0])) == 0).all()
