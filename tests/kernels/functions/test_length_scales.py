"""Length scales per feature, as a matrix and as a metric, on dense and sparse rows."""

import json
import pickle
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import pdist

from daskkern.errors import DataError, SpecError
from daskkern.kernels import (
    Cauchy,
    Gaussian,
    Laplacian,
    Matern,
    RadialKernel,
    RationalQuadratic,
    from_spec,
    plain_products,
)
from tests.support import naive

RADIAL = [Gaussian, Laplacian, Cauchy, Matern, RationalQuadratic]
each_class = pytest.mark.parametrize("kernel_class", RADIAL, ids=lambda kernel_class: kernel_class.__name__)
D = 5
SCALES = (0.5, 2.0, 1.0, 30.0, 4.0)
L = np.random.default_rng(3).standard_normal((D, D)) + 2 * np.eye(D)
LOW_RANK = np.random.default_rng(4).standard_normal((D, 2))
X = np.random.default_rng(0).standard_normal((23, D))
Z = np.random.default_rng(1).standard_normal((31, D))


def _forms(kernel_class: type[RadialKernel]) -> dict[str, RadialKernel]:
    return {
        "scales": kernel_class(SCALES),
        "matrix": kernel_class(L),  # type: ignore[arg-type]
        "metric": kernel_class.from_metric(L @ L.T, length_scale=3.0),
        "low rank": kernel_class.from_metric(LOW_RANK @ LOW_RANK.T),
    }


@pytest.mark.one_in(7)
@each_class
@pytest.mark.parametrize("form", ["scales", "matrix", "metric", "low rank"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 3e-5)])
def test_block_and_products_equal_the_formula(
    kernel_class: type[RadialKernel], form: str, dtype: str, tolerance: float
) -> None:
    kernel = _forms(kernel_class)[form]
    expected = naive.kernel_matrix(dict(kernel.spec()), X, Z)
    A = np.random.default_rng(2).standard_normal((len(Z), 3))
    for rows in (np.asarray, sparse.csr_array, sparse.csr_matrix):
        left, right = rows(X.astype(dtype)), rows(Z.astype(dtype))
        np.testing.assert_allclose(kernel.block(left, right), expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(kernel.matvec(left, right, A), expected @ A, atol=30 * tolerance)


@each_class
def test_kernels_with_arrays_compare_hash_and_are_written_as_json(kernel_class: type[RadialKernel]) -> None:
    for kernel, twin in zip(_forms(kernel_class).values(), _forms(kernel_class).values(), strict=True):
        assert kernel == twin
        assert hash(kernel) == hash(twin)
        assert kernel != kernel_class(1.0)
        assert from_spec(json.loads(json.dumps(kernel.spec()))) == kernel
        assert pickle.loads(pickle.dumps(kernel)) == kernel
        np.testing.assert_array_equal(kernel.block(X, Z), twin.block(X, Z))


@settings(max_examples=20, deadline=None)
@given(scales=st.lists(st.floats(0.1, 10.0), min_size=D, max_size=D), factor=st.floats(0.2, 5.0))
def test_the_ways_to_write_a_diagonal_agree(scales: list[float], factor: float) -> None:
    s = np.array(scales)
    expected = naive.kernel_matrix({"name": "gaussian", "length_scale": 1.0}, X / s, Z / s)
    same = [Gaussian(tuple(scales)), Gaussian(np.diag(s)), Gaussian.from_metric(np.diag(s**-2.0))]  # type: ignore[arg-type]
    same.append(Gaussian.from_metric(np.diag((factor / s) ** 2), length_scale=factor))
    for kernel in same:
        np.testing.assert_allclose(kernel.block(X, Z), expected, rtol=1e-9, atol=1e-12)


def test_one_number_for_all_features_is_a_number() -> None:
    np.testing.assert_allclose(Cauchy((2.0,) * D).block(X, Z), Cauchy(2.0).block(X, Z), rtol=1e-12)


def test_scales_per_feature_keep_rows_sparse_and_a_matrix_fills_them() -> None:
    rows = sparse.random_array((50, D), density=0.2, rng=np.random.default_rng(0), format="csr")
    scaled = Gaussian(SCALES).transform(rows)
    assert sparse.issparse(scaled)
    assert scaled.nnz == rows.nnz
    assert isinstance(Gaussian(L).transform(rows), np.ndarray)  # type: ignore[arg-type]
    assert Gaussian.from_metric(LOW_RANK @ LOW_RANK.T).transform(rows).shape == (50, 2)


@each_class
def test_the_median_is_that_of_distances_in_the_metric(kernel_class: type[RadialKernel]) -> None:
    metric = L @ L.T
    resolved = kernel_class.from_metric(metric, length_scale="median").resolve(X)
    expected = np.median(pdist(X @ np.linalg.cholesky(metric)))
    assert resolved.length_scale == pytest.approx(expected, rel=1e-9)
    assert kernel_class("median").resolve(sparse.csr_array(X)).length_scale == pytest.approx(np.median(pdist(X)))


@each_class
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_one_row_far_off_does_not_move_the_median(kernel_class: type[RadialKernel], container: Any) -> None:
    rows = np.random.default_rng(6).standard_normal((80, D))
    rows[3] = 1e8
    found = kernel_class("median").resolve(container(rows)).length_scale
    assert found == pytest.approx(np.median(pdist(rows)), rel=1e-6)


def test_of_rows_that_are_mostly_equal_the_median_is_that_of_the_others() -> None:
    rows = np.vstack([np.full((60, D), 3.0), X[:20]])
    apart = pdist(rows)
    found = Gaussian("median").resolve(rows).length_scale
    assert found == pytest.approx(np.median(apart[apart > 0]), rel=1e-9)


def test_far_rows_with_scales_keep_their_digits() -> None:
    rng = np.random.default_rng(5)
    near = rng.integers(-40, 40, (30, D)) / 8
    far = (near + 10_000).astype(np.float32)
    for kernel in _forms(Gaussian).values():
        expected = naive.kernel_matrix(dict(kernel.spec()), near, near)
        for engine in (nullcontext(), plain_products()):
            with engine:
                np.testing.assert_allclose(kernel.block(far.copy(), far), expected, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-13, 1e13, 1e25])
