"""Ridge regression on landmarks for all penalties, against the solution of the normal equations."""

import numpy as np

from daskkern.feature_learning.ridge import SHARES, RidgePath
from daskkern.kernels import Laplacian

RNG = np.random.default_rng(0)
X, y = RNG.standard_normal((60, 3)), RNG.standard_normal((60, 2))
W = RNG.uniform(0.5, 2, 60)
W /= W.sum()
KERNEL = Laplacian(2.0)


def test_coefficients_solve_the_normal_equations() -> None:
    Z = X[:15]
    path = RidgePath.of(KERNEL, Z, X, y, W)
    C, K = KERNEL.block(X, Z), KERNEL.block(Z, Z.copy())
    for share in (1e-6, 1e-3, 0.1):
        alpha = share * float(path.values[-1])
        expected = np.linalg.solve(C.T @ (W[:, None] * C) + alpha * K, C.T @ (W[:, None] * y))
        np.testing.assert_allclose(path.coefficients(share), expected, rtol=1e-4, atol=1e-6)


def test_errors_are_those_of_the_scores() -> None:
    path = RidgePath.of(KERNEL, X[:15], X, y, W)
    other, truth = RNG.standard_normal((7, 3)), RNG.standard_normal((7, 2))
    errors = path.squared_errors(other, truth)
    assert errors.shape == (len(SHARES), 7)
    for k in (0, 8, 18):
        scores = KERNEL.matvec(other, X[:15], path.coefficients(float(SHARES[k])))
        np.testing.assert_allclose(errors[k], ((scores - truth) ** 2).sum(axis=1), rtol=1e-8)


def test_repeated_landmarks_are_no_error() -> None:
    Z = np.concatenate([X[:10], X[:10]])
    once, twice = (RidgePath.of(KERNEL, points, X, y, W) for points in (X[:10], Z))
    np.testing.assert_allclose(twice.squared_errors(X, y)[6:], once.squared_errors(X, y)[6:], rtol=1e-3)
