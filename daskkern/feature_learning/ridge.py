"""Kernel ridge regression on landmarks for all penalties at once, from one eigendecomposition.

With C = K_mz the kernel of m rows and p landmarks, ``K_zz = L L^T``, ``R = L^-T`` and W the weights of the rows, which
add up to 1, the minimisers of ``sum_i w_i (f(x_i) - y_i)^2 + alpha |f|^2`` over functions of the landmarks
are

    a(alpha) = R V (S + alpha)^-1 V^T R^T C^T W y ,    R^T C^T W C R = V S V^T

(Rudi, Camoriano and Rosasco, "Less is more: Nystrom computational regularization", NIPS 2015, eq. 8). The least penalty
is ``k(x, x) / 10 m``: ten epochs of a first-order method leave what belongs to smaller eigenvalues of K as they found
it (Yao, Rosasco and Caponnetto, "On early stopping in gradient descent learning", 2007), and a metric that pays with a
smaller penalty only is of no use to such a fit.
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import to_host
from daskkern.backend.tiles import slices
from daskkern.kernels import Kernel
from daskkern.kernels.rows import module_of
from daskkern.linalg.symmetric import symmetric_eigen

_BLOCK = 4096
_LEAST = 0.1  # of k(x, x), for the usual ten epochs
_JITTER = 1e-8  # of the mean of k(z, z), on the diagonal of K_zz: equal landmarks, and rounding
SHARES = 10.0 ** np.arange(-9.0, 0.01, 0.5)
"""The penalties that are tried, as shares of the largest eigenvalue S."""


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The minimisers for all penalties.

    Attributes
    ----------
    directions : (p, p) array
        ``R V``.
    values : (p,) array
        S, ascending.
    target : (p, c) array
        ``V^T R^T C^T W y``.
    least : float
        The least penalty.
    """

    kernel: Kernel
    landmarks: Array
    directions: Array
    values: Array
    target: Array
    least: float

    @classmethod
    def of(cls, kernel: Kernel, Z: Array, X: Array, y: Array, weight: Array) -> "RidgePath":
        """Return the path for rows X (m, d), targets y (m, c) and weights (m,) with the sum 1, all float64."""
        xp = module_of(X)
        points = kernel.points(Z, kernel.placement_for(Z))
        p = Z.shape[0]
        moments, target = xp.zeros((p, p)), xp.zeros((p, y.shape[1]))
        for part in slices(X.shape[0], _BLOCK):
            C = kernel.block(X[part], points)
            weighted = C * weight[part, None]
            moments += C.T @ weighted
            target += weighted.T @ y[part]
        gram = kernel.block(Z, points)
        gram = (gram + gram.T) / 2
        gram[xp.arange(p), xp.arange(p)] += _JITTER * float(xp.trace(gram)) / p
        R = xp.linalg.inv(xp.linalg.cholesky(gram)).T
        inner = R.T @ moments @ R
        S, V = symmetric_eigen((inner + inner.T) / 2)
        least = _LEAST * float(xp.trace(gram)) / (p * X.shape[0])
        return cls(kernel, Z, R @ V, xp.maximum(S, 0.0), V.T @ (R.T @ target), least)

    def coefficients(self, share: float) -> Array:
        """Return ``a(alpha)`` (p, c) for the penalty ``share S_max``."""
        found: Array = self.directions @ self._damped(share)
        return found

    def _damped(self, share: float) -> Array:
        return self.target / (self.values + max(self.least, share * float(self.values[-1])))[:, None]

    def squared_errors(self, X: Array, y: Array) -> FloatArray:
        """Return the squared errors (number of shares, k) on k rows X with targets y, added up over outputs."""
        points = self.kernel.points(self.landmarks, self.kernel.placement_for(self.landmarks))
        out = np.empty((len(SHARES), X.shape[0]))
        for part in slices(X.shape[0], _BLOCK):
            projected = self.kernel.block(X[part], points) @ self.directions
            for k, share in enumerate(SHARES):
                scores = projected @ self._damped(float(share))
                out[k, part] = to_host(((scores - y[part]) ** 2).sum(axis=1))
        return out
