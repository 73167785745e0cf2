"""Gradients of kernels of inner products, of sums and products, and of random features, against differences."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from daskkern.arrays import FloatArray
from daskkern.errors import SpecError
from daskkern.kernels import (
    ArcCosine,
    CallableKernel,
    Gaussian,
    Kernel,
    L1Laplacian,
    Laplacian,
    LinearKernel,
    NeuralTangent,
    Polynomial,
    PowerLaplacian,
)
from daskkern.kernels.columns.coordinate import Coordinate
from daskkern.kernels.columns.mapped import Mapped
from daskkern.kernels.columns.regenerated_features import Drawn
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.functions.activations import ACTIVATIONS, Neuron

D = 4
X = np.random.default_rng(0).standard_normal((9, D))
Z = np.random.default_rng(1).standard_normal((7, D))
A = np.random.default_rng(2).standard_normal((7, 2))
W = np.random.default_rng(3).uniform(0.5, 2, (9, 7))
KERNELS: list[Kernel] = [
    LinearKernel(),
    Polynomial(3, gamma=0.3),
    Polynomial(1, gamma=2.0, coef0=0.0),
    *(ArcCosine(degree) for degree in (0, 1, 2)),
    *(NeuralTangent(depth) for depth in (1, 3)),
    *(Neuron(name, 7) for name in ACTIVATIONS if name != "step"),
    Gaussian(2.0) + 0.5 * Polynomial(2, gamma=0.2),
    Gaussian(2.0) * LinearKernel(),
    Laplacian(1.0) * Gaussian((1.0, 2, 3, 1)) * ArcCosine(1),
    L1Laplacian(2.0) * Gaussian(1.0) + PowerLaplacian(2.0, 1.5, 0.7),
]


def _differences(kernel: Kernel, X: FloatArray, Z: Any, A: FloatArray, weights: FloatArray | None) -> FloatArray:
    step = 1e-6
    w = 1.0 if weights is None else weights
    moves = [
        ((w * kernel.block(X + step * e, Z)) @ A - (w * kernel.block(X - step * e, Z)) @ A) / (2 * step)
        for e in np.eye(X.shape[1])
    ]
    return np.stack(moves, axis=2)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_they_are_the_limit_of_differences(kernel: Kernel, weights: FloatArray | None) -> None:
    found = kernel.gradient_matvec(X, Z, A, weights)
    expected = _differences(kernel, X, Z, A, weights)
    assert found.shape == (9, 2, D)
    np.testing.assert_allclose(found, expected, atol=3e-8 * max(1.0, np.abs(expected).max()))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_sparse_rows_have_those_of_dense_ones(kernel: Kernel) -> None:
    rows, points = sparse.csr_array(X * (X > 0)), sparse.csr_array(Z * (Z > 0))
    dense = kernel.gradient_matvec(rows.toarray(), points.toarray(), A)
    np.testing.assert_allclose(kernel.gradient_matvec(rows, points, A), dense, rtol=1e-10, atol=1e-12)


def test_pieces_of_points_and_rows_add_up() -> None:
    rng = np.random.default_rng(4)
    rows, points = rng.standard_normal((1500, 3)), rng.standard_normal((4500, 3))
    coef = rng.standard_normal((4500, 1))
    kernel = Polynomial(2, gamma=0.5)  # (x.z / 2 + 1)^2 has the gradient (x.z / 2 + 1) z
    expected = ((rows @ points.T / 2 + 1) * coef[:, 0]) @ points
    np.testing.assert_allclose(kernel.gradient_matvec(rows, points, coef)[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("kernel", [ArcCosine(1), ArcCosine(2), NeuralTangent(2)], ids=repr)
def test_a_row_has_the_gradient_of_its_norm_along_itself(kernel: Kernel) -> None:
    # k(x, z) at z = c x is c^s k(x, x), so that the gradient at x itself is (s / |x|^2) k(x, x) x.
    s = 2 if kernel == ArcCosine(2) else 1
    for c in (1.0, 3.0):
        found = kernel.gradient_matvec(X[:1], c * X[:1], np.ones((1, 1)))[0, 0]
        expected = s * float(kernel.block(X[:1], c * X[:1].copy())[0, 0]) * X[0] / (X[0] @ X[0])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_pair_of_parallel_rows_counts_nothing_where_the_kernel_has_a_kink() -> None:
    np.testing.assert_array_equal(ArcCosine(0).gradient_matvec(X[:1], 2 * X[:1], np.ones((1, 1))), 0)


@pytest.mark.parametrize("kernel", [*KERNELS[:8], KERNELS[-3]], ids=repr)
def test_rows_of_zeros_have_finite_gradients(kernel: Kernel) -> None:
    rows, points = X.copy(), Z.copy()
    rows[0] = points[0] = 0
    assert np.isfinite(kernel.gradient_matvec(rows, points, A)).all()


def test_a_bias_is_no_feature() -> None:
    kernel, weights = Neuron("tanh", 7, bias=True), np.random.default_rng(5).standard_normal((7, D + 1))
    found = kernel.gradient_matvec(X, weights, A)
    np.testing.assert_allclose(found, _differences(kernel, X, weights, A, None), atol=1e-8)


def test_linear_models_have_their_coefficients() -> None:
    units = sparse.csr_array(np.eye(D + 1, D))  # and a constant
    coef = np.random.default_rng(6).standard_normal((D + 1, 2))
    found = Coordinate().gradient_matvec(X, units, coef)
    np.testing.assert_array_equal(found, np.tile(coef[:D].T, (9, 1, 1)))


@pytest.mark.parametrize("kernel", [Gaussian(2.0), ArcCosine(1)], ids=repr)
def test_drawn_features_have_gradients(kernel: Kernel) -> None:
    drawn, numbers = Drawn(kernel, 3, 6, D), np.arange(24.0)[:, None]
    coef = np.random.default_rng(7).standard_normal((24, 2))
    found = drawn.gradient_matvec(X, numbers, coef)
    np.testing.assert_allclose(found, _differences(drawn, X, numbers, coef, None), atol=1e-7)


def test_mapped_columns_have_those_of_their_kernel() -> None:
    M = np.random.default_rng(8).standard_normal((5, 7))
    coef = np.random.default_rng(9).standard_normal((5, 2))
    mapped = Mapped(Gaussian(2.0), Z)
    found = mapped.gradient_matvec(X, M, coef)
    np.testing.assert_allclose(found, _differences(mapped, X, M, coef, None), atol=1e-7)


class Shifted(LinearKernel):
    """A kernel that maps rows, and does not say how that changes gradients."""

    def transform(self, rows: FloatArray) -> FloatArray:
        return 2 * rows


class Floor(LinearKernel):
    """A formula with an operation that has no derivative."""

    def formula(self, pair: Pair) -> Expression:
        return Expression("floor", (pair.inner,))


@pytest.mark.parametrize(
    ("kernel", "sentence"),
    [
        (CallableKernel(lambda X, Z: X @ Z.T), "has no formula and no derivative"),
        (Neuron("step", 7), "constant between its jumps"),
        (Shifted(), "maps rows and has no gradients of its own"),
        (Floor(), "a formula with floor has no derivative"),
    ],
)
def test_kernels_without_derivatives_are_refused(kernel: Kernel, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        kernel.gradient_matvec(X, Z, A)
