"""Kernel values on a GPU of float32 rows that spread widely against the length scale."""

from types import ModuleType

import numpy as np
import pytest

from daskkern.backend.namespace import to_host
from daskkern.basis import KernelBasis
from daskkern.kernels import Gaussian, Kernel, Laplacian


@pytest.mark.one_in(7)
@pytest.mark.parametrize("d", [5, 80])
@pytest.mark.parametrize("kernel", [Laplacian(10.0), 2 * Gaussian(10.0) + Laplacian(10.0)], ids=["laplacian", "sum"])
def test_products_are_those_of_float64_on_the_host(xp: ModuleType, kernel: Kernel, d: int) -> None:
    rng = np.random.default_rng(0)
    X, A = rng.standard_normal((90, d)), rng.standard_normal((60, 3)).astype(np.float32)
    X[:, 2] *= 1e4
    X = X.astype(np.float32)
    Z = (X[:60] + rng.standard_normal((60, d)) / d**0.5).astype(np.float32)
    K = kernel.block(X.astype(np.float64), Z.astype(np.float64))
    placement = kernel.placement_for(xp.asarray(Z))
    assert placement.wide
    basis = KernelBasis(kernel, 60, np.zeros(0, np.int64), False, placement)
    part = basis.part(basis.split(0, 1), xp.asarray(Z))
    assert part.namespace is xp
    rows, head = xp.asarray(X), xp.empty((90, 7), np.float32)
    np.testing.assert_allclose(to_host(part.block(rows)), K, atol=1e-5)
    np.testing.assert_allclose(to_host(part.scores(rows, xp.asarray(A), head)), K @ A, atol=1e-4)
    np.testing.assert_allclose(to_host(head), K[:, :7], atol=1e-5)
    np.testing.assert_allclose(to_host(part.pullback(rows, rows[:, :3])), K.T @ X[:, :3], rtol=1e-5, atol=1e-2)
    double = kernel.double_product(rows, part.points, xp.asarray(A))
    np.testing.assert_allclose(to_host(double), K.T @ (K @ A), atol=1e-3)
