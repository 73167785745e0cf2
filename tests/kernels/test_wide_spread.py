"""Kernel values of float32 rows that spread widely against the length scale. Both engines."""

from collections.abc import Iterator

import numpy as np
import pytest
from scipy import sparse

from daskkern.arrays import HostArray
from daskkern.kernels import (
    Cauchy,
    Gaussian,
    Kernel,
    L1Laplacian,
    Laplacian,
    LinearKernel,
    Matern,
    Placement,
    Polynomial,
    PowerLaplacian,
    RationalQuadratic,
    plain_products,
)

KERNELS: list[Kernel] = [
    Laplacian(10.0),
    Gaussian(10.0),
    Matern(10.0, 1.5),
    Matern(10.0, 2.5),
    Cauchy(10.0),
    RationalQuadratic(10.0),
    Laplacian([10.0] * 7 + [1.0]),
    0.5 * Gaussian(10.0) + Laplacian([10.0] * 8),
    Gaussian(10.0) * Laplacian(10.0),
    Gaussian.from_metric(np.diag(np.full(8, 0.01))),
    L1Laplacian(10.0),
    PowerLaplacian([10.0] * 7 + [1.0], 1.5, 1.0),
    0.5 * L1Laplacian(10.0) + Laplacian(10.0),
]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: repr(kernel)[:40])
TOLERANCE = 1e-3


