"""Sums, products and multiples of kernels: as one formula, and tile by tile."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_digits

from daskkern import KernelClassifier, load
from daskkern.basis import Landmarks
from daskkern.errors import SpecError
from daskkern.kernels import (
    CallableKernel,
    Cauchy,
    Gaussian,
    InversePolynomial,
    Kernel,
    Laplacian,
    LinearKernel,
    Placement,
    Polynomial,
    Product,
    Scaled,
    Sum,
    from_spec,
    parse_kernel,
    plain_products,
)
from tests.support import naive
from tests.support.covering import pairwise

SCALES = (0.5, 2.0, 1.0, 3.0)
X = np.random.default_rng(0).standard_normal((60, 4))
Z = np.random.default_rng(1).standard_normal((45, 4))
ONE_PASS = [
    Gaussian(2.0) + Laplacian(3.0),
    0.5 * Gaussian(2.0) + 2 * LinearKernel(),
    Gaussian(2.0) * Polynomial(2, gamma=0.1) + 3.0 * InversePolynomial() * LinearKernel(),
    2 * (Gaussian(SCALES) + Cauchy(SCALES)),
]
IN_PARTS = [
    Gaussian(SCALES) + Laplacian(3.0),
    Gaussian(SCALES) * LinearKernel() + 0.1 * Cauchy(1.0),
    3 * (Gaussian(SCALES) * Laplacian(2.0)),
]
TOLERANCES = {"float64": 1e-12, "float32": 3e-6}
atoms = st.sampled_from(
    [Gaussian(2.0), Laplacian(SCALES), Cauchy(1.5), LinearKernel(), InversePolynomial(), Cauchy(SCALES)]
)
kernels = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda f, k: f * k, st.floats(0.1, 10), inner),
    ),
    max_leaves=4,
)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("kernel", "sort", "dtype"), pairwise(ONE_PASS + IN_PARTS, ["dense", "csr"], TOLERANCES))
def test_products_equal_those_of_the_formula(kernel: Kernel, sort: str, dtype: str) -> None:
    rows, tolerance = sparse.csr_array if sort == "csr" else np.asarray, TOLERANCES[dtype]
    left, right = rows(X.astype(dtype)), rows(Z.astype(dtype))
    K = naive.kernel_matrix(dict(kernel.spec()), X.astype(dtype), Z.astype(dtype))
    A, G = np.ones((45, 2)), np.linspace(-1, 1, 60)[:, None]
    size = tolerance * np.abs(K).max()
    np.testing.assert_allclose(kernel.block(left, right), K, rtol=0, atol=4 * size)
    np.testing.assert_allclose(kernel.matvec(left, right, A), K @ A, rtol=0, atol=100 * size)
    np.testing.assert_allclose(kernel.rmatvec(left, right, G), K.T @ G, rtol=0, atol=100 * size)
    np.testing.assert_allclose(kernel.double_product(left, right, A), K.T @ K @ A, rtol=0, atol=1e4 * size * 9)


@settings(max_examples=30, deadline=None)
@given(one=kernels, other=kernels, factor=st.floats(0.1, 10))
def test_algebra_of_kernels_is_algebra_of_blocks(one: Kernel, other: Kernel, factor: float) -> None:
    with plain_products():
        rows, columns = X[:9], Z[:7]
        a, b = one.block(rows, columns), other.block(rows, columns)
        for kernel, expected in ((one + other, a + b), (one * other, a * b), (factor * one, factor * a)):
            np.testing.assert_allclose(kernel.block(rows, columns), expected, rtol=1e-10, atol=1e-12)
            square = kernel.block(rows, rows)
            np.testing.assert_array_equal(square.diagonal(), kernel.diagonal(rows))
            np.testing.assert_allclose(square, square.T, rtol=1e-10, atol=1e-12)
            eigenvalues = np.linalg.eigvalsh(square)
            assert eigenvalues[0] > -1e-10 * eigenvalues[-1]


@given(kernel=kernels)
def test_every_composite_survives_its_spec(kernel: Kernel) -> None:
    assert from_spec(json.loads(json.dumps(kernel.spec()))) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert hash(from_spec(kernel.spec())) == hash(kernel)


def test_members_in_the_same_coordinates_are_one_formula() -> None:
    for kernel in ONE_PASS:
        points = kernel.points(Z)
        assert points.parts == ()
        assert kernel.left(X, points).parts == ()
    for kernel in IN_PARTS:
        assert kernel.points(Z).parts != ()


def test_a_fused_sum_is_compiled_like_one_kernel() -> None:
    assert (Gaussian(2.0) + LinearKernel()).points(Z).packed is not None


def test_far_rows_are_shifted_for_the_members_that_may_be() -> None:
    rng = np.random.default_rng(2)
    rows, columns = ((rng.integers(-30, 30, (n, 3)) / 4 + 4096).astype(np.float32) for n in (40, 50))
    kernel = Gaussian(3.0) + 1e-8 * LinearKernel() * Laplacian((2.0, 3.0, 4.0))
    shift = kernel.shift_for(columns)
    assert shift is not None
    assert kernel.points(columns, Placement(shift)).parts != ()  # though it is one formula in part
    expected = naive.kernel_matrix(dict(kernel.spec()), rows, columns)
    np.testing.assert_allclose(kernel.block(rows, columns), expected, atol=6e-5)
    assert (Gaussian(3.0) + Laplacian(2.0)).points(columns, Placement(shift)).parts == ()
    assert (2 * LinearKernel() + Polynomial(2, gamma=1.0)).shift_for(columns) is None


def test_points_of_composites_are_joined() -> None:
    for kernel in (IN_PARTS[0], ONE_PASS[0]):
        joined = kernel.points(Z[:20]).join(kernel.points(Z[20:]))
        np.testing.assert_allclose(kernel.block(X, joined), kernel.block(X, Z), rtol=1e-12)


def test_data_dependent_members_are_resolved() -> None:
    kernel = parse_kernel("gaussian:median + 2*polynomial:2*laplacian:median")
    with pytest.raises(SpecError, match=r"depends on data|'median'"):
        kernel.block(X, Z)
    resolved = kernel.resolve(X)
    assert isinstance(resolved, Sum)
    assert resolved.kernels[0] == Gaussian("median").resolve(X)
    assert resolved.block(X, Z).shape == (60, 45)


def test_a_model_of_a_composite_is_saved(tmp_path: Path) -> None:
    X, y = load_digits(return_X_y=True)
    kernel = Gaussian(tuple(np.linspace(2, 4, 64))) * (LinearKernel() + Gaussian("median")) + 0.5 * Laplacian("median")
    model = KernelClassifier(kernel=kernel, basis=Landmarks(200), max_epochs=3).fit(X[:900] / 16, y[:900])
    assert model.score(X[900:] / 16, y[900:]) > 0.85
    model.save(tmp_path / "model.zarr")
    loaded = load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(loaded.predict(X[900:] / 16), model.predict(X[900:] / 16))


def test_how_composites_nest() -> None:
    one, two, three = Gaussian(1.0), LinearKernel(), Cauchy(2.0)
    assert (one + two) + three == one + (two + three) == Sum((one, two, three))
    assert (one * two) * three == Product((one, two, three))
    assert 2 * (3 * one) == Scaled(one, 6.0) == np.float64(2) * (one * 3)


def test_composites_of_functions_are_kernels_but_cannot_be_saved() -> None:
    kernel = CallableKernel(lambda X, Z: X @ Z.T) + LinearKernel()
    np.testing.assert_allclose(kernel.block(X, Z), 2 * X @ Z.T, rtol=1e-12, atol=1e-12)
    with pytest.raises(SpecError, match="cannot be saved"):
        kernel.spec()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian() + 1.0,
        lambda: Gaussian() * "linear",
        lambda: -1.0 * Gaussian(),
        lambda: 0 * Gaussian(),
        lambda: Gaussian() * float("nan"),
        lambda: True * Gaussian(),
        lambda: Sum(()),
        lambda: Scaled(3.0, 2.0),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_kernel_is_refused(make: object) -> None:
    with pytest.raises(SpecError, match=r"is not a kernel|give a positive finite number|of no kernels"):
        make()  # type: ignore[operator]
