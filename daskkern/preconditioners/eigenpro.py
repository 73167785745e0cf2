"""The EigenPro preconditioner: damping along the leading eigenfunctions of a subsample.

With the eigenpairs (l_i, v_i) of ``W^(1/2) K_SS W^(1/2) / s`` (W the sample weights, mean 1) and
``V = W^(1/2) [v_1 .. v_q]``,

    P = I - sum_i (1 - (tau l_{q+1} / l_i)^rho) psi_i (x) psi_i ,   psi_i = (s l_i)^(-1/2) sum_j V_ji k(x_j, .) ,

and a gradient g on a batch B moves the coefficients of S by ``+ V D V^T K_SB g`` in addition to ``-g`` on B, with
``D_i = (1 - (tau l_{q+1} / l_i)^rho) / (s l_i)``.

References
----------
Ma and Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning", NeurIPS
2017, section 4; Ma and Belkin, "Kernel machines that adapt to GPUs for effective large batch training", MLSys 2019.

Where we differ: the 2017 paper has a further factor 1/l_i in P because it acts on V D V^T K g; and the step is
computed from rows held out of S, because in-sample values are far too small when q is not small against s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import scipy.sparse.linalg

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import namespace_of
from daskkern.backend.random import generator
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Kernel
from daskkern.kernels.engines.block_products import add_multiple, multiply, multiply_transposed_blocks
from daskkern.kernels.norms import squared_norms
from daskkern.linalg import computed, lazy_kernel_matrix, top_eigenpairs
from daskkern.preconditioners.stable_steps import StableSteps

MAX_DIRECTIONS = 1000
TAIL_MEAN = "tail_mean"
_LEAST_EIGENVALUE = 1e-6
_STREAM = 41


@dataclass(frozen=True)
class SpectrumSettings:
    """Settings of the eigendecomposition and the damping.

    Attributes
    ----------
    n_directions : int or None
        Damped directions q; None takes the largest q up to s/5 (and 1000) whose critical batch the largest
        allowed batch can use.
    rho : float
        Damping exponent in (0, 1].
    tau : float or "tail_mean"
        Damping factor in (0, 1]; "tail_mean" damps to the mean of the eigenvalues after the first q, of all that the
        sample has, in place of l_{q+1}: equations 9 and 10 of Pfahler and Morik, with rho 1/2.
    eigen_method : str
        See :func:`daskkern.linalg.top_eigenpairs`.
    device : "cpu", "gpu" or "auto"
        Unless "cpu", available GPUs are used.
    """

    n_directions: int | None = None
    rho: float = 0.95
    tau: float | str = 1.0
    eigen_method: str = "auto"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.tau, str) and self.tau != TAIL_MEAN:
            raise SpecError(f"got tau={self.tau!r}; give a number in (0, 1], or {TAIL_MEAN!r}")
        if not (0 < self.rho <= 1 and (isinstance(self.tau, str) or 0 < self.tau <= 1)):
            raise SpecError(f"got rho={self.rho} and tau={self.tau}; both must lie in (0, 1]")
        if self.n_directions is not None and self.n_directions < 0:
            raise SpecError(f"got n_directions={self.n_directions}; give 0 or more, or None")

    def level(self, values: FloatArray, trace: float, count: int) -> float:
        """Return what the first q eigenvalues are damped to.

        `values` are l_1 .. l_{q+1} of a matrix with `count` eigenvalues, which sum to `trace`. Never more than l_{q+1}.
        """
        q, least = values.size - 1, float(values[-1])
        if not isinstance(self.tau, str):
            return self.tau * least
        mean = (trace - float(values[:q].sum())) / max(1, count - q)
        return min(max(mean, np.finfo(np.float64).tiny), least)


@dataclass(frozen=True)
class EigenProState(StableSteps):
    """The preconditioner, as the set-up computes it; immutable.

    Attributes
    ----------
    vectors : (s, q) float64
        V above, sample weights included.
    damping : (q,) float64
        D above.
    eigenvalues : (q + 1,) float64
        l_1 .. l_{q+1}.
    beta : float
        Largest ``w k_P(x, x)`` on held-out rows and in the sample.
    top : float
        Largest eigenvalue l_P of the preconditioned covariance, from held-out rows.
    """

    vectors: FloatArray
    damping: FloatArray
    eigenvalues: FloatArray
    beta: float
    top: float

    @property
    def n_damped(self) -> int:
        return int(self.damping.size)

    def gram(self, kernel: Kernel, X_S: HostArray, X: HostArray) -> FloatArray:
        """Return the preconditioned kernel ``k_P`` of rows X (m, d) among themselves, (m, m); `X_S` (s, d) is S."""
        projected = kernel.block(X, X_S).astype(np.float64) @ self.vectors
        made: FloatArray = kernel.block(X, X).astype(np.float64) - (projected * self.damping) @ projected.T
        return made

    def part(self, ids: HostArray, dtype: str, xp: ModuleType = np) -> "EigenProPart":
        """Return the part of the rank that holds the rows `ids` (numbers in S, ascending) of the subsample."""
        return EigenProPart(
            xp.asarray(self.vectors[ids].astype(dtype)), xp.asarray(self.damping.astype(dtype)[:, None])
        )


@dataclass(frozen=True)
class EigenProPart:
    """One rank's rows V_r (s_r, q) of the vectors, and the damping (q, 1)."""

    vectors: Array
    damping: Array

    def project(self, gradient: Array, blocks: Sequence[slice]) -> Array:
        """Return this rank's share of ``V^T (K_SB g)``, (q, c) float64; sum it over the ranks.

        `blocks` split the rank's members of S; see :func:`daskkern.backend.tiles.multiply_blocks`.
        """
        return multiply_transposed_blocks(self.vectors, gradient, blocks, namespace_of(gradient))

    def apply(self, projected: Array, blocks: Sequence[slice]) -> Array:
        """Return ``V_r D u``, (s_r, c): the change of the rank's members of S per unit step. `blocks` as above."""
        return multiply(self.vectors, self.damping * projected, namespace_of(projected), blocks)

    def add_to(self, values: Array, projected: Array, scale: float, blocks: Sequence[slice]) -> None:
        """Add `scale` times :meth:`apply` to `values` (s_r, c)."""
        add_multiple(values, scale, self.vectors, self.damping * projected, namespace_of(projected), blocks)


