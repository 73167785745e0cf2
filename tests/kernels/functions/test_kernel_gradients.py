"""Gradients of radial kernels by their rows, against differences and against formulas worked out by hand."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from daskkern.arrays import FloatArray
from daskkern.kernels import Cauchy, Gaussian, Laplacian, Matern, RadialKernel, RationalQuadratic, plain_products

D = 4
SCALES = (0.7, 2.0, 1.0, 3.0)
X = np.random.default_rng(0).standard_normal((13, D))
Z = np.random.default_rng(1).standard_normal((17, D))
A = np.random.default_rng(2).standard_normal((17, 3))
L = np.random.default_rng(3).standard_normal((D, D)) + 2 * np.eye(D)
CLASSES = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "cauchy": Cauchy,
    "matern12": lambda *s, **m: Matern(*s, nu=0.5, **m),
    "matern32": lambda *s, **m: Matern(*s, nu=1.5, **m),
    "matern52": lambda *s, **m: Matern(*s, nu=2.5, **m),
    "rational_quadratic": lambda *s, **m: RationalQuadratic(*s, alpha=1.3, **m),
}
KERNELS: list[RadialKernel] = [
    kernel
    for make in CLASSES.values()
    for kernel in (make(1.5), make(SCALES), make(L), make(0.8, metric=L[:, :2] @ L[:, :2].T), make(1e-13))
]


def _names(kernel: RadialKernel) -> str:
    form = "metric" if kernel.metric else {float: "number", tuple: "array"}[type(kernel.length_scale)]  # type: ignore[index]
    return f"{kernel.name}-{form}"


def _differences(kernel: RadialKernel, X: FloatArray, Z: FloatArray, step: float) -> FloatArray:
    gradient = np.zeros((len(X), A.shape[1], D))
    for feature in range(D):
        move = step * np.eye(D)[feature]
        gradient[:, :, feature] = (kernel.matvec(X + move, Z, A) - kernel.matvec(X - move, Z, A)) / (2 * step)
    return gradient


@pytest.mark.one_in(11)
@pytest.mark.parametrize("kernel", KERNELS, ids=_names)
def test_gradient_is_the_limit_of_differences(kernel: RadialKernel) -> None:
    unit = kernel.length_scale if kernel.length_scale == 1e-13 else 1.0
    found = kernel.gradient_matvec(unit * X, unit * Z, A)
    expected = _differences(kernel, unit * X, unit * Z, 1e-5 * unit)
    assert found.shape == (13, 3, D)
    np.testing.assert_allclose(unit * found, unit * expected, atol=2e-8)


# dk/dx = slope(r) (x - z) with unit length scale, worked out by hand
SLOPES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "gaussian": lambda r: -np.exp(-(r**2) / 2),
    "laplacian": lambda r: -np.exp(-r) / r,
    "cauchy": lambda r: -2 / (1 + r**2) ** 2,
    "matern12": lambda r: -np.exp(-r) / r,
    "matern32": lambda r: -3 * np.exp(-np.sqrt(3) * r),
    "matern52": lambda r: -5 / 3 * (1 + np.sqrt(5) * r) * np.exp(-np.sqrt(5) * r),
    "rational_quadratic": lambda r: -((1 + r**2 / 2.6) ** -2.3),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize("far", [0.0, 4096.0])
def test_gradient_is_the_formula(name: str, dtype: str, tolerance: float, far: float) -> None:
    kernel = CLASSES[name](1.0)
    rows, columns = (np.round(64 * given) / 64 for given in (X, Z))
    gaps = rows[:, None] - columns[None]
    r = np.sqrt((gaps**2).sum(axis=2))
    expected = np.einsum("ijl,jc->icl", SLOPES[name](r)[:, :, None] * gaps, A)
    left, right = (rows + far).astype(dtype), (columns + far).astype(dtype)
    np.testing.assert_allclose(kernel.gradient_matvec(left, right, A), expected, atol=tolerance)
    with plain_products():
        np.testing.assert_allclose(kernel.gradient_matvec(left, right, A), expected, atol=tolerance)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_rows_have_no_part_in_the_gradient(name: str, dtype: str) -> None:
    kernel = CLASSES[name](1.0)
    rows = X.astype(dtype)
    one = kernel.gradient_matvec(rows[:1], rows[:1], np.ones((1, 1)))
    np.testing.assert_allclose(one, 0, atol=1e-5 if dtype == "float32" else 1e-14)
    assert np.isfinite(kernel.gradient_matvec(rows, rows, np.ones((len(rows), 2)))).all()


def test_sparse_rows_have_the_gradients_of_dense_ones() -> None:
    rows, columns = sparse.csr_array(X * (X > 0)), sparse.csr_array(Z * (Z > 0))
    for kernel in (Gaussian(SCALES), Laplacian(2.0)):
        dense = kernel.gradient_matvec(rows.toarray(), columns.toarray(), A)
        np.testing.assert_allclose(kernel.gradient_matvec(rows, columns, A), dense, rtol=1e-12, atol=1e-14)
