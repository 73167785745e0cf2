"""The chi-squared kernels against scikit-learn's, as models that are saved, and what they refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.metrics.pairwise import additive_chi2_kernel, chi2_kernel

import daskkern
from daskkern import AllRows, KernelRegressor, Landmarks
from daskkern.arrays import HostArray
from daskkern.errors import DataError, ModelError, SpecError
from daskkern.kernels import AdditiveChiSquared, ChiSquared, Gaussian, Kernel, from_spec, parse_kernel


def _rows(n: int, seed: int) -> HostArray:
    """Histograms with empty bins, some of them in both rows of a pair."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(7, 0.5), n) * (rng.uniform(size=(n, 7)) < 0.7)


def _expected(kernel: Kernel, X: HostArray, Z: HostArray) -> HostArray:
    if isinstance(kernel, ChiSquared):
        return chi2_kernel(X, Z, gamma=kernel.gamma)
    # Scikit-learn's is minus half of the squared distance in the space of this one, for which |phi|^2 = sum x.
    return (X.sum(axis=1)[:, None] + Z.sum(axis=1) + additive_chi2_kernel(X, Z)) / 2


EACH = pytest.mark.parametrize("kernel", [ChiSquared(0.7), AdditiveChiSquared()], ids=lambda kernel: kernel.name)


@EACH
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_values_and_products_are_those_of_scikit_learn(kernel: Kernel, sparse: bool) -> None:
    X, Z, rng = _rows(40, 0), _rows(30, 1), np.random.default_rng(2)
    K = _expected(kernel, X, Z)
    rows = scipy.sparse.csr_matrix(X) if sparse else X
    np.testing.assert_allclose(kernel.block(rows, Z), K, atol=1e-12)
    np.testing.assert_allclose(kernel.block(X.astype("float32"), Z.astype("float32")), K, atol=1e-5)
    A, G = rng.normal(size=(30, 2)), rng.normal(size=(40, 2))
    np.testing.assert_allclose(kernel.matvec(rows, Z, A), K @ A, atol=1e-11)
    np.testing.assert_allclose(kernel.rmatvec(rows, Z, G), K.T @ G, atol=1e-11)
    np.testing.assert_allclose(kernel.diagonal(rows), np.diag(_expected(kernel, X, X)), atol=1e-12)
    values = np.linalg.eigvalsh(kernel.block(X, X))
    assert values.min() > -1e-12 * values.max()


@EACH
def test_it_is_written_in_words_and_specs_and_added_to_others(kernel: Kernel) -> None:
    X, Z = _rows(9, 0), _rows(8, 1)
    assert from_spec(kernel.spec()) == kernel
    words = {"chi2": "chi2:0.7", "additive_chi2": "additive_chi2"}[kernel.name]
    assert parse_kernel(words) == kernel
    whole = parse_kernel(f"2*gaussian:3+{words}")
    np.testing.assert_allclose(whole.block(X, Z), 2 * Gaussian(3.0).block(X, Z) + kernel.block(X, Z), atol=1e-12)
    np.testing.assert_array_equal(from_spec(whole.spec()).block(X, Z), whole.block(X, Z))


@EACH
@pytest.mark.parametrize("basis", [AllRows(), Landmarks(25)], ids=lambda basis: basis.name)
def test_a_model_is_saved_and_refuses_onnx_in_a_sentence(kernel: Kernel, basis: Any, tmp_path: Path) -> None:
    X, new = _rows(60, 0), _rows(20, 1)
    y = np.sqrt(X[:, 0]) - X[:, 1] * X[:, 2]
    model = KernelRegressor(kernel, "squared", basis, "direct", alpha=1e-4, dtype="float64").fit(X, y)
    assert model.score(X, y) > 0.8
    model.save(tmp_path / "model.zarr")
    loaded = daskkern.load(tmp_path / "model.zarr")
    assert loaded.kernel == kernel
    np.testing.assert_allclose(loaded.predict(new), model.predict(new), atol=1e-12)
    with pytest.raises(ModelError, match=kernel.name):
        loaded.to_onnx(tmp_path / "model.onnx")


@EACH
def test_what_it_cannot_do_is_refused(kernel: Kernel) -> None:
    with pytest.raises(DataError, match="features of 0 or more, but found negative ones"):
        kernel.block(-_rows(4, 0) - 1, _rows(3, 0))
    with pytest.raises(SpecError, match="no gradients"):
        kernel.gradient_matvec(_rows(4, 0), _rows(3, 0), np.ones((3, 1)))


@pytest.mark.parametrize("gamma", [0.0, -1.0, np.inf])
def test_an_impossible_gamma_is_refused(gamma: float) -> None:
    with pytest.raises(SpecError, match="give a positive number"):
        ChiSquared(gamma)
