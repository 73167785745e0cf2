"""The preconditioner of Nystrom-SGD: the exact eigendecomposition of the Nystrom kernel.

    K_ZZ = V Sigma V^T ,  T = V Sigma^(-1/2) ,  phi(x) = T^T k(Z, x)          coordinates in span(Z)
    C = (1/n) sum_i w_i phi(x_i) phi(x_i)^T = U Lam U^T                       Lam: eigenvalues of the Nystrom kernel / n
    psi(x) = M^T k(Z, x) ,  M = T U ,  P_i = min(1, (l_(k+1) / l_i)^(1/2))    eigenfeatures, diagonal preconditioner

Where k is all m directions, as in the paper's experiments, there is no l_(m+1): l_m takes its place.

References
----------
Pfahler and Morik, "Nystrom-SGD: fast learning of kernel-classifiers with conditioned stochastic gradient descent",
ECML PKDD 2018, equations 11 and 14, section 5 and algorithm 1.

Where we differ: the paper takes a QR decomposition of K_NZ V Sigma^(-1) and then the eigenproblem of R Sigma R^T;
the Gram sums here give the same eigenfeatures (to 8e-13 in float64) in one streaming pass. Its Lambda is n Lam.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.concurrency import decomposition_threads, library_threads
from daskkern.backend.namespace import namespace_with, to_device, to_host
from daskkern.backend.random import generator
from daskkern.errors import SpecError
from daskkern.kernels import Kernel
from daskkern.linalg import computed, lazy_gram_sum, lazy_kernel_matrix, symmetric_eigen
from daskkern.preconditioners.eigenpro import check_range
from daskkern.preconditioners.stable_steps import StableSteps

_TOLERANCE = 1e-6
_CHECKED_ROWS = 2000
_STREAM = 45
_BYTES = 8 * 6
"""Bytes of the two eigenproblems on a GPU, for each entry."""

GramPart = Callable[[HostArray], HostArray]
"""A function from T (p, r) to the sum of ``w phi phi^T`` over a share of the rows, float64."""


@dataclass(frozen=True)
class NystromState(StableSteps):
    """The preconditioner, as the set-up computes it; immutable.

    Attributes
    ----------
    M : (p, r) array in the dtype of the landmarks
    preconditioner : (r,) float64
        P above.
    eigenvalues : (r,) float64
        Lam, descending.
    beta : float
        Largest ``w psi(x)^T P psi(x)`` over sampled rows, except for rare ones that are far larger.
    top : float
        Largest ``P_i l_i``: ``(l_1 l_(k+1))^(1/2)``.
    gap : float
        ``l_k / l_(k+1)``; 1 where k is 0 or all.
    """

    M: HostArray
    preconditioner: FloatArray
    eigenvalues: FloatArray
    beta: float
    top: float
    gap: float = 1.0

    @property
    def paper_step(self) -> float:
        """The step of the paper's section 6.1, ``1 / (l_1 l_k)^(1/2)``; ``1 / l_1`` where k is 0."""
        return 1 / (self.top * self.gap**0.5)

    @property
    def feature_map(self) -> HostArray:
        return self.M

    @cached_property
    def probe(self) -> HostArray:
        """A number for each eigenfeature, (r,), that identifies the basis."""
        drawn = generator(0, _STREAM).standard_normal(self.M.shape[:1]).astype(self.M.dtype)
        return np.asarray(drawn @ self.M)

    def gram(self, kernel: Kernel, Z: HostArray, X: HostArray) -> FloatArray:
        """Return ``psi(x)^T P psi(x')`` of rows X (m, d) among themselves, (m, m); `Z` (p, d) are the landmarks."""
        psi = (kernel.block(X, Z) @ self.M).astype(np.float64)
        made: FloatArray = (psi * self.preconditioner) @ psi.T
        return made

    def part(self, ids: HostArray, dtype: str, xp: ModuleType = np) -> "NystromPart":
        """Return the part of the rank that holds the landmarks `ids`."""
        return NystromPart(
            xp.asarray(np.ascontiguousarray(self.M[ids], dtype)), xp.asarray(self.preconditioner.astype(dtype)[:, None])
        )


@dataclass(frozen=True)
class NystromPart:
    """One rank's rows M_r (p_r, r) of M, and the diagonal preconditioner (r, 1)."""

    M: Array
    preconditioner: Array


def nystrom_state(
    kernel: Kernel,
    Z: HostArray,
    gram_parts: Sequence[GramPart],
    n_samples: int,
    X_H: HostArray,
    w_H: HostArray | None,
    n_directions: int | None,
    device: str = "cpu",
) -> NystromState:
    """Compute the eigenfeatures of landmarks `Z` (p, d) over all rows.

    `gram_parts` sum ``w phi phi^T`` over the rows, whose weights have mean 1, as tasks where Dask runs; `X_H` are
    sampled rows for beta. `n_directions` is k, all kept directions for None, none for 0. Dense p x p eigenproblems in
    float64: 16 p^2 bytes and minutes at p = 10,000 on a CPU. Unless `device` is "cpu", they are solved on a GPU of this
    process if there is one with enough memory (48 p^2 bytes). The state is in host memory.
    """
    check_range(kernel, Z[:_CHECKED_ROWS])
    xp = namespace_with(device, _BYTES * Z.shape[0] ** 2)
    with library_threads(decomposition_threads(Z.shape[0])):
        K_ZZ = xp.asarray(np.asarray(computed(lazy_kernel_matrix(kernel, Z, Z, device=device))[0], np.float64))
        sigma, V = symmetric_eigen(0.5 * (K_ZZ + K_ZZ.T))
    values = to_host(sigma)
    dropped = int((values <= _TOLERANCE * values[-1]).sum())
    T64 = V[:, dropped:] / xp.sqrt(sigma[dropped:])
    del K_ZZ, V  # twice p^2 numbers
    T = np.ascontiguousarray(to_host(T64), Z.dtype)
    C = xp.asarray(np.asarray(computed(lazy_gram_sum(gram_parts, T))[0])) / n_samples
    with library_threads(decomposition_threads(Z.shape[0])):
        ascending, U = symmetric_eigen(0.5 * (C + C.T))
    lam = np.maximum(to_host(ascending)[::-1], np.finfo(np.float64).tiny)
    k = lam.size if n_directions is None else n_directions
    if not 0 <= k <= lam.size:
        raise SpecError(f"got {k} preconditioned directions, but the Nystrom kernel has rank {lam.size}")
    next_one = min(k, int(np.count_nonzero(lam > _TOLERANCE * lam[0])) - 1)
    preconditioner = np.minimum(1.0, np.sqrt(lam[next_one] / lam))
    gap = float(lam[k - 1] / lam[next_one]) if 0 < k == next_one else 1.0
    M = np.ascontiguousarray(_with_signs(to_host(T64 @ U[:, ::-1])), Z.dtype)
    points = to_device(Z, xp)
    K_HZ = kernel.block(to_device(X_H, xp), kernel.points(points, kernel.placement_for(points)))
    psi = to_host(K_HZ @ xp.asarray(M)).astype(np.float64)
    reach = (psi**2 * preconditioner).sum(axis=1) * (1.0 if w_H is None else w_H)
    return NystromState(M, preconditioner, lam, float(reach.max()), float((preconditioner * lam).max()), gap)


def _with_signs(M: FloatArray) -> FloatArray:
    """Return M with each column's largest number positive: libraries differ in the signs of eigenvectors."""
    largest = np.abs(M).argmax(axis=0)
    signed: FloatArray = M * np.sign(M[largest, np.arange(M.shape[1])])
    return signed
