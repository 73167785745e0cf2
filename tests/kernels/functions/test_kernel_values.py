"""Kernels against the formulas of the papers, against scikit-learn, and against themselves in other shapes."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.gaussian_process.kernels import RationalQuadratic as SklearnRationalQuadratic
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

from daskkern.arrays import HostArray
from daskkern.backend.concurrency import compute_threads
from daskkern.backend.tiles import TILE_COLUMNS, TILE_ROWS, tile_pool
from daskkern.errors import DataError, SpecError
from daskkern.kernels import (
    ArcCosine,
    Cauchy,
    Gaussian,
    InversePolynomial,
    Kernel,
    L1Laplacian,
    Laplacian,
    LinearKernel,
    Matern,
    NeuralTangent,
    Polynomial,
    PowerLaplacian,
    RationalQuadratic,
)
from tests.support import naive

DISTANCE_KERNELS = [
    Gaussian(2.0),
    Laplacian(3.0),
    Cauchy(1.5),
    Matern(2.0, 1.5),
    Matern(2.0, 2.5),
    RationalQuadratic(2.0, alpha=1.5),
]
DIFFERENCE_KERNELS = [L1Laplacian(3.0), PowerLaplacian(2.0, 1.5, 1.0)]
COSINE_KERNELS = [InversePolynomial(), ArcCosine(0), ArcCosine(1), ArcCosine(2), NeuralTangent(2)]
KERNELS = [*DISTANCE_KERNELS, *DIFFERENCE_KERNELS, *COSINE_KERNELS, Polynomial(3, gamma=0.2, coef0=0.5), LinearKernel()]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
each_distance_kernel = pytest.mark.parametrize("kernel", DISTANCE_KERNELS, ids=lambda kernel: kernel.name)


def _rows(m: int, d: int, dtype: str = "float64", seed: int = 0) -> HostArray:
    return np.random.default_rng(seed).standard_normal((m, d)).astype(dtype)


@pytest.mark.one_in(7)
@each_kernel
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-5)])
@pytest.mark.parametrize(("m", "p", "d"), [(1, 1, 1), (1, 9, 4), (17, 1, 3), (13, 29, 7)])
def test_block_equals_the_formula(kernel: Kernel, dtype: str, tolerance: float, m: int, p: int, d: int) -> None:
    X, Z = _rows(m, d, dtype), _rows(p, d, dtype, seed=1)
    block = kernel.block(X, Z)
    expected = naive.kernel_matrix(kernel.spec(), X, Z)
    assert block.dtype == X.dtype
    np.testing.assert_allclose(block, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max()))


@pytest.mark.one_in(4, 1)
@each_kernel
def test_block_of_several_tiles_equals_the_formula_at_every_seam(kernel: Kernel) -> None:
    m, p = TILE_ROWS + 3, 5 * TILE_COLUMNS + 7
    X, Z = _rows(m, 3), _rows(p, 3, seed=1)
    rows = [0, TILE_ROWS // 2, TILE_ROWS - 1, TILE_ROWS, m - 1]
    columns = [0, *(k * TILE_COLUMNS + step for k in range(1, 6) for step in (-1, 0, 1)), p - 1]
    block = kernel.block(X, Z)
    np.testing.assert_allclose(
        block[np.ix_(rows, columns)], naive.kernel_matrix(kernel.spec(), X[rows], Z[columns]), rtol=1e-10, atol=1e-10
    )


@pytest.mark.one_in(7)
@each_kernel
def test_products_equal_the_block_times_the_matrix(kernel: Kernel) -> None:
    m, p = TILE_ROWS + 9, 4 * TILE_COLUMNS + 5
    X, Z = _rows(m, 3), _rows(p, 3, seed=1)
    A, G = _rows(p, 3, seed=2), _rows(m, 2, seed=3)
    block = kernel.block(X, Z)
    head = np.full((m, TILE_COLUMNS + 11), np.nan)
    scale = np.abs(block).max() * p
    np.testing.assert_allclose(kernel.matvec(X, Z, A, head), block @ A, rtol=0, atol=1e-14 * scale)
    np.testing.assert_allclose(kernel.rmatvec(X, Z, G), block.T @ G, rtol=0, atol=1e-14 * scale)
    np.testing.assert_allclose(head, block[:, : head.shape[1]], rtol=0, atol=1e-14 * np.abs(block).max())


@pytest.mark.one_in(7, 2)
@each_kernel
@settings(max_examples=15, deadline=None)
@given(
    m=st.integers(0, 40), p=st.integers(0, 40), d=st.integers(1, 5), c=st.integers(1, 18), seed=st.integers(0, 1 << 30)
)
def test_rmatvec_is_the_adjoint_of_matvec(kernel: Kernel, m: int, p: int, d: int, c: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((m, d)), rng.standard_normal((p, d))
    A, G = rng.standard_normal((p, c)), rng.standard_normal((m, c))
    points = kernel.points(Z)
    left = float((kernel.matvec(X, points, A) * G).sum())
    right = float((A * kernel.rmatvec(X, points, G)).sum())
    size = float((np.abs(kernel.block(X, points)) @ np.abs(A) * np.abs(G)).sum())
    assert left == pytest.approx(right, abs=1e-12 * size)


@pytest.mark.one_in(4, 2)
@each_kernel
@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(1, 69), max_size=4), seed=st.integers(0, 1 << 30))
def test_blocks_do_not_depend_on_how_rows_are_cut(kernel: Kernel, cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((70, 4)), rng.standard_normal((31, 4))
    points = kernel.points(Z)
    parts = [kernel.block(rows, points) for rows in np.split(X, sorted(set(cuts)))]
    np.testing.assert_allclose(np.concatenate(parts), kernel.block(X, points), rtol=1e-12, atol=1e-12)


@pytest.mark.one_in(8, 1)
@each_kernel
def test_any_number_of_threads_gives_the_same_bits(kernel: Kernel) -> None:
    X, Z = _rows(TILE_ROWS + 40, 5, "float32"), _rows(4 * TILE_COLUMNS + 70, 5, "float32", seed=1)
    A, G = _rows(len(Z), 10, "float32", seed=2), _rows(len(X), 10, "float32", seed=3)
    seen = []
    for threads in (1, 2, 3):
        with compute_threads(threads):
            seen.append((kernel.block(X, Z), kernel.matvec(X, Z, A), kernel.rmatvec(X, Z, G)))
    for later in seen[1:]:
        for one, other in zip(seen[0], later, strict=True):
            np.testing.assert_array_equal(one, other)


def test_tiles_are_spread_over_the_pool_that_surrounds_them() -> None:
    class Counting(ThreadPoolExecutor):
        tiles = 0

        def submit(self, *arguments: Any, **settings: Any) -> Any:
            Counting.tiles += 1
            return super().submit(*arguments, **settings)

    X, Z = _rows(8 * TILE_ROWS, 2), _rows(TILE_COLUMNS, 2, seed=1)
    with Counting(2) as pool, tile_pool(pool, 3):
        inside = Gaussian().block(X, Z)
    spread = Counting.tiles
    assert spread == 2
    np.testing.assert_array_equal(inside, Gaussian().block(X, Z))
    assert Counting.tiles == spread  # outside the pool again


@pytest.mark.one_in(4, 3)
@each_kernel
def test_matrix_of_rows_with_themselves_is_symmetric_positive_semi_definite(kernel: Kernel) -> None:
    K = kernel.block(X := _rows(60, 4), X)
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(K)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]


@each_kernel
def test_diagonal_is_that_of_the_block_without_the_block(kernel: Kernel) -> None:
    X = _rows(23, 4)
    X[5] = 0
    expected = np.array([naive.kernel_matrix(kernel.spec(), row[None], row[None])[0, 0] for row in X])
    np.testing.assert_allclose(kernel.diagonal(X), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(kernel.block(X, X).diagonal(), kernel.diagonal(X))


@pytest.mark.one_in(4)
@each_kernel
def test_operands_are_not_modified(kernel: Kernel) -> None:
    X, Z = _rows(7, 3), _rows(9, 3, seed=1)
    before = X.copy(), Z.copy()
    kernel.block(X, Z)
    kernel.matvec(X, Z, np.ones((9, 1)))
    kernel.rmatvec(X, Z, np.ones((7, 1)))
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(Z, before[1])


@each_kernel
def test_block_is_written_where_it_is_asked(kernel: Kernel) -> None:
    X, Z = _rows(7, 3), _rows(9, 3, seed=1)
    out = np.full((7, 9), np.nan)
    assert kernel.block(X, Z, out) is out
    np.testing.assert_array_equal(out, kernel.block(X, Z))


@each_kernel
def test_rows_in_any_memory_order_give_the_same_block(kernel: Kernel) -> None:
    X, Z = _rows(11, 6), _rows(8, 6, seed=1)
    strided = np.repeat(X, 2, axis=0)[::2]
    for rows in (np.asfortranarray(X), strided):
        np.testing.assert_allclose(kernel.block(rows, Z), kernel.block(X, Z), rtol=1e-13, atol=1e-13)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("d", [1, 3, 50, 784])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
def test_block_of_equal_rows_is_exact_for_the_laplacian(d: int, dtype: str, offset: float) -> None:
    Z = (_rows(300, d) + offset).astype(dtype)
    K = Laplacian(2.0).block(Z.copy(), Z)
    np.testing.assert_array_equal(K.diagonal(), np.ones(300, dtype))


def test_nearby_rows_stay_apart_for_the_laplacian() -> None:
    X = _rows(50, 20, "float32")
    Z = X + np.float32(0.05)
    expected = naive.kernel_matrix(Laplacian(1.0).spec(), X, Z)
    # What is cut off for equal rows costs close ones a few digits, and not more.
    np.testing.assert_allclose(Laplacian(1.0).block(X, Z), expected, atol=2e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kernel", COSINE_KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_zero_row_has_no_direction(kernel: Kernel, dtype: str) -> None:
    X = _rows(6, 4, dtype)
    X[2] = 0
    K = kernel.block(X, X.copy())
    expected = 0.5 if kernel in (InversePolynomial(), ArcCosine(0)) else 0.0
    np.testing.assert_allclose(K[2], np.full(6, expected, dtype), rtol=1e-6, atol=0)
    np.testing.assert_array_equal(K[:, 2], K[2])
    np.testing.assert_allclose(kernel.diagonal(X)[2], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kernel", COSINE_KERNELS, ids=lambda kernel: kernel.name)
def test_equal_and_opposite_rows_stay_within_the_profile_range(kernel: Kernel) -> None:
    X = (_rows(200, 30, "float32") * 1e3).astype(np.float32)
    K = kernel.block(X, np.concatenate([X, -X]))
    assert np.isfinite(K).all()
    lowest = kernel.depth / -20 if isinstance(kernel, NeuralTangent) else -1e-6  # which is negative between rows
    assert K.min() >= lowest * kernel.diagonal(X).max()


def test_inverse_polynomial_sees_only_directions() -> None:
    X, Z = _rows(9, 5), _rows(7, 5, seed=1)
    kernel = InversePolynomial()
    np.testing.assert_allclose(kernel.block(7 * X, Z / 3), kernel.block(X, Z), rtol=1e-12)


@pytest.mark.one_in(5)
@each_distance_kernel
def test_rows_far_from_the_origin_lose_no_digits(kernel: Kernel) -> None:
    X, Z = _rows(40, 10), _rows(50, 10, seed=1)
    far_X, far_Z = (X + 3000).astype(np.float32), (Z + 3000).astype(np.float32)
    expected = naive.kernel_matrix(kernel.spec(), far_X, far_Z)
    np.testing.assert_allclose(kernel.block(far_X, far_Z), expected, atol=2e-5)


@each_distance_kernel
def test_integer_rows_far_from_the_origin_are_shifted_by_integers(kernel: Kernel) -> None:
    Z = (np.random.default_rng(0).integers(0, 4, (60, 5)) + 10_000).astype(np.float32)
    shift = kernel.shift_for(Z)
    assert shift is not None
    np.testing.assert_array_equal(shift, np.rint(shift))
    np.testing.assert_allclose(kernel.block(Z.copy(), Z), naive.kernel_matrix(kernel.spec(), Z, Z), atol=2e-6)


def test_rows_around_the_origin_are_not_shifted() -> None:
    assert Gaussian().shift_for(_rows(80, 4)) is None
    assert LinearKernel().shift_for(_rows(80, 4) + 1e4) is None
    assert Gaussian().shift_for(_rows(1, 4) + 1e4) is None


def test_gaussian_linear_and_polynomial_are_those_of_scikit_learn() -> None:
    X, Z = _rows(20, 6), _rows(15, 6, seed=1)
    np.testing.assert_allclose(Gaussian(1.7).block(X, Z), rbf_kernel(X, Z, gamma=1 / (2 * 1.7**2)), rtol=1e-10)
    np.testing.assert_allclose(LinearKernel().block(X, Z), linear_kernel(X, Z), rtol=1e-12)
    for degree in (1, 2, 3, 5):
        ours = Polynomial(degree, gamma=0.3, coef0=2.0).block(X, Z)
        np.testing.assert_allclose(ours, polynomial_kernel(X, Z, degree, 0.3, 2.0), rtol=1e-10, atol=1e-12)
    by_data = Polynomial(2).resolve(X).block(X, Z)
    np.testing.assert_allclose(by_data, polynomial_kernel(X, Z, 2, None, 1.0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_that_of_scikit_learn(nu: float) -> None:
    X, Z = _rows(20, 6), _rows(15, 6, seed=1)
    np.testing.assert_allclose(Matern(1.7, nu).block(X, Z), SklearnMatern(1.7, nu=nu)(X, Z), rtol=1e-12)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 2.5, 7.0, 40.0])
def test_rational_quadratic_is_that_of_scikit_learn(alpha: float) -> None:
    X, Z = _rows(20, 6), _rows(15, 6, seed=1)
    expected = SklearnRationalQuadratic(1.7, alpha)(X, Z)
    np.testing.assert_allclose(RationalQuadratic(1.7, alpha=alpha).block(X, Z), expected, rtol=1e-11)


def test_gaussian_from_gamma_is_the_rbf_kernel_of_scikit_learn() -> None:
    X, Z = _rows(20, 6), _rows(15, 6, seed=1)
    np.testing.assert_allclose(Gaussian.from_gamma(0.3).block(X, Z), rbf_kernel(X, Z, gamma=0.3), rtol=1e-10)
    with pytest.raises(SpecError, match=r"got gamma=-1\.0 for the gaussian kernel"):
        Gaussian.from_gamma(-1.0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_arc_cosine_is_the_mean_product_of_random_units(degree: int) -> None:
    X = _rows(4, 3)
    W = np.random.default_rng(1).standard_normal((3, 400_000))
    features = np.where(X @ W > 0, np.abs(X @ W) ** degree, 0) * np.sqrt(2 / W.shape[1])
    expected = ArcCosine(degree).block(X, X)
    np.testing.assert_allclose(features @ features.T, expected, atol=0.02 * expected.max())


def test_neural_tangent_is_the_product_of_gradients_of_a_wide_random_network() -> None:
    X = _rows(4, 3)
    W = np.random.default_rng(1).standard_normal((3, 400_000))
    width = W.shape[1]
    outer = np.maximum(X @ W, 0)  # gradient by the output weights
    slopes = (X @ W > 0).astype(float)  # that by W, for output weights of variance 1, is slopes times X
    expected = 2 / width * (outer @ outer.T + (slopes @ slopes.T) * (X @ X.T))
    block = NeuralTangent(1).block(X, X)
    np.testing.assert_allclose(block, expected, atol=0.02 * block.max())
    np.testing.assert_allclose(NeuralTangent(3).diagonal(X), 4 * (X**2).sum(axis=1), rtol=1e-12)


@each_kernel
def test_rows_of_another_width_are_refused(kernel: Kernel) -> None:
    points = kernel.points(_rows(5, 4))
    for call in (
        lambda: kernel.block(_rows(3, 2), points),
        lambda: kernel.matvec(_rows(3, 2), points, np.ones((5, 1))),
        lambda: kernel.rmatvec(_rows(3, 2), points, np.ones((3, 1))),
    ):
        with pytest.raises(DataError, match=r"got X of shape \(3, 2\); expected rows of 4 features"):
            call()
