"""Kernels that a user gives as a Python function."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.metrics.pairwise import chi2_kernel, laplacian_kernel, rbf_kernel
from sklearn.pipeline import make_pipeline

from daskkern import KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.basis import AllRows, Landmarks, Linear
from daskkern.errors import DataError, SpecError
from daskkern.kernels import CallableKernel, Gaussian, plain_products

X = np.random.default_rng(0).standard_normal((700, 3))
Z = np.random.default_rng(1).standard_normal((600, 3))


def l1_kernel(rows: HostArray, columns: HostArray) -> HostArray:
    return laplacian_kernel(rows, columns, gamma=0.5)


def test_products_of_a_function_are_products_of_its_block() -> None:
    kernel = CallableKernel(l1_kernel)
    K = l1_kernel(X, Z)
    A, G = np.ones((600, 2)), np.ones((700, 2))
    head = np.empty((700, 5))
    np.testing.assert_allclose(kernel.block(X, Z), K, rtol=1e-12)
    np.testing.assert_allclose(kernel.matvec(X, Z, A, head), K @ A, rtol=1e-12)
    np.testing.assert_allclose(head, K[:, :5], rtol=1e-12)
    np.testing.assert_allclose(kernel.rmatvec(X, Z, G), K.T @ G, rtol=1e-12)
    np.testing.assert_allclose(kernel.double_product(X, Z, A), K.T @ (K @ A), rtol=1e-12)
    with plain_products():
        np.testing.assert_allclose(kernel.block(X, Z), K, rtol=1e-12)


def additive_chi2(rows: HostArray, columns: HostArray) -> HostArray:
    """``sum_j 2 x_j z_j / (x_j + z_j)``"""
    total = rows[:, None] + columns[None]
    products = 2 * rows[:, None] * columns[None]
    found: HostArray = np.divide(products, total, out=np.zeros_like(total), where=total > 0).sum(axis=2)
    return found


def test_chi_squared_kernels_and_their_features_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    shares = rng.dirichlet(np.full(5, 0.5), 120).astype(np.float64)
    target = np.sqrt(shares[:, 0]) + shares[:, 1]

    def fitted(kernel: object, basis: object) -> KernelRegressor:
        return KernelRegressor(
            kernel=kernel, basis=basis, solver="direct", alpha=1e-3, scale=None, fit_intercept=False,
            precision="float64",
        )  # fmt: skip

    for function in (chi2_kernel, additive_chi2):
        K = function(shares, shares)
        expected = K @ np.linalg.solve(K + 0.12 * np.eye(120), target)
        model = fitted(function, AllRows()).fit(shares, target)
        np.testing.assert_allclose(model.predict(shares), expected, atol=1e-6)
    sampler = AdditiveChi2Sampler(sample_steps=3)
    features = make_pipeline(sampler, fitted("linear", Linear(intercept=False))).fit(shares, target)
    np.testing.assert_allclose(features.predict(shares), expected, atol=0.02)


def test_rows_arrive_as_they_are() -> None:
    seen: set[tuple[str, str]] = set()

    def function(rows: HostArray, columns: HostArray) -> HostArray:
        seen.add((type(rows).__name__, str(columns.dtype)))
        product = rows @ columns.T
        return product.toarray() if sparse.issparse(product) else product

    kernel = CallableKernel(function)
    kernel.block(X.astype(np.float16), Z.astype(np.float32))
    kernel.block(sparse.csr_array(X), sparse.csr_array(Z))
    assert seen == {("ndarray", "float32"), ("csr_array", "float64")}


def test_diagonal_is_that_of_the_block_or_of_its_own_function() -> None:
    kernel = CallableKernel(lambda a, b: (a @ b.T) ** 2)
    expected = (X * X).sum(axis=1) ** 2
    np.testing.assert_allclose(kernel.diagonal(X), expected, rtol=1e-12)
    own = CallableKernel(lambda a, b: (a @ b.T) ** 2, diagonal_function=lambda a: (a * a).sum(axis=1) ** 2)
    np.testing.assert_array_equal(own.diagonal(X), expected)
    np.testing.assert_array_equal(own.block(X, X).diagonal(), expected)
    assert kernel.diagonal(X[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda a, b: a @ a.T, r"'mine' must return an array of shape \(2, 3\); it returned ndarray of shape \(2, 2\)"),
        (lambda a, b: 1.0, r"it returned float of shape \(\)"),
        (lambda a, b: a @ b.T * np.nan, "'mine' gives values that are not finite"),
    ],
)
def test_a_wrong_function_is_found_by_its_first_call(function: object, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        CallableKernel(function, "mine").points(Z)  # type: ignore[arg-type]


def test_a_wrong_diagonal_is_refused() -> None:
    kernel = CallableKernel(rbf_kernel, diagonal_function=lambda a: np.ones((len(a), 1)))
    with pytest.raises(SpecError, match=r"must return an array of shape \(700,\)"):
        kernel.diagonal(X)


def test_what_is_no_function_is_refused() -> None:
    for make in (lambda: CallableKernel("rbf"), lambda: CallableKernel(rbf_kernel, "k", 3)):  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="is not a function"):
            make()


def test_rows_of_another_width_are_refused() -> None:
    kernel = CallableKernel(rbf_kernel)
    with pytest.raises(DataError, match="expected rows of 3 features"):
        kernel.block(X[:, :2], kernel.points(Z))


def test_a_function_cannot_be_saved() -> None:
    with pytest.raises(SpecError, match="'mine' is a Python function, which cannot be saved; pickle the estimator"):
        CallableKernel(rbf_kernel, "mine").spec()
    with pytest.raises(SpecError, match="has no formula"):
        _ = CallableKernel(rbf_kernel, "mine").program


def test_an_estimator_takes_a_function(tmp_path: Path) -> None:
    X, y = load_digits(return_X_y=True)
    model = KernelClassifier(kernel=l1_kernel, basis=Landmarks(200), max_epochs=3).fit(X[:900] / 16, y[:900])
    assert model.score(X[900:] / 16, y[900:]) > 0.8
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X[900:] / 16), model.predict(X[900:] / 16))
    with pytest.raises(SpecError, match="the kernel 'l1_kernel' is a Python function, which cannot be saved"):
        model.save(tmp_path / "model.zarr")


def test_functions_compare_by_identity() -> None:
    assert CallableKernel(rbf_kernel) == CallableKernel(rbf_kernel)
    assert CallableKernel(rbf_kernel) != CallableKernel(l1_kernel)
    assert CallableKernel(rbf_kernel) != Gaussian()
