"""Every kernel of the table, compiled and by NumPy: the same numbers up to rounding."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from daskkern.arrays import HostArray
from daskkern.kernels import KERNELS, Kernel, plain_products
from tests.support import naive
from tests.support.covering import pairwise
from tests.support.kernels.formulas import WITH_FORMULA

rng = np.random.default_rng(0)
X = rng.standard_normal((70, 6)) * (rng.uniform(size=(70, 6)) < 0.6)
Z = rng.standard_normal((90, 6)) * (rng.uniform(size=(90, 6)) < 0.6)
A, G = rng.standard_normal((90, 3)), rng.standard_normal((70, 3))
Product = Callable[[Kernel, HostArray, HostArray], HostArray]
PRODUCTS: dict[str, tuple[Product, Callable[[HostArray], HostArray]]] = {
    "block": (lambda k, x, z: k.block(x, z), lambda K: K),
    "matvec": (lambda k, x, z: k.matvec(x, z, A), lambda K: K @ A),
    "rmatvec": (lambda k, x, z: k.rmatvec(x, z, G), lambda K: K.T @ G),
    "double_product": (lambda k, x, z: k.double_product(x, z, A), lambda K: K.T @ (K @ A)),
}
_EPS = {"float32": 2e-5, "float64": 1e-13}
_ROWS = {"dense": np.asarray, "csr": sparse.csr_array}


def _kernel(name: str) -> Kernel:
    return KERNELS[name].kernel().resolve(X)


# Each case compiles its own code; test_native_products.py has all dtypes, sorts of rows and products of one formula.
@pytest.mark.one_in(7)
@pytest.mark.parametrize(("name", "dtype", "sort", "product"), pairwise(WITH_FORMULA, _EPS, _ROWS, PRODUCTS))
def test_both_engines_give_the_product_of_the_formula(name: str, dtype: str, sort: str, product: str) -> None:
    kernel, rows = _kernel(name), _ROWS[sort]
    compute, reference = PRODUCTS[product]
    x, z = X.astype(dtype), Z.astype(dtype)
    K = naive.kernel_matrix(dict(kernel.spec()), x, z)
    expected, size = reference(K), np.abs(reference(np.abs(K))).max() * _EPS[dtype]
    compiled = compute(kernel, rows(x), rows(z))
    with plain_products():
        plain = compute(kernel, rows(x), rows(z))
    np.testing.assert_allclose(compiled, expected, rtol=0, atol=10 * size)
    np.testing.assert_allclose(plain, expected, rtol=0, atol=10 * size)
    np.testing.assert_allclose(compiled, plain, rtol=0, atol=size)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", WITH_FORMULA)
@settings(max_examples=10, deadline=None)
@given(m=st.integers(1, 24), d=st.integers(1, 5), scale=st.floats(0.01, 100), seed=st.integers(0, 1 << 30))
def test_small_gram_matrices_are_symmetric_and_positive_semi_definite(
    name: str, m: int, d: int, scale: float, seed: int
) -> None:
    rows = scale * np.random.default_rng(seed).integers(-3, 4, (m, d))  # with equal, opposite and zero rows
    kernel = KERNELS[name].kernel().resolve(X[:, :d])
    K = kernel.block(rows, rows)
    size = np.abs(K).max() if K.size else 1.0
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-7 * size)
    np.testing.assert_array_equal(K.diagonal(), kernel.diagonal(rows))
    np.testing.assert_array_equal(kernel.block(rows, rows.copy()).shape, (m, m))
    assert np.linalg.eigvalsh((K + K.T) / 2)[0] >= -1e-6 * m * size
