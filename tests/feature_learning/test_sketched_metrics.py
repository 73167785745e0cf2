"""Low-rank metrics from products with a few directions, against those of the whole matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import FloatArray
from daskkern.feature_learning import Candidate, FeatureLearning, TrainingSample, learn_kernel
from daskkern.feature_learning.gradients import gradient_outer_product
from daskkern.feature_learning.metric import (
    MOST_SQUARE,
    directions_for,
    factor_of,
    factor_of_sketch,
    range_of,
    rank_for,
)
from daskkern.kernels import Gaussian, Laplacian

D = 40


def _matrix(values: FloatArray, seed: int = 0) -> FloatArray:
    U = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    found: FloatArray = (U * values) @ U.T
    return found


def _sketch(M: FloatArray, Q: FloatArray) -> FloatArray:
    return np.column_stack([M @ Q, np.diag(M)])


def test_products_with_directions_are_those_of_the_whole_matrix() -> None:
    rng = np.random.default_rng(0)
    X, Z, A = rng.standard_normal((700, 6)), rng.standard_normal((20, 6)), rng.standard_normal((20, 2))
    w, Q = rng.uniform(0, 2, 700), rng.standard_normal((6, 3))
    M = gradient_outer_product(Laplacian(2.0), X, Z, A, w, diagonal=False)
    found = gradient_outer_product(Laplacian(2.0), X, Z, A, w, diagonal=False, directions=Q)
    np.testing.assert_allclose(found, _sketch(M, Q), rtol=1e-9, atol=1e-12)


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(0, 1000))
def test_a_matrix_of_few_directions_is_found_exactly(k: int, seed: int) -> None:
    M = _matrix(np.r_[np.random.default_rng(seed).uniform(0.1, 1, k), np.zeros(D - k)], seed)
    Q = directions_for(D, k, seed)
    assert Q.shape == (D, min(D, k + 16))
    F, expected = factor_of_sketch(_sketch(M, Q), Q, k), factor_of(M, k)
    np.testing.assert_allclose(F @ F.T, expected @ expected.T, atol=1e-8 * D)
    assert F.shape == (D, k)


def test_the_leading_directions_of_any_matrix_are_those_of_its_eigenvectors() -> None:
    M = _matrix(np.exp(-np.arange(D) / 4.0))
    Q = range_of(_sketch(M, directions_for(D, 6, 0)))
    F, expected = factor_of_sketch(_sketch(M, Q), Q, 6), factor_of(M, 6)
    np.testing.assert_allclose(F @ F.T, expected @ expected.T, atol=1e-3 * np.abs(expected @ expected.T).max())
    assert (np.diff((F**2).sum(axis=0)) > 0).all()  # ascending, as those of factor_of


def test_known_directions_are_among_those_of_a_sketch() -> None:
    known = factor_of(_matrix(np.exp(-np.arange(D) / 2.0)), 5)
    Q = directions_for(D, 5, 0, known)
    np.testing.assert_allclose(Q @ (Q.T @ known), known, atol=1e-10)


def test_a_gradient_of_zeros_leaves_some_features() -> None:
    Q = directions_for(D, 3, 0)
    np.testing.assert_array_equal(factor_of_sketch(np.zeros((D, Q.shape[1] + 1)), Q, 3), np.eye(D, 3))


@pytest.mark.parametrize(
    ("d", "rank", "expected"),
    [(10, None, 10), (2048, None, 256), (20_000, None, 26), (10**6, None, 8), (10**6, 40, 40)],
)
def test_the_rank_falls_with_the_features_unless_it_is_given(d: int, rank: int | None, expected: int) -> None:
    assert rank_for(d, rank) == expected


def test_directions_of_wide_rows_are_learned() -> None:
    d = MOST_SQUARE + 52
    rng = np.random.default_rng(0)
    along = rng.standard_normal((d, 2)) / d**0.5
    X = rng.standard_normal((500, 20)) @ (rng.standard_normal((20, d)) / 20**0.5)
    y = np.tanh(3 * X @ along[:, :1]) + 0.5 * (X @ along[:, 1:])
    learning = FeatureLearning("full", rank=4, n_landmarks=200, n_iter=2)
    found = learn_kernel(
        [Candidate(Gaussian("median").resolve(X), 1.0, False)], TrainingSample(X, y, None), learning, 0
    )
    assert found.factor is not None
    assert found.factor.shape == (d, 4)
    assert found.after < 0.9 * found.before
    assert found.pending is not None
    assert found.pending.product.directions is not None
    assert found.pending.product.directions.shape == (d, 20)
