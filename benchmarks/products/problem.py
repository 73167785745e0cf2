"""One kernel product to compute, and its float64 reference."""

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from daskkern.kernels import Gaussian, Laplacian

Array = NDArray[np.float32]
KERNELS = {"gaussian": Gaussian, "laplacian": Laplacian}


@dataclass(frozen=True)
class Problem:
    """Compute ``K(X, Z) @ A`` for X (n, d), Z (p, d), A (p, c), all float32; X and Z may be CSR."""

    kernel: str
    length_scale: float
    X: Array
    Z: Array
    A: Array

    @property
    def entries(self) -> int:
        """Number n p of entries of the kernel matrix."""
        return int(self.X.shape[0]) * int(self.Z.shape[0])

    @property
    def daskkern_kernel(self) -> Gaussian | Laplacian:
        """The kernel in daskkern's notation."""
        return KERNELS[self.kernel](self.length_scale)


def random_problem(kernel: str, n: int, p: int, d: int, c: int, seed: int = 0) -> Problem:
    """Return standard normal rows, points and coefficients; the scale sqrt(d) keeps kernel values near exp(-1)."""
    rng = np.random.default_rng(seed)
    X, Z, A = (rng.standard_normal(shape, np.float32) for shape in ((n, d), (p, d), (p, c)))
    return Problem(kernel, math.sqrt(d), X, Z, A)


def reference(problem: Problem, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the product for those rows in float64, from differences where the rows are dense."""
    X, Z = problem.X[rows].astype(np.float64), problem.Z.astype(np.float64)
    if scipy.sparse.issparse(X):
        inner = (X @ Z.T).toarray()
        squared = np.maximum(_norms(X)[:, None] + _norms(Z)[None] - 2 * inner, 0)
    else:
        squared = np.stack([((Z - x) ** 2).sum(axis=1) for x in X])
    if problem.kernel == "gaussian":
        K = np.exp(-squared / (2 * problem.length_scale**2))
    else:
        K = np.exp(-np.sqrt(squared) / problem.length_scale)
    return K @ problem.A.astype(np.float64)


def relative_error(got: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    """Return the largest difference in units of the largest expected value."""
    return float(np.max(np.abs(got.astype(np.float64) - expected)) / np.max(np.abs(expected)))


def sample_rows(problem: Problem, count: int = 24) -> NDArray[np.int64]:
    """Return `count` rows spread evenly over the problem, the first and the last among them."""
    return np.unique(np.linspace(0, problem.X.shape[0] - 1, count).astype(np.int64))


def _norms(rows: scipy.sparse.csr_array) -> NDArray[np.float64]:
    return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
