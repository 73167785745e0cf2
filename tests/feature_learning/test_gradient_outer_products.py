"""Average gradient outer products, against differences of the function and against loops."""

import numpy as np
import pytest
from scipy import sparse

from daskkern.arrays import FloatArray
from daskkern.feature_learning.gradients import gradient_outer_product
from daskkern.kernels import Gaussian, L1Laplacian, Laplacian, Matern, PowerLaplacian, ScaledDistanceKernel

D = 5
X = np.random.default_rng(0).standard_normal((40, D))
Z = np.random.default_rng(1).standard_normal((12, D))
A = np.random.default_rng(2).standard_normal((12, 3))
W = np.random.default_rng(3).uniform(0, 2, 40)
KERNELS = [Gaussian(1.3), Laplacian(2.0), Matern(1.5, nu=1.5), L1Laplacian(2.0), PowerLaplacian(2.0, p=1.5, q=1.0)]


def _by_differences(kernel: ScaledDistanceKernel) -> FloatArray:
    step = 1e-5
    J = np.stack(
        [(kernel.matvec(X + step * e, Z, A) - kernel.matvec(X - step * e, Z, A)) / (2 * step) for e in np.eye(D)],
        axis=2,
    )
    found: FloatArray = np.einsum("i,icj,ick->jk", W / W.sum(), J, J)
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_it_is_the_mean_of_outer_products_of_slopes(kernel: ScaledDistanceKernel) -> None:
    expected = _by_differences(kernel)
    found = gradient_outer_product(kernel, X, Z, A, W, diagonal=False)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
    diagonal = gradient_outer_product(kernel, X, Z, A, W, diagonal=True)
    np.testing.assert_allclose(diagonal, np.diag(found), rtol=1e-10)


def test_it_uses_the_metric_that_the_kernel_has() -> None:
    F = np.random.default_rng(4).standard_normal((D, 2))
    for kernel in (Laplacian(1.0, factor=F), Laplacian((0.5, 1, 2, 3, 4))):
        expected = _by_differences(kernel)
        np.testing.assert_allclose(gradient_outer_product(kernel, X, Z, A, W, diagonal=False), expected, atol=1e-6)


@pytest.mark.parametrize("kernel", [Gaussian(1.3), L1Laplacian(2.0)], ids=lambda kernel: kernel.name)
def test_sparse_rows_have_that_of_dense_ones(kernel: ScaledDistanceKernel) -> None:
    rows, points = X * (X > 0.5), Z * (Z > 0)
    dense = gradient_outer_product(kernel, rows, points, A, None, diagonal=True)
    found = gradient_outer_product(kernel, sparse.csr_array(rows), sparse.csr_array(points), A, None, diagonal=True)
    np.testing.assert_allclose(found, dense, rtol=1e-10)


def test_equal_rows_contribute_nothing_to_a_kernel_with_a_kink() -> None:
    assert gradient_outer_product(Laplacian(1.0), Z[:1], Z[:1], A[:1], None, diagonal=True) == pytest.approx(
        np.zeros(D)
    )


def test_tiles_of_rows_add_up() -> None:
    many = np.random.default_rng(5).standard_normal((3000, D))
    found = gradient_outer_product(Gaussian(1.0), many, Z, A, None, diagonal=False)
    J = Gaussian(1.0).gradient_matvec(many, Z, A).reshape(-1, D)
    np.testing.assert_allclose(found, J.T @ J / 3000, rtol=1e-10)
