"""Code columns in kernels of differences: against one-hot rows, in every engine, and what gradients say of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist

from daskkern.arrays import FloatArray, HostArray
from daskkern.errors import DataError, SpecError
from daskkern.kernels import (
    AdditiveLaplacian,
    Gaussian,
    Kernel,
    L1Laplacian,
    PowerLaplacian,
    diagnose,
    from_spec,
    plain_products,
)
from tests.support.covering import pairwise

CODES, D = (1, 4), 6
SCALES = (2.0, 1.3, 0.5, 3.0, 0.7, 2.5)
KERNELS: dict[str, Any] = {
    "l1": L1Laplacian(1.7, categories=CODES),
    "l1 each": L1Laplacian(SCALES, categories=CODES),
    "pq each": PowerLaplacian(SCALES, 1.5, 1.0, categories=CODES),
    "additive each": AdditiveLaplacian(SCALES, degree=2, n_features=D, categories=CODES),
    "additive": AdditiveLaplacian(1.7, n_features=D, categories=CODES),
}
SORTS: dict[str, Any] = {"dense": np.asarray, "csr": sparse.csr_array}
EPS = {"float32": 1e-5, "float64": 1e-12}


def _rows(m: int, seed: int, n_codes: int = 4) -> HostArray:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((m, D)) * (rng.uniform(size=(m, D)) < 0.7)
    rows[:, CODES] = rng.integers(0, n_codes, (m, 2))
    return rows


X, Z = _rows(70, 0), _rows(90, 1)
A, G = np.random.default_rng(2).standard_normal((90, 3)), np.random.default_rng(3).standard_normal((70, 3))


def _naive(kernel: Any, x: HostArray, z: HostArray) -> FloatArray:
    """Return the kernel's values, feature by feature: a mismatch is a difference of 1."""
    scales = np.broadcast_to(kernel.length_scale, x.shape[1])
    gaps = np.abs(x[:, None].astype(float) - z[None].astype(float))
    gaps[:, :, CODES] = gaps[:, :, CODES] != 0
    gaps /= scales
    if isinstance(kernel, AdditiveLaplacian):
        return np.asarray(np.exp(-gaps).mean(axis=2) ** kernel.degree)
    return np.asarray(np.exp(-((gaps**kernel.p).sum(axis=2) ** (kernel.q / kernel.p))))


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("name", "dtype", "left", "right"), pairwise(KERNELS, EPS, SORTS, SORTS))
def test_products_of_both_engines_are_those_of_the_formula(name: str, dtype: str, left: str, right: str) -> None:
    kernel = KERNELS[name]
    x, z = SORTS[left](X.astype(dtype)), SORTS[right](Z.astype(dtype))
    K = _naive(kernel, X.astype(dtype), Z.astype(dtype))
    with plain_products():
        plain = kernel.block(x, z)
    for found in (kernel.block(x, z), plain):
        np.testing.assert_allclose(found, K, rtol=0, atol=EPS[dtype])
    np.testing.assert_allclose(kernel.matvec(x, z, A), K @ A, rtol=0, atol=90 * EPS[dtype])
    np.testing.assert_allclose(kernel.rmatvec(x, z, G), K.T @ G, rtol=0, atol=70 * EPS[dtype])
    np.testing.assert_allclose(kernel.double_product(x, z, A), K.T @ (K @ A), rtol=0, atol=9e3 * EPS[dtype])
    np.testing.assert_array_equal(kernel.diagonal(x), np.ones(70))


@pytest.mark.parametrize("dtype", EPS)
def test_the_kernel_is_that_of_one_hot_rows_of_half_the_weight(dtype: str) -> None:
    kernel = L1Laplacian(1.7, categories=CODES)

    def wide(rows: HostArray) -> HostArray:
        hot = [(rows[:, k, None] == np.arange(4)) / 2 for k in CODES]
        return np.hstack([np.delete(rows, CODES, axis=1), *hot])

    expected = np.exp(-cdist(wide(X), wide(Z), "cityblock") / 1.7)
    np.testing.assert_allclose(kernel.block(X.astype(dtype), Z.astype(dtype)), expected, rtol=0, atol=EPS[dtype])


