"""The L1 and L_pq Laplacians: against SciPy and scikit-learn, against differences, and what they share with others."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist, pdist
from sklearn.metrics.pairwise import laplacian_kernel

from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.kernels import (
    Gaussian,
    Kernel,
    L1Laplacian,
    Laplacian,
    PowerLaplacian,
    from_spec,
    parse_kernel,
    plain_products,
)
from daskkern.kernels.engines.tiled import difference_sums
from daskkern.kernels.formula import PAIR, exp, program
from daskkern.kernels.norms import Difference
from tests.support import naive
from tests.support.covering import pairwise
from tests.support.traced_memory import traced_peak

rng = np.random.default_rng(0)
X = rng.standard_normal((70, 6)) * (rng.uniform(size=(70, 6)) < 0.6)
Z = rng.standard_normal((90, 6)) * (rng.uniform(size=(90, 6)) < 0.6)
A, G = rng.standard_normal((90, 3)), rng.standard_normal((70, 3))
X[0], Z[0], Z[1] = 0, 0, X[1]
POWERS = {f"{p:g},{q:g}": (p, q) for p, q in [(1, 0.5), (1, 0.7), (1.5, 1), (0.7, 0.3), (0.5, 0.5), (2, 1.3), (2, 2)]}
SORTS: dict[str, Any] = {"dense": np.asarray, "csr": sparse.csr_array}
EPS = {"float32": 2e-5, "float64": 1e-12}


def _scaled(p: float, q: float) -> PowerLaplacian:
    return PowerLaplacian((2.0, 1.0, 0.5, 3.0, 1.0, 2.5), p, q)


@pytest.mark.one_in(11)
@pytest.mark.parametrize(("powers", "dtype", "left", "right"), pairwise(POWERS, EPS, SORTS, SORTS))
def test_products_of_both_engines_are_those_of_the_formula(powers: str, dtype: str, left: str, right: str) -> None:
    kernel = _scaled(*POWERS[powers])
    x, z = SORTS[left](X.astype(dtype)), SORTS[right](Z.astype(dtype))
    K = naive.kernel_matrix(kernel.spec(), X.astype(dtype), Z.astype(dtype))
    for found in (kernel.block(x, z), _plain(kernel, x, z)):
        np.testing.assert_allclose(found, K, rtol=0, atol=EPS[dtype])
    np.testing.assert_allclose(kernel.matvec(x, z, A), K @ A, rtol=0, atol=90 * EPS[dtype])
    np.testing.assert_allclose(kernel.rmatvec(x, z, G), K.T @ G, rtol=0, atol=70 * EPS[dtype])
    np.testing.assert_allclose(kernel.double_product(x, z, A), K.T @ (K @ A), rtol=0, atol=9e3 * EPS[dtype])


def _plain(kernel: Kernel, x: Any, z: Any) -> HostArray:
    with plain_products():
        found: HostArray = kernel.block(x, z)
    return found


@pytest.mark.parametrize("d", [1, 3, 700])
def test_values_are_those_of_scipy_and_scikit_learn(d: int) -> None:
    x, z = rng.standard_normal((31, d)), rng.standard_normal((45, d))
    np.testing.assert_allclose(L1Laplacian(2.0 * d).block(x, z), laplacian_kernel(x, z, gamma=0.5 / d), rtol=1e-12)
    by_scipy = np.exp(-((cdist(x, z, "minkowski", p=1.5) / d) ** 0.8))
    np.testing.assert_allclose(PowerLaplacian(float(d), 1.5, 0.8).block(x, z), by_scipy, rtol=1e-11)
    single = L1Laplacian(2.0 * d).block(x.astype("f4"), z.astype("f4"))
    np.testing.assert_allclose(single, laplacian_kernel(x, z, gamma=0.5 / d), rtol=0, atol=2e-6)


def test_special_cases_are_the_kernels_with_a_name() -> None:
    np.testing.assert_allclose(PowerLaplacian(3.0, 1, 1).block(X, Z), L1Laplacian(3.0).block(X, Z), rtol=1e-14)
    np.testing.assert_allclose(PowerLaplacian(3.0, 2, 1).block(X, Z), Laplacian(3.0).block(X, Z), rtol=1e-12)
    gaussian = Gaussian(3.0 / 2**0.5)
    np.testing.assert_allclose(PowerLaplacian(3.0, 2, 2).block(X, Z), gaussian.block(X, Z), rtol=1e-12)


@pytest.mark.parametrize(("p", "q"), [(0, 0), (1, 1.5), (2.1, 1), (1, 0), (1, -1), (float("nan"), 1), ("one", 1)])
def test_powers_for_which_it_is_not_positive_definite_are_refused(p: Any, q: Any) -> None:
    with pytest.raises(SpecError, match=r"got p=.* and q=.* for the laplacian_pq kernel; expected 0 < q <= p <= 2"):
        PowerLaplacian(1.0, p, q)


@settings(max_examples=60, deadline=None)
@given(
    p=st.floats(0.1, 2), share=st.floats(0.1, 1), scale=st.floats(0.05, 20), m=st.integers(2, 30), d=st.integers(1, 6),
    seed=st.integers(0, 1 << 30),
)  # fmt: skip
def test_it_is_positive_definite(p: float, share: float, scale: float, m: int, d: int, seed: int) -> None:
    rows = np.random.default_rng(seed).integers(-3, 4, (m, d)).astype(float)  # with equal rows and features
    K = PowerLaplacian(scale, p, share * p).block(rows, rows.copy())
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(K.diagonal(), np.ones(m))
    assert np.linalg.eigvalsh(K)[0] >= -1e-11 * m


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (1.0, 0.5), (1.5, 1.0), (2.0, 1.0)])
@pytest.mark.parametrize("sort", SORTS)
def test_the_median_is_that_of_its_own_distance(p: float, q: float, sort: str) -> None:
    rows = np.random.default_rng(3).standard_normal((50, 4))
    expected = np.median(pdist(rows, "minkowski", p=p))
    assert PowerLaplacian("median", p, q).resolve(SORTS[sort](rows)).length_scale == pytest.approx(expected, rel=1e-12)
    with pytest.raises(DataError, match="the median distance between rows is 0"):
        PowerLaplacian("median", p, q).resolve(SORTS[sort](np.ones((9, 3)) / 3))


@pytest.mark.parametrize("kernel", [
    L1Laplacian(1.5), PowerLaplacian(1.5, 1, 0.6), _scaled(1.5, 1.0), PowerLaplacian(0.8, 0.7, 0.7), _scaled(2, 1.5),
    PowerLaplacian(rng.standard_normal((6, 6)).tolist(), 1.2, 1.0),
], ids=repr)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradient_is_the_limit_of_differences(kernel: PowerLaplacian, dtype: str) -> None:
    x, z = rng.uniform(-1, 1, (13, 6)), rng.uniform(-1, 1, (90, 6))
    found = kernel.gradient_matvec(x.astype(dtype), sparse.csr_array(z.astype(dtype)), A)
    expected = np.zeros((13, 3, 6))
    for feature in range(6):
        step = 1e-7 * np.eye(6)[feature]
        expected[:, :, feature] = (kernel.matvec(x + step, z, A) - kernel.matvec(x - step, z, A)) / 2e-7
    assert found.shape == (13, 3, 6)
    assert found.dtype == np.float64
    close = 1e-4 if dtype == "float64" else 5e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=close * np.abs(expected).max())


@pytest.mark.parametrize("powers", [(1.0, 1.0), (1.0, 0.5), (0.5, 0.5), (1.7, 0.9)])
def test_features_that_coincide_add_nothing_to_the_gradient(powers: tuple[float, float]) -> None:
    kernel = PowerLaplacian(2.0, *powers)
    x, z = np.array([[0.3, -1.0], [2.0, 2.0]]), np.array([[0.3, 1.0], [2.0, 2.0]])
    gradient = kernel.gradient_matvec(x, z, np.array([[1.0], [0.0]]))
    assert gradient[0, 0, 0] == 0
    assert gradient[0, 0, 1] > 0  # the value grows towards the other row
    np.testing.assert_array_equal(kernel.gradient_matvec(x[1:], z[1:], np.ones((1, 1))), np.zeros((1, 1, 2)))


def test_differences_are_exact_however_far_and_wide_the_rows_are() -> None:
    rows = (rng.integers(0, 50, (60, 5)) + 2.0**23).astype("f4")
    for kernel in (L1Laplacian(20.0), PowerLaplacian((7.0, 9.0, 11.0, 13.0, 15.0), 1.0, 1.0)):
        expected = naive.kernel_matrix(kernel.spec(), rows, rows)
        np.testing.assert_allclose(kernel.block(rows.copy(), rows), expected, rtol=0, atol=1e-6)
    wide = (1e6 * rng.standard_normal((60, 5))).astype("f4")
    near = wide + np.float32(0.25)
    kernel = L1Laplacian(1.0)
    assert kernel.placement_for(wide).shift is None
    assert not kernel.placement_for(wide).wide
    assert kernel.rounding(wide).error == 0
    assert Laplacian(1.0).placement_for(wide).wide
    np.testing.assert_allclose(kernel.block(near, wide).diagonal(), _diagonal(near, wide), rtol=0, atol=1e-6)


def _diagonal(x: HostArray, z: HostArray) -> HostArray:
    gaps: HostArray = np.exp(-np.abs(x.astype(np.float64) - z.astype(np.float64)).sum(axis=1))
    return gaps


def test_sparse_rows_that_spread_widely_get_float64_sums() -> None:
    rows = sparse.csr_array((1e6 * X).astype("f4"))
    kernel = L1Laplacian(1.0)
    found = kernel.rounding(rows)
    assert found.error > found.tolerance
    assert kernel.placement_for(rows).wide
    near = sparse.csr_array(rows)
    near.data = near.data + np.float32(0.25)
    expected = naive.kernel_matrix(kernel.spec(), near.toarray(), rows.toarray())
    np.testing.assert_allclose(kernel.block(near, rows), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sort", SORTS)
def test_the_plain_engine_holds_two_tiles_more(sort: str) -> None:
    m, p, d = 256, 512, 300
    x, z = rng.standard_normal((m, d)), rng.standard_normal((p, d))
    out = np.empty((m, p))
    peak = traced_peak(lambda: difference_sums(SORTS[sort](x), SORTS[sort](z), Difference(), out))
    np.testing.assert_allclose(out, cdist(x, z, "cityblock"), rtol=1e-12)
    copies = 0 if sort == "dense" else 8 * 4 * (m + p) * d
    assert peak < 2.5 * out.nbytes + copies


def test_sums_of_one_kind_are_one_formula_and_others_fill_tiles() -> None:
    both = L1Laplacian(2.0) + 0.5 * L1Laplacian(5.0)
    assert both.coordinates == L1Laplacian(1.0).coordinates
    mixed = L1Laplacian(2.0) * Gaussian(3.0) + PowerLaplacian(2.0, 1.5, 1.0)
    assert mixed.coordinates is None
    for kernel in (both, mixed):
        expected = naive.kernel_matrix(dict(kernel.spec()), X, Z)
        np.testing.assert_allclose(kernel.block(X, Z), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(kernel.matvec(X, Z, A), expected @ A, rtol=0, atol=1e-11)


def test_a_formula_has_one_sum_of_differences_and_nothing_else() -> None:
    for other in (PAIR.squared_distance, PAIR.power_sum(1.5)):
        with pytest.raises(SpecError, match=r"got a formula of absolute_sum and .*; expected one sum of differences"):
            program(exp(PAIR.absolute_sum * -1.0) + other)


def test_words_name_all_parameters() -> None:
    assert parse_kernel("laplacian_l1:median") == L1Laplacian("median")
    assert parse_kernel("laplacian_pq:median,p=1.5, q=1") == PowerLaplacian("median", 1.5, 1)
    assert parse_kernel("laplacian_pq:p=0.5,q=0.5") == PowerLaplacian("median", 0.5, 0.5)
    assert parse_kernel("2*rational_quadratic:3,alpha=0.5") == from_spec(
        {"name": "scaled", "factor": 2.0, "kernel": {"name": "rational_quadratic", "length_scale": 3.0, "alpha": 0.5}}
    )
    for text, words in [
        ("laplacian_pq:1,2", "'2' has no name; write NAME=NUMBER"),
        ("laplacian_pq:1,p=1,p=2", "gives p twice; give it once"),
        ("laplacian_pq:1,length_scale=2", "gives length_scale twice"),
        ("laplacian_l1:1,p=1", r"got p=1.0 for the laplacian_l1 kernel, which takes \['categories', 'length_scale'\]"),
        ("gaussian:1,nu=1", "got nu=1.0 for the gaussian kernel"),
    ]:
        with pytest.raises(SpecError, match=words):
            parse_kernel(text)
