"""The EigenPro kernel against dense algebra, in methods of this package, and in one of scikit-learn."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import SVC

import daskkern
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, Laplacian
from daskkern.preconditioners import EigenProKernel
from tests.support import naive

RNG = np.random.default_rng(0)
S, X, Z = RNG.standard_normal((60, 4)), RNG.standard_normal((25, 4)), RNG.standard_normal((13, 4))


@pytest.mark.parametrize(("rho", "tau"), [(1.0, 1.0), (0.5, 0.25)])
def test_it_subtracts_the_damped_directions(rho: float, tau: float) -> None:
    kernel = Laplacian(3.0)
    found = EigenProKernel.of(kernel, S, 7, rho, tau)
    K_SS, K_XS, K_ZS = (naive.kernel_matrix(kernel.spec(), rows, S) for rows in (S, X, Z))
    values, vectors = np.linalg.eigh(K_SS / 60)
    expected = naive.kernel_matrix(kernel.spec(), X, Z)
    for i in range(1, 8):
        damping = (1 - (tau * values[-8] / values[-i]) ** rho) / (60 * values[-i])
        expected -= damping * np.outer(K_XS @ vectors[:, -i], K_ZS @ vectors[:, -i])
    np.testing.assert_allclose(found(X, Z), expected, atol=1e-9)
    np.testing.assert_allclose(found(scipy.sparse.csr_matrix(X), Z), expected, atol=1e-9)
    np.testing.assert_allclose(found.diagonal(X), np.diag(found(X, X)), atol=1e-9)
    assert found(X.astype(np.float32), Z.astype(np.float32)).dtype == np.float32


def test_its_leading_eigenvalues_on_the_sample_are_equal_and_the_others_stay() -> None:
    found = EigenProKernel.of(Gaussian(2.0), S, 7)
    before = np.linalg.eigvalsh(Gaussian(2.0).block(S, S))[::-1]
    after = np.linalg.eigvalsh(found(S, S))[::-1]
    np.testing.assert_allclose(after[:8], before[7], rtol=1e-6)
    np.testing.assert_allclose(after[8:], before[8:], atol=1e-8)


def test_any_kernel_method_takes_it() -> None:
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    kernel = EigenProKernel.of(Gaussian(1.0), X, 5)
    K = kernel(X, X)
    machine = SVC(kernel=kernel, C=10).fit(X, y)
    np.testing.assert_array_equal(machine.predict(X), SVC(kernel="precomputed", C=10).fit(K, y).predict(K))
    model = daskkern.KernelRegressor(
        kernel=kernel.as_kernel(), basis=daskkern.AllRows(), solver="direct", alpha=0.1, scale=None,
        fit_intercept=False, precision="float64",
    )  # fmt: skip
    target = X[:, 0]
    expected = K @ np.linalg.solve(K + 0.1 * len(K) * np.eye(len(K)), target)
    np.testing.assert_allclose(model.fit(X, target).predict(X), expected, atol=1e-6)


def test_what_is_no_sample_is_refused() -> None:
    with pytest.raises(SpecError, match="got 0 directions of 60 rows for the EigenPro kernel"):
        EigenProKernel.of(Gaussian(1.0), S, 0)
    with pytest.raises(SpecError, match="got 3 directions of 1 rows"):
        EigenProKernel.of(Gaussian(1.0), S[:1], 3)
    with pytest.raises(SpecError, match=r"got rho=2 and tau=1\.0"):
        EigenProKernel.of(Gaussian(1.0), S, 3, 2)
