"""A preconditioner for ``K + mu I`` over all rows: low rank plus a multiple of the identity.

    P = F F^T + mu ,   P^-1 v = (v - F (F^T F + mu)^-1 F^T v) / mu ,   F (n, s) with F F^T near K

F are kernel values with s landmarks, ``K_XS L^-T`` with ``L L^T = K_SS`` (Nystrom), or s random Fourier features. Each
rank has the rows of F of its own rows; a solve takes one allreduce of (s, c) numbers.

References
----------
Avron, Clarkson and Woodruff, "Faster kernel ridge regression using sketching and preconditioning", SIMAX 2017 (random
features); Frangella, Tropp and Udell, "Randomized Nystrom preconditioning", SIMAX 2023 (mu raised by the last
eigenvalue of the approximation, as here; their sketch is Gaussian, ours a sample of rows, which costs no pass).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.tiles import for_each, slices
from daskkern.errors import DataError
from daskkern.linalg import symmetric_eigen

_STRIP = 1024


@dataclass(frozen=True)
class LowRankPart:
    """One rank's rows F_r (n_r, s), the Cholesky factor of ``F^T F + mu`` (s, s) float64, and mu."""

    features: Array
    factor: FloatArray
    mu: float

    def solve(self, v: Array, comm: Communicator) -> Array:
        """Return this rank's rows of ``P^-1 v`` for its rows `v` (n_r, c) float64."""
        xp = namespace_of(v)
        pulled = comm.allreduce(xp.stack(self._strips(lambda F, rows: F.T @ v[rows], v)).sum(axis=0))
        inner = xp.asarray(scipy.linalg.cho_solve((self.factor, True), to_host(pulled), check_finite=False))
        return xp.concatenate(self._strips(lambda F, rows: (v[rows] - F @ inner) / self.mu, v))

    def _strips(self, work: Callable[[Array, slice], Array], like: Array) -> list[Array]:
        """Return `work` of the features strip by strip, in float64: the remainder of v is a small difference, and is
        divided by mu."""
        parts = slices(self.features.shape[0], _STRIP) or [slice(0, 0)]
        made: dict[int, Array] = {}

        def one(k: int) -> None:
            made[k] = work(self.features[parts[k]].astype(np.float64), parts[k])

        if namespace_of(like) is np:
            for_each(range(len(parts)), one)
        else:
            for k in range(len(parts)):
                one(k)
        return [made[k] for k in range(len(parts))]


@dataclass(frozen=True)
class Unconditioned:
    """The identity, in place of a preconditioner."""

    def solve(self, v: Array, comm: Communicator) -> Array:
        """Return `v` itself."""
        del comm
        return v


def low_rank_part(features: Array, ridge: float, comm: Communicator) -> LowRankPart:
    """Return the preconditioner from this rank's features (n_r, s), for ``K + ridge``. Every rank must call it."""
    xp = namespace_of(features)
    gram = to_host(comm.allreduce(xp.asarray((features.T @ features).astype(np.float64))))
    values = np.maximum(scipy.linalg.eigvalsh(gram, check_finite=False), 0)
    mu = ridge + max(float(values[0]), float(np.finfo(features.dtype).eps) * float(values[-1]))
    if not mu > 0:
        raise DataError("the preconditioner is 0: the kernel is 0 on all rows, or all weights are; check the data")
    factor = scipy.linalg.cholesky(gram + mu * np.eye(len(gram)), lower=True, check_finite=False)
    return LowRankPart(features, factor, mu)


def nystrom_factor(K_SS: FloatArray) -> FloatArray:
    """Return ``L^-T`` (s, s) float64 with ``L L^T = K_SS`` and as little jitter as the rounding of float32 requires.

    Through the eigenvalues: those below 1e-7 of the largest are left out.
    """
    values, vectors = symmetric_eigen(0.5 * (K_SS + K_SS.T))
    kept = values > 1e-7 * values[-1]
    root: FloatArray = vectors[:, kept] / np.sqrt(values[kept])
    return root