def test_products_of_equal_and_of_joined_sides_keep_the_caps() -> None:
    rows = np.tile(_rows(300, 5), (1, 12)).astype("f4")  # 72 features: half of a symmetric product is computed
    codes = tuple(k for k in range(72) if k % 6 in CODES)
    kernel = L1Laplacian(20.0, categories=codes)
    gaps = np.abs(rows[:, None].astype(float) - rows[None])
    gaps[:, :, codes] = gaps[:, :, codes] != 0
    K = np.exp(-gaps.sum(axis=2) / 20)
    a = np.random.default_rng(1).standard_normal((300, 2))
    np.testing.assert_allclose(kernel.block(rows, rows), K, rtol=0, atol=1e-5)
    np.testing.assert_allclose(kernel.matvec(rows, rows, a), K @ a, rtol=0, atol=1e-3)
    both = kernel.points(rows[:200]).join(kernel.points(rows[200:]))
    np.testing.assert_allclose(kernel.matvec(rows, both, a), K @ a, rtol=0, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    scale=st.floats(1e-30, 1e30), each=st.booleans(), dtype=st.sampled_from(["float32", "float64"]),
    first=st.integers(0, (1 << 24) - 1), seed=st.integers(0, 99),
)  # fmt: skip
def test_neighbouring_codes_are_a_whole_mismatch_apart(
    scale: float, each: bool, dtype: str, first: int, seed: int
) -> None:
    length = (scale, 1.0) if each else scale
    kernel = AdditiveLaplacian(length, n_features=2, categories=(0,)) if seed % 2 else L1Laplacian(
        length, categories=(0,)
    )  # fmt: skip
    rows = np.array([[first, 0.0], [first + 1, 0.0]]).astype(dtype)
    far = np.array([[0, 0.0], [1 << 24, 0.0]]).astype(dtype)
    mismatch = np.exp(-1 / scale)
    mismatch = (1 + mismatch) / 2 if seed % 2 else mismatch
    for pair in (rows, far):
        with plain_products():
            plain = kernel.block(pair, pair.copy())
        for K in (plain, kernel.block(pair, pair.copy())):
            np.testing.assert_allclose(K, [[1, mismatch], [mismatch, 1]], rtol=1e-5, atol=1e-30)


def test_a_scale_beyond_the_range_of_float32_counts_as_nothing_or_everything() -> None:
    rows = np.array([[0.0], [100_000.0]], "f4")
    for scale, value in ((1e60, 1.0), (1e-60, 0.0)):
        for kernel in (L1Laplacian((scale,), categories=(0,)), L1Laplacian(scale, categories=(0,))):
            np.testing.assert_allclose(kernel.block(rows, rows.copy()), [[1, value], [value, 1]], atol=1e-37)


def test_reduced_precisions_do_not_make_categories_equal() -> None:
    rows = np.array([[2049.0, 1.0], [2048.0, 1.0], [70_001.0, 1.0]], "f4")
    kernel = L1Laplacian(1.0, categories=(0,))
    for precision in ("tf32", "float16"):
        K = kernel.block(rows, kernel.points(rows.copy(), precision=precision))  # type: ignore[arg-type]
        np.testing.assert_allclose(K, np.where(np.eye(3) > 0, 1, np.exp(-1)), rtol=1e-6)


@pytest.mark.parametrize("sort", SORTS)
def test_medians_count_mismatches(sort: str) -> None:
    rows = _rows(50, 7, 300)
    gaps = np.abs(rows[:, None] - rows[None])
    gaps[:, :, CODES] = gaps[:, :, CODES] != 0
    upper = np.triu_indices(50, 1)
    found = L1Laplacian("median", categories=CODES).resolve(SORTS[sort](rows)).length_scale
    assert found == pytest.approx(np.median(gaps.sum(axis=2)[upper]), rel=1e-12)
    pairs = gaps[upper].ravel()
    found = AdditiveLaplacian("median", categories=CODES).resolve(SORTS[sort](rows)).length_scale
    assert found == pytest.approx(np.median(pairs[pairs > 0]), rel=1e-12)


def test_far_rows_are_shifted_without_their_codes() -> None:
    rows = _rows(60, 3)
    rows[:, 0] += 1e6
    kernel = L1Laplacian(SCALES, categories=CODES)
    shift = kernel.shift_for(rows)
    assert shift is not None
    assert shift[0] > 9e5
    assert not shift[list(CODES)].any()
    np.testing.assert_allclose(kernel.block(rows, rows.copy()), _naive(kernel, rows, rows), atol=1e-9)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kernel", [KERNELS["l1 each"], KERNELS["pq each"], KERNELS["additive each"]], ids=repr)
