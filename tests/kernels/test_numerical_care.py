"""Rows that are hard on arithmetic: far, equal, close, huge, tiny and half precise. Both engines."""

from collections.abc import Iterator

import numpy as np
import pytest

from daskkern.errors import DataError
from daskkern.kernels import (
    KERNELS,
    ArcCosine,
    Cauchy,
    Gaussian,
    InversePolynomial,
    Kernel,
    Laplacian,
    Matern,
    NeuralTangent,
    RationalQuadratic,
    plain_products,
)
from tests.support import naive

RADIAL = [Gaussian(2.0), Laplacian(2.0), Cauchy(2.0), Matern(2.0, 1.5), Matern(2.0, 2.5), RationalQuadratic(2.0)]
ANGULAR = [InversePolynomial(), ArcCosine(0), ArcCosine(1), NeuralTangent(1), NeuralTangent(3)]
each_radial = pytest.mark.parametrize("kernel", RADIAL, ids=lambda kernel: kernel.name)
each_angular = pytest.mark.parametrize("kernel", ANGULAR, ids=repr)
rng = np.random.default_rng(0)
X, Z = rng.standard_normal((50, 20)), rng.standard_normal((60, 20))


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run every test of this file with both engines."""
    if request.param == "plain":
        with plain_products():
            yield request.param
    else:
        yield request.param


@pytest.mark.one_in(3)
@each_radial
def test_rows_at_ten_thousand_are_as_exact_as_at_the_origin(kernel: Kernel) -> None:
    far_X, far_Z = (X + 1e4).astype(np.float32), (Z + 1e4).astype(np.float32)
    expected = naive.kernel_matrix(dict(kernel.spec()), far_X, far_Z)
    np.testing.assert_allclose(kernel.block(far_X, far_Z), expected, rtol=2e-5, atol=1e-7)


@each_radial
@pytest.mark.parametrize("offset", [0, 10_000])
def test_equal_integer_rows_have_the_value_of_distance_0(kernel: Kernel, offset: int) -> None:
    rows = (rng.integers(0, 4, (40, 5)) + offset).astype(np.float32)
    again = rows[rng.permutation(40)]
    K = kernel.block(rows, again)
    equal = (rows[:, None] == again[None]).all(axis=2)
    np.testing.assert_array_equal(K[equal], np.float32(1))
    assert (K[~equal] < 0.95).all()


@pytest.mark.parametrize("kernel", [Laplacian(1e-3), Matern(1e-3, 1.5), Matern(1e-3, 2.5)], ids=lambda k: k.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_rows_are_at_distance_0_however_small_the_scale(kernel: Kernel, dtype: str) -> None:
    rows = (X + 3).astype(dtype)
    np.testing.assert_array_equal(kernel.block(rows.copy(), rows).diagonal(), np.ones(50, dtype))


@each_radial
def test_a_row_with_itself_is_exact_under_a_tiny_scale(kernel: Kernel) -> None:
    tiny = type(kernel)(1e-6)
    rows = X.astype(np.float32)
    K = tiny.block(rows, rows)
    np.testing.assert_array_equal(K.diagonal(), np.ones(50, np.float32))
    assert np.isfinite(K).all()


@pytest.mark.one_in(3)
@each_angular
def test_equal_directions_have_the_value_of_angle_0(kernel: Kernel) -> None:
    rows = X.astype(np.float32)
    norms = (X**2).sum(axis=1)
    expected = {"inverse_polynomial": 1.0, "arc_cosine": norms, "neural_tangent": norms}[kernel.name]
    if isinstance(kernel, NeuralTangent):
        expected = (kernel.depth + 1) * norms
    if kernel == ArcCosine(0):
        expected = np.ones(50)
    np.testing.assert_allclose(kernel.block(rows.copy(), rows).diagonal(), expected, rtol=2e-6)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", KERNELS)
def test_half_precise_rows_are_computed_in_single_precision(name: str) -> None:
    kernel = KERNELS[name].kernel().resolve(X)
    half_X, half_Z = X.astype(np.float16), Z.astype(np.float16)
    if "chi2" in name:  # of histograms
        half_X, half_Z = np.abs(half_X), np.abs(half_Z)
    K = kernel.block(half_X, half_Z)
    assert K.dtype == np.float32
    np.testing.assert_array_equal(K, kernel.block(half_X.astype(np.float32), half_Z.astype(np.float32)))


@each_radial
def test_huge_rows_are_far_apart_without_a_warning(kernel: Kernel) -> None:
    K = kernel.block((1e18 * X).astype(np.float32), (1e18 * Z).astype(np.float32))
    assert (K >= 0).all()
    assert (K < 1e-30).all()


@each_angular
def test_huge_rows_keep_their_angles(kernel: Kernel) -> None:
    ordinary = kernel.block(X.astype(np.float32), Z.astype(np.float32)).astype(np.float64)
    factor = 1e36 if isinstance(kernel, NeuralTangent) or kernel == ArcCosine(1) else 1.0
    huge = kernel.block((1e18 * X).astype(np.float32), (1e18 * Z).astype(np.float32))
    np.testing.assert_allclose(huge, factor * ordinary, rtol=1e-4, atol=1e-5 * factor)


@pytest.mark.parametrize("kernel", RADIAL + ANGULAR, ids=repr)
def test_rows_beyond_the_squares_of_the_dtype_are_refused_or_no_number(kernel: Kernel) -> None:
    ordinary, huge = X.astype(np.float32), (1e20 * X).astype(np.float32)
    with pytest.raises(DataError, match="point 0 has values too large for float32"):
        kernel.points(huge)
    with pytest.raises(DataError, match=r"too large for float64: .*; scale the features$"):
        kernel.points(1e300 * X.astype(np.float64))
    mixed = ordinary.copy()
    mixed[3] = huge[3]
    K = kernel.block(mixed, ordinary)
    assert np.isnan(K[3]).all()
    assert np.isfinite(np.delete(K, 3, axis=0)).all()
    assert np.isfinite(kernel.block(huge.astype(np.float64), X)).all()


@each_radial
def test_values_below_the_normal_numbers_are_tiny_and_not_wrong(kernel: Kernel) -> None:
    rows = np.zeros((1, 3), np.float32)
    columns = np.linspace(1, 4000, 500, dtype=np.float32)[:, None] * np.array([1, 0, 0], np.float32)
    K = kernel.block(rows, kernel.points(columns))[0].astype(np.float64)
    expected = naive.kernel_matrix(dict(kernel.spec()), rows, columns)[0]
    assert (K >= 0).all()
    np.testing.assert_allclose(K, expected, rtol=3e-5, atol=1e-32)
