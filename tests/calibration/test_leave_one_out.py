"""Approximate leave-one-out scores, against fits without each row."""

import numpy as np
import pytest

from daskkern import KernelRegressor
from daskkern.calibration.leave_one_out import (
    TrainingScores,
    effective_alpha,
    leave_one_out_scores,
    left_out_variance,
    most_rows,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 3))
Y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2]], axis=1) + 0.3 * RNG.standard_normal((80, 2))
K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 2)


def _ridge(K: np.ndarray, y: np.ndarray, w: np.ndarray, alpha: float, n: int) -> np.ndarray:
    return np.linalg.solve(K + n * alpha * np.diag(1 / w), y)


def _refitted(alpha: float, w: np.ndarray, K: np.ndarray = K) -> np.ndarray:
    n, scores = len(K), np.empty_like(Y)
    for i in range(n):
        rest = np.arange(n) != i
        scores[i] = K[i, rest] @ _ridge(K[np.ix_(rest, rest)], Y[rest], w[rest], alpha, n)
    return scores


def _rows(alpha: float, w: np.ndarray, *, centres: bool, K: np.ndarray = K) -> TrainingScores:
    a = _ridge(K, Y, w, alpha, len(K))
    f = K @ a
    norm = float((a * f).sum())
    return TrainingScores(K, f, w[:, None] * (f - Y), np.ones_like(f), w, norm, a if centres else None, len(K))


@pytest.mark.parametrize("centres", [True, False])
@pytest.mark.parametrize("alpha", [1e-1, 1e-3, 1e-6])
def test_they_are_exact_for_ridge_regression(alpha: float, centres: bool) -> None:
    for w in (np.ones(80), RNG.uniform(0.3, 2, 80)):
        rows = _rows(alpha, w, centres=centres)
        assert effective_alpha(rows.scores, rows.slopes, rows.squared_norm, 1.0) == pytest.approx(alpha, rel=1e-4)
        if not centres and alpha < 1e-4:
            continue  # the leverage of interpolated rows is bounded
        found = leave_one_out_scores(rows, alpha, 1.0)
        np.testing.assert_allclose(found, _refitted(alpha, w), atol=2e-4 * np.abs(Y).max())


def test_features_of_fewer_dimensions_than_rows_are_exact_without_a_penalty() -> None:
    phi = RNG.standard_normal((80, 10))
    f = phi @ np.linalg.lstsq(phi, Y, rcond=None)[0]
    rows = TrainingScores(phi @ phi.T, f, f - Y, np.ones_like(f), np.ones(80), None, None, 80)
    exact = np.empty_like(Y)
    for i in range(80):
        rest = np.arange(80) != i
        exact[i] = phi[i] @ np.linalg.lstsq(phi[rest], Y[rest], rcond=None)[0]
    np.testing.assert_allclose(leave_one_out_scores(rows, 0.0, 1.0), exact, atol=1e-3)


def test_a_sample_of_the_rows_is_extrapolated() -> None:
    grid = RNG.uniform(-3, 3, (1200, 2))
    gram = np.exp(-((grid[:, None] - grid[None]) ** 2).sum(axis=2) / 2)
    y = np.sin(grid[:, :1]) + 0.5 * RNG.standard_normal((1200, 1))
    w, alpha = np.ones(1200), 1e-3
    a = _ridge(gram, y, w, alpha, 1200)
    f, norm = gram @ a, float((a * (gram @ a)).sum())
    whole = leave_one_out_scores(TrainingScores(gram, f, f - y, np.ones_like(f), w, norm, a, 1200), alpha, 1.0)
    part = slice(0, 300)
    some = TrainingScores(gram[part, part], f[part], (f - y)[part], np.ones((300, 1)), w[part], norm, a[part], 1200)
    found = leave_one_out_scores(some, alpha, 1.0)
    moved, estimated = np.abs(whole - f)[part].mean(), np.abs(found - f[part]).mean()
    assert estimated == pytest.approx(moved, rel=0.35)
    assert np.abs(found - whole[part]).mean() < 0.5 * moved


def test_rows_of_weight_0_do_not_move() -> None:
    w = np.where(np.arange(80) < 5, 0.0, 1.0)
    a = np.zeros((80, 2))
    a[5:] = _ridge(K[5:, 5:], Y[5:], w[5:], 1e-2, 80)
    f = K @ a
    rows = TrainingScores(K, f, w[:, None] * (f - Y), np.ones_like(f), w, float((a * f).sum()), a, 80)
    found = leave_one_out_scores(rows, 1e-2, 1.0)
    np.testing.assert_array_equal(found[:5], f[:5])
    rest = np.arange(80) >= 6
    np.testing.assert_allclose(
        found[5], K[5, rest] @ _ridge(K[np.ix_(rest, rest)], Y[rest], w[rest], 1e-2, 80), atol=1e-4
    )


def test_equal_rows_and_a_singular_kernel_have_finite_scores() -> None:
    ones = np.ones((30, 30))
    assert np.isfinite(left_out_variance(ones, np.full(30, 1e-12))).all()
    assert most_rows(1) == 2000
    assert most_rows(10) < 1000


@pytest.mark.parametrize("size", [1e-8, 1e-6, 1e-4])
def test_rounding_of_the_kernel_values_costs_little(size: float) -> None:
    """A Gram matrix of rank 3 whose values were rounded is not positive definite."""
    gram = X @ X.T
    rounded = gram + size * np.trace(gram) / len(gram) * RNG.standard_normal(gram.shape)
    rounded = (rounded + rounded.T) / 2
    assert np.linalg.eigvalsh(rounded)[0] < 0
    found = left_out_variance(rounded, np.full(len(X), 1e-12))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found.max() <= np.diag(rounded).max()


@pytest.mark.parametrize(
    ("dtype", "n", "noise"),
    [("float64", 300, 0.0), ("float64", 200, 1e-3), ("float32", 30, 0.3), ("float32", 200, 0.0)],
)
def test_intervals_of_exact_solutions_cover(dtype: str, n: int, noise: float) -> None:
    """Slopes of fits that interpolate their rows are small differences; intervals made of them covered 0 to 55%."""
    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, new = rng.normal(size=(n, 4)), rng.normal(size=(1000, 4))
        y, truth = (np.sin(2 * Z[:, 0]) + Z[:, 1] + noise * rng.normal(size=len(Z)) for Z in (X, new))
        model = KernelRegressor(dtype=dtype).fit(X, y)
        assert model.model_.provenance["settings"]["solver"]["name"] == "direct"
        low, high = model.predict_interval(new, confidence=0.9).T
        covered.append(float(np.mean((low <= truth) & (truth <= high))))
    assert 0.8 < np.mean(covered) < 0.97, covered