def test_scales_beyond_the_squares_of_float32_lose_nothing(scale: float) -> None:
    left, right = (rows.astype(np.float32) for rows in (X * scale, Z * scale))
    expected = naive.kernel_matrix({"name": "gaussian", "length_scale": scale}, left, right)
    np.testing.assert_allclose(Gaussian(scale).block(left, right), expected, rtol=6e-6)


@pytest.mark.parametrize("value", [(1.0, 2.0), ((1.0, 0.0), (0.0, 2.0))])
def test_scales_for_another_width_are_refused(value: object) -> None:
    kernel = Gaussian(value)  # type: ignore[arg-type]
    for call in (lambda: kernel.block(X, Z), lambda: kernel.points(Z), lambda: kernel.diagonal(X)):
        with pytest.raises(DataError, match="the gaussian kernel has length scales for 2 features, but rows have 5"):
            call()


def test_sparse_rows_and_far_dense_points_are_refused() -> None:
    kernel = Gaussian(2.0)
    far = Z + 1e4
    points = kernel.points(far, kernel.placement_for(far))
    with pytest.raises(DataError, match="got sparse rows and dense points far from the origin"):
        kernel.block(sparse.csr_array(X), points)


def test_metrics_with_the_noise_of_float32_are_taken() -> None:
    factor = LOW_RANK.astype(np.float32)
    noisy = (factor @ factor.T).astype(np.float32)
    noisy[0, 1] += 1e-7
    exact = Gaussian.from_metric(LOW_RANK @ LOW_RANK.T).block(X, Z)
    np.testing.assert_allclose(Gaussian.from_metric(noisy).block(X, Z), exact, rtol=1e-4)
    with pytest.raises(SpecError, match="positive semi-definite"):
        Gaussian.from_metric(-noisy)


def test_a_factor_is_a_metric_of_its_rank() -> None:
    rows, F = np.random.default_rng(0).standard_normal((20, 4)), np.random.default_rng(1).standard_normal((4, 2))
    factored, whole = Laplacian(1.5, factor=F), Laplacian(1.5, metric=F @ F.T)
    np.testing.assert_allclose(factored.block(rows, rows.copy()), whole.block(rows, rows.copy()), atol=1e-7)
    assert factored.has_units
    assert factored.feature_weights == pytest.approx((F**2).sum(axis=1))
    again = from_spec(json.loads(json.dumps(factored.spec())))
    assert again == factored


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"factor": np.zeros((3, 2))}, "not all 0"),
        ({"factor": np.ones((2, 3))}, "k at most d"),
        ({"factor": np.full((3, 2), np.nan)}, "finite"),
        ({"factor": np.ones((3, 2)), "metric": np.eye(3)}, "got a metric and a factor"),
        ({"factor": np.ones((3, 2)), "length_scale": (1.0, 2.0, 3.0)}, "got a factor and length scales per feature"),
    ],
    ids=["zero", "wide", "nan", "both", "scales"],
)
def test_other_factors_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Laplacian(**parameters)
