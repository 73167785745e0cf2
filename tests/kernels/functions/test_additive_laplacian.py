"""The additive Laplacian: against its formula in every engine, its gradients, and what it learns from few rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from daskkern import KernelRegressor, ingest, sweep
from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.kernels import AdditiveLaplacian, from_spec, parse_kernel, plain_products
from tests.support import naive
from tests.support.covering import pairwise

rng = np.random.default_rng(0)
X = rng.standard_normal((70, 6)) * (rng.uniform(size=(70, 6)) < 0.6)
Z = rng.standard_normal((90, 6)) * (rng.uniform(size=(90, 6)) < 0.6)
A, G = rng.standard_normal((90, 3)), rng.standard_normal((70, 3))
X[0], Z[0], Z[1] = 0, 0, X[1]
SORTS: dict[str, Any] = {"dense": np.asarray, "csr": sparse.csr_array}
EPS = {"float32": 2e-6, "float64": 1e-12}
SCALES: dict[str, Any] = {"one": 0.7, "each": (2.0, 1.0, 0.5, 3.0, 1e-3, 2.5)}


@pytest.mark.one_in(9)
@pytest.mark.parametrize(
    ("scale", "degree", "dtype", "left", "right"), pairwise(SCALES, {1: 1, 2: 2, 5: 5}, EPS, SORTS, SORTS)
)
def test_products_of_both_engines_are_those_of_the_formula(
    scale: str, degree: int, dtype: str, left: str, right: str
) -> None:
    kernel = AdditiveLaplacian(SCALES[scale], degree=degree).resolve(X)
    x, z = SORTS[left](X.astype(dtype)), SORTS[right](Z.astype(dtype))
    K = naive.kernel_matrix(kernel.spec(), X.astype(dtype), Z.astype(dtype))
    with plain_products():
        plain = kernel.block(x, z)
    for found in (kernel.block(x, z), plain):
        np.testing.assert_allclose(found, K, rtol=0, atol=EPS[dtype])
    np.testing.assert_allclose(kernel.matvec(x, z, A), K @ A, rtol=0, atol=90 * EPS[dtype])
    np.testing.assert_allclose(kernel.rmatvec(x, z, G), K.T @ G, rtol=0, atol=70 * EPS[dtype])
    np.testing.assert_allclose(kernel.double_product(x, z, A), K.T @ (K @ A), rtol=0, atol=9e3 * EPS[dtype])
    np.testing.assert_array_equal(kernel.diagonal(x), np.ones(70))


@pytest.mark.parametrize("degree", [1, 3])
def test_gradients_are_those_of_differences(degree: int) -> None:
    kernel, step = AdditiveLaplacian((0.7, 1.0, 2.0, 0.5, 1.0, 3.0), degree=degree).resolve(X), 1e-6
    rows = rng.standard_normal((20, 6))
    found = kernel.gradient_matvec(rows, Z, A)
    for k in range(6):
        there, here = rows.copy(), rows.copy()
        there[:, k] += step
        here[:, k] -= step
        wanted = (kernel.matvec(there, Z, A) - kernel.matvec(here, Z, A)) / (2 * step)
        np.testing.assert_allclose(found[:, :, k], wanted, atol=1e-7)


@pytest.mark.long
@given(seed=st.integers(0, 50), degree=st.integers(1, 4), scale=st.floats(0.05, 20), d=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_it_is_positive_definite_and_1_at_0(seed: int, degree: int, scale: float, d: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((25, d))
    K = AdditiveLaplacian(scale, degree=degree).resolve(rows).block(rows, rows)
    assert np.linalg.eigvalsh(K).min() > -1e-10
    np.testing.assert_allclose(np.diagonal(K), 1)


def test_codes_with_a_short_length_scale_are_categories() -> None:
    codes = np.random.default_rng(1).integers(0, 5, (40, 3)).astype(float)
    K = AdditiveLaplacian(0.01, degree=2).resolve(codes).block(codes, codes)
    agree = (codes[:, None] == codes[None]).mean(axis=2)
    np.testing.assert_allclose(K, agree**2, atol=1e-12)


def test_the_median_is_that_of_differences_other_than_0() -> None:
    rows = np.array([[0.0, 1.0], [3.0, 1.0], [1.0, 1.0]])
    assert AdditiveLaplacian().resolve(rows).length_scale == 2.0
    assert AdditiveLaplacian().resolve(sparse.csr_array(rows)).length_scale == 2.0
    with pytest.raises(DataError, match="all sampled rows are equal"):
        AdditiveLaplacian().resolve(np.ones((5, 2)))


def test_words_and_specs_make_the_same_kernel() -> None:
    kernel = parse_kernel("additive_laplacian:0.5,degree=3")
    assert kernel == AdditiveLaplacian(0.5, degree=3)
    known = kernel.resolve(X)
    assert from_spec(dict(known.spec())) == known
    assert known.n_features == 6


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [({"degree": 0}, "degree=0"), ({"degree": 1.5}, "degree=1.5"), ({"n_features": 0}, "n_features=0")],
)
def test_what_makes_no_kernel_is_refused(settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(SpecError, match=wrong):
        AdditiveLaplacian(1.0, **settings)


def test_what_is_not_known_yet_is_said() -> None:
    with pytest.raises(SpecError, match=r"kernel\.resolve\(rows\)"):
        AdditiveLaplacian(1.0).block(X, Z)


def test_sweeps_refuse_it_in_a_sentence(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=X, y=rng.standard_normal(70))
    ingest(str(tmp_path / "rows.npz"), tmp_path / "rows.zarr")
    with pytest.raises(SpecError, match="shares nothing between length scales"):
        sweep(str(tmp_path / "rows.zarr"), kernel=AdditiveLaplacian(1.0))


def _sum(n: int, seed: int) -> tuple[HostArray, HostArray]:
    rows = np.random.default_rng(seed).uniform(-1, 1, (n, 10))
    return rows, np.sin(3 * rows).sum(axis=1)


@pytest.mark.long
def test_sums_of_effects_are_learned_from_few_rows() -> None:
    (rows, y), (T, t) = _sum(300, 0), _sum(500, 1)
    additive = KernelRegressor(kernel="additive_laplacian:median").fit(rows, y)
    product = KernelRegressor(kernel="laplacian_l1:median").fit(rows, y)
    assert 1 - additive.score(T, t) < 0.4 * (1 - product.score(T, t))