def eigenpro_state(
    kernel: Kernel,
    X_S: HostArray,
    w_S: HostArray | None,
    X_H: HostArray,
    w_H: HostArray | None,
    settings: SpectrumSettings,
    max_batch: int,
    seed: int,
    drawn_S: HostArray | None = None,
) -> EigenProState:
    """Compute the preconditioner from the subsample rows `X_S` (s, d) and held-out rows `X_H` (h, d).

    K_SS is a lazy dask array, computed where Dask runs; the rest is small and dense, in float64, and computed on a GPU
    of this process where `settings` allow that. The state is in host memory. Weights are None or have mean about 1.
    `max_batch` bounds the batch that automatic q aims at. `drawn_S` are the weights of the rows of S in a batch where
    they differ from `w_S`, because heavy rows are drawn more often.
    """
    s = X_S.shape[0]
    check_range(kernel, X_S)
    root_S = np.ones(s) if w_S is None else np.sqrt(w_S)
    lazy = lazy_kernel_matrix(kernel, X_S, X_S, device=settings.device)
    if w_S is not None:
        lazy = lazy * root_S[:, None].astype(X_S.dtype) * root_S[None, :].astype(X_S.dtype)
    wanted = settings.n_directions
    q = min(s // 5, MAX_DIRECTIONS) if wanted is None else min(wanted, s - 1)
    pairs = top_eigenpairs(lazy / s, q + 1, method=settings.eigen_method, seed=seed, device=settings.device)
    counts = root_S**2 if drawn_S is None else drawn_S
    diagonal = np.asarray(kernel.diagonal(X_S), np.float64)
    in_sample, trace = float((diagonal * counts).max()), float((diagonal * root_S**2).mean())
    q = usable(pairs.values, q, in_sample / max_batch if wanted is None else 0.0)
    values = np.maximum(pairs.values[: q + 1], np.finfo(np.float64).tiny)
    vectors = root_S[:, None] * pairs.vectors[:, :q]
    level = settings.level(values, trace, s)
    damping = (1 - (level / values[:q]) ** settings.rho) / (s * values[:q])
    inside = _inside(kernel, X_S, root_S, counts, damping, pairs.vectors[:, :q], values)
    beta, top = _held_out(kernel, X_S, inside, X_H, w_H, vectors, damping, seed, settings.device)
    damped = values[0] * (level / values[0]) ** settings.rho if q else values[0]
    return EigenProState(vectors, damping, values, beta, float(max(values[q], damped, top)))


def check_range(kernel: Kernel, X: HostArray) -> None:
    """Raise DataError when kernel values of sampled rows `X` leave the range of their dtype, or are all 0."""
    with np.errstate(all="ignore"):
        norms = squared_norms(X)
        values = kernel.diagonal(X)
        sums = kernel.block(X[:1], X)
    if not (np.isfinite(4 * norms).all() and np.isfinite(values).all() and np.isfinite(sums).all()):
        raise DataError(
            f"the features are too large for {X.dtype}: kernel values overflow; scale them (ingest with --scale "
            "standard) or take another length scale"
        )
    if not (values > 0).any():
        raise DataError(f"the {kernel.name} kernel is 0 on all sampled rows, so nothing can be learnt; check the data")


def usable(values: FloatArray, q: int, least: float) -> int:
    """Return the largest q whose next eigenvalue is at least `least` and above the noise of float32."""
    floor = max(least, _LEAST_EIGENVALUE * float(values[0]))
    return min(q, int(np.count_nonzero(values[1 : q + 1] >= floor)))


def _inside(
    kernel: Kernel,
    X_S: HostArray,
    root_S: FloatArray,
    counts: FloatArray,
    damping: FloatArray,
    raw: FloatArray,
    values: FloatArray,
) -> float:
    """Return the largest ``w k_P(x, x)`` of the sample, w as in `counts`."""
    # In the sample, W^(1/2) K_SS V = (s l) v: no kernel block is needed for the diagonal there.
    s, q = X_S.shape[0], damping.shape[0]
    reduction = (raw**2 * (values[:q] * s) ** 2 * damping).sum(axis=1)
    weighted = np.asarray(kernel.diagonal(X_S), np.float64) * root_S**2 - reduction
    return float((weighted * np.divide(counts, root_S**2, out=np.zeros(s), where=root_S > 0)).max())


def _held_out(
    kernel: Kernel,
    X_S: HostArray,
    inside: float,
    X_H: HostArray,
    w_H: HostArray | None,
    vectors: FloatArray,
    damping: FloatArray,
    seed: int,
    device: str,
) -> tuple[float, float]:
    """Return beta, at least `inside`, and the top eigenvalue of the preconditioned kernel on the rows held out of S."""
    if X_H.shape[0] == 0:
        return inside, 0.0
    root_H = np.ones(X_H.shape[0]) if w_H is None else np.sqrt(w_H)
    K_HH, K_HS = computed(*(lazy_kernel_matrix(kernel, X_H, X, device=device) for X in (X_H, X_S)))
    projected = K_HS.astype(np.float64) @ vectors
    G = K_HH.astype(np.float64) - (projected * damping) @ projected.T
    G *= root_H[:, None] * root_H[None, :]
    return float(max(G.diagonal().max(), inside)), top_eigenvalue(G, seed) / X_H.shape[0]


def top_eigenvalue(G: FloatArray, seed: int) -> float:
    """Return the largest eigenvalue of a symmetric matrix (h, h), to 3 digits."""
    h = G.shape[0]
    if not G.any():  # no weight on any of the rows
        return 0.0
    if h < 20:
        return float(np.linalg.eigvalsh(0.5 * (G + G.T))[-1])
    start = generator(seed, _STREAM).standard_normal(h)
    return float(scipy.sparse.linalg.eigsh(G, k=1, v0=start, tol=1e-3, return_eigenvectors=False)[0])