@pytest.fixture(params=["compiled", "plain"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "plain":
        with plain_products():
            yield request.param
    else:
        yield request.param


def _rows(m: int, spread: float, offset: float = 0.0, seed: int = 0, d: int = 8) -> HostArray:
    X = np.random.default_rng(seed).standard_normal((m, d))
    X[:, d // 2] *= spread
    return (X + offset).astype(np.float32)


def _reference(kernel: Kernel, X: HostArray, Z: HostArray) -> HostArray:
    """Return the kernel of rows in float64, moved to the origin: shifts change no distance."""
    centre = Z.astype(np.float64).mean(axis=0)
    return kernel.block(X - centre, Z - centre)


@pytest.mark.one_in(3)
@each_kernel
@pytest.mark.parametrize(("spread", "offset"), [(1e2, 0), (1e3, 0), (1e4, 0), (1.0, 1e6), (1e4, 1e6)])
def test_float32_blocks_are_those_of_float64(kernel: Kernel, spread: float, offset: float, engine: str) -> None:
    X, Z = _rows(150, spread, offset, 1), _rows(130, spread, offset, 2)
    Z[:40] = X[:40] + _rows(40, 1.0, 0.0, 3)  # neighbours, whose values are not 0
    K = kernel.block(X, Z)
    assert K.dtype == np.float32
    np.testing.assert_allclose(K, _reference(kernel, X, Z), atol=TOLERANCE)
    assert (np.diagonal(K)[:40] > 0.01).all()


@pytest.mark.one_in(3)
@each_kernel
def test_products_and_gradients_are_those_of_the_block(kernel: Kernel, engine: str) -> None:
    X, Z = _rows(90, 1e4, seed=1), _rows(70, 1e4, seed=2)
    Z[:40] = X[:40] + _rows(40, 1.0, seed=3)
    rng = np.random.default_rng(4)
    A, G = rng.standard_normal((70, 3)).astype(np.float32), rng.standard_normal((90, 3)).astype(np.float32)
    K = _reference(kernel, X, Z)
    points = kernel.points(Z, kernel.placement_for(Z), [slice(0, 30), slice(30, 70)])
    head = np.empty((90, 20), np.float32)
    np.testing.assert_allclose(kernel.matvec(X, points, A, head), K @ A, atol=5 * TOLERANCE)
    np.testing.assert_allclose(head, K[:, :20], atol=TOLERANCE)
    pulled = kernel.rmatvec(kernel.left(X, points), points, G)
    assert pulled.dtype == np.float32
    np.testing.assert_allclose(pulled, K.T @ G, atol=5 * TOLERANCE)
    np.testing.assert_allclose(kernel.double_product(X, points, A), K.T @ (K @ A), atol=10 * TOLERANCE)
    np.testing.assert_allclose(kernel.matvec(X, Z, np.tile(A, 20)), np.tile(K @ A, 20), atol=5 * TOLERANCE)
    joined = kernel.points(Z[:30], points.placement).join(kernel.points(Z[30:], points.placement))
    np.testing.assert_array_equal(kernel.block(X, joined), kernel.block(X, points))
    turned = np.empty((70, 90), np.float32).T
    np.testing.assert_array_equal(kernel.block(X, points, turned), kernel.block(X, points))


def test_the_kernel_of_rows_with_themselves_is_symmetric_and_positive(engine: str) -> None:
    X = _rows(400, 1e4)
    K = Laplacian(10.0).block(X, X).astype(np.float64)
    np.testing.assert_array_equal(np.diagonal(K), 1)
    np.testing.assert_allclose(K, K.T, atol=1e-6)
    assert np.linalg.eigvalsh(0.5 * (K + K.T))[0] > 0
    A = np.ones((400, 1), np.float32)
    np.testing.assert_allclose(Laplacian(10.0).matvec(X, X, A), K @ A, atol=1e-3)


def test_sparse_rows_and_rows_of_two_dtypes_are_right(engine: str) -> None:
    X, Z = _rows(60, 1e4, seed=1), _rows(50, 1e4, seed=2)
    Z[:30] = X[:30] + _rows(30, 1.0, seed=3)
    K = _reference(Laplacian(10.0), X, Z)
    for left, right in (
        (sparse.csr_matrix(X), sparse.csr_matrix(Z)),
        (X, sparse.csr_matrix(Z)),
        (X.astype(np.float64), Z),
        (X, Z.astype(np.float64)),
    ):
        np.testing.assert_allclose(Laplacian(10.0).block(left, right), K, atol=TOLERANCE)


def test_gradients_of_wide_rows_are_those_of_float64() -> None:
    X, Z = _rows(30, 1e4, seed=1), _rows(40, 1e4, seed=2)
    Z[:20] = X[:20] + _rows(20, 1.0, seed=3)
    A = np.random.default_rng(4).standard_normal((40, 2))
    found = Gaussian(10.0).gradient_matvec(X, Z, A)
    np.testing.assert_allclose(found, Gaussian(10.0).gradient_matvec(X.astype("f8"), Z.astype("f8"), A), atol=1e-6)


def test_one_row_far_off_takes_no_digits_from_the_others(engine: str) -> None:
    X = _rows(40, 1.0)
    expected = _reference(Gaussian(3.0), X, X)
    far = X.copy()
    far[7] = 1e8
    others = np.arange(40) != 7
    found = Gaussian(3.0).block(far.copy(), far)[np.ix_(others, others)]
    np.testing.assert_allclose(found, expected[np.ix_(others, others)], atol=1e-5)


@pytest.mark.parametrize("kernel", [Gaussian("median"), Laplacian("median"), 2 * Gaussian("median")], ids=repr)
@pytest.mark.parametrize("d", [2, 57, 784])
def test_standardised_rows_stay_in_float32(kernel: Kernel, d: int) -> None:
    Z = _rows(300, 1.0, d=d)
    kernel = kernel.resolve(Z)
    placement = kernel.placement_for(Z)
    assert not placement.wide
    assert kernel.points(Z, placement).wider is None


def test_rows_that_were_asked_rounded_stay_rounded() -> None:
    Z = _rows(50, 1e4)
    assert Gaussian().placement_for(Z).wide
    assert Gaussian().points(Z, Placement(None, wide=True), precision="float32").wider is not None
    assert Gaussian().points(Z, Placement(None, wide=True), precision="tf32").wider is None
    assert not Gaussian().placement_for(Z.astype(np.float64)).wide


def test_kernels_of_inner_products_are_never_widened_but_within_a_sum() -> None:
    Z = _rows(50, 1e4)
    for kernel in (LinearKernel(), Polynomial(2, gamma=1.0)):
        assert not kernel.placement_for(Z).wide
    assert (LinearKernel() + Gaussian(10.0)).placement_for(Z).wide