def test_gradients_are_slopes_and_differences_from_the_mean_over_categories(kernel: Kernel) -> None:
    x, step = X[:9].copy(), 1e-6
    found = kernel.gradient_matvec(x, Z, A)
    for k in range(D):
        if k not in CODES:
            ahead, behind = x.copy(), x.copy()
            ahead[:, k] += step
            behind[:, k] -= step
            slopes = (kernel.matvec(ahead, Z, A) - kernel.matvec(behind, Z, A)) / (2 * step)
            moved = x[:, k] != 0  # elsewhere is a kink: rows of Z have 0 there, too
            np.testing.assert_allclose(found[moved, :, k], slopes[moved], atol=1e-5)
            continue
        mean = np.zeros((9, 3))
        for code in Z[:, k]:
            other = x.copy()
            other[:, k] = code
            mean += kernel.matvec(other, Z, A) / len(Z)
        np.testing.assert_allclose(found[:, :, k], kernel.matvec(x, Z, A) - mean, atol=1e-10)
    weights = np.random.default_rng(1).uniform(size=(9, 90))
    each = [kernel.gradient_matvec(x[i : i + 1], Z, A * weights[i, :, None])[0] for i in range(9)]
    np.testing.assert_allclose(kernel.gradient_matvec(x, Z, A, weights), each, atol=1e-10)


def test_sums_products_and_multiples_have_the_categories_of_their_members() -> None:
    both = (L1Laplacian(2.0) + 0.5 * L1Laplacian(5.0)).with_categories(CODES)
    expected = _naive(L1Laplacian(2.0), X, Z) + 0.5 * _naive(L1Laplacian(5.0), X, Z)
    assert both.coordinates is not None
    mixed = (L1Laplacian(2.0) + 0.5 * PowerLaplacian(5.0, 1.0, 1.0)) * AdditiveLaplacian(2.0, n_features=D)
    product = mixed.with_categories(CODES)
    for kernel, values in ((both, expected), (product, expected * _naive(AdditiveLaplacian(2.0), X, Z))):
        np.testing.assert_allclose(kernel.block(X, Z), values, rtol=0, atol=1e-13)
        assert from_spec(dict(kernel.spec())) == kernel
    with pytest.raises(SpecError, match="the gaussian kernel has no categories: ingest with --categorical onehot"):
        (L1Laplacian(2.0) + Gaussian(1.0)).with_categories(CODES)


def test_specs_name_categories_only_where_there_are_some() -> None:
    plain = L1Laplacian(2.0)
    assert plain.with_categories(()) is plain
    assert "categories" not in plain.spec()
    kernel = plain.with_categories(np.array([4, 1]).tolist())
    assert kernel.spec() == {"name": "laplacian_l1", "length_scale": 2.0, "categories": [1, 4]}
    assert from_spec(dict(kernel.spec())) == kernel
    assert Gaussian(1.0).with_categories(()) == Gaussian(1.0)


@pytest.mark.parametrize("wrong", [(1, 1), (-1,), (0.5,), 3, "ab", [[1]]])
def test_categories_that_are_no_columns_are_refused(wrong: Any) -> None:
    with pytest.raises(SpecError, match="expected the numbers of different columns, from 0"):
        L1Laplacian(1.0, categories=wrong)


def test_what_has_no_categories_says_so() -> None:
    with pytest.raises(SpecError, match="with p=2; expected p below 2"):
        PowerLaplacian(1.0, 2.0, 1.0, categories=(0,))
    with pytest.raises(SpecError, match="got a matrix as length_scale of the laplacian_l1 kernel with categories"):
        L1Laplacian(np.eye(2), categories=(0,))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="has categories in column 6, but rows have 6 features"):
        L1Laplacian(1.0, categories=(6,)).block(X, Z)


def test_a_code_column_of_wide_range_is_no_reason_for_a_singular_matrix() -> None:
    rows = _rows(200, 1, 100_000)
    assert "decides all distances" in diagnose(L1Laplacian(1.0), rows, "f4").found
    assert "decides all distances" not in diagnose(L1Laplacian(1.0, categories=CODES), rows, "f4").found
