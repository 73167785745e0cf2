"""The EigenPro preconditioner of explicit features: damping along the leading eigenvectors of their covariance.

With the eigenpairs (l_i, e_i) of ``H = (1/M) Phi_S^T W Phi_S``, the covariance of a subsample of M rows,

    P = I - E diag(1 - (tau l_{k+1} / l_i)^rho) E^T ,      w <- w - eta P ((1/m) Phi_B^T g + alpha w) .

The eigenpairs come from the inner products of the subsample, (M, M), so that the number of features costs only one
pass over them: ``E = Phi_S^T W^(1/2) V (M l)^(-1/2)``. Of few features, they come from H itself, (p, p).

References
----------
Ma and Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning", NeurIPS
2017, algorithm 1 (k = 160 of M = 4800 rows; tau = 1/4 with random features; rho = 1). A number of directions that is
given is taken, but for those of no variance; the automatic one is less where a batch that fits in memory gains nothing.

Where we differ: the step follows from rows held out of the subsample, as in the kernel form, instead of from
``l_{k+1}`` alone; with it tau = 1 is stable.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import is_sparse, namespace_of, to_host
from daskkern.errors import DataError
from daskkern.kernels.engines.block_products import multiply, multiply_transposed_blocks
from daskkern.linalg import top_eigenpairs
from daskkern.preconditioners.eigenpro import SpectrumSettings, top_eigenvalue, usable
from daskkern.preconditioners.stable_steps import StableSteps

MOST_DIRECTIONS = 160
_MANY_ROWS = 2  # sampled rows for each feature, from which on the covariance is the smaller problem
_NOT_FINITE = "the columns of the model are not finite on the rows; scale the features"

FeatureBlocks = Callable[[], Iterator[tuple[slice, Array]]]
"""Yields pieces of the columns, and the features (rows, width) there: dense or sparse."""


@dataclass(frozen=True, eq=False)
class CovarianceState(StableSteps):
    """The preconditioner, as the set-up computes it; immutable.

    Attributes
    ----------
    vectors : (p, k) array in the dtype of the features
        E, orthonormal columns.
    damping : (k,) float64
        ``1 - (tau l_{k+1} / l_i)^rho``.
    eigenvalues : (k + 1,) float64
    beta : float
        Largest ``w phi(x)^T P phi(x)`` on held-out rows and in the sample.
    top : float
        Largest eigenvalue of the preconditioned covariance, from held-out rows.
    """

    vectors: HostArray
    damping: FloatArray
    eigenvalues: FloatArray
    beta: float
    top: float

    @property
    def n_damped(self) -> int:
        return int(self.damping.size)

    def gram(self, columns: FeatureBlocks) -> FloatArray:
        """Return ``phi(x)^T P phi(x')`` of rows among themselves, (m, m), from their features."""
        across = _projected(columns, self.vectors)
        return gram_of(columns) - (across * self.damping) @ across.T

    def part(self, ids: HostArray, dtype: str, xp: ModuleType = np) -> "CovariancePart":
        """Return the part of the rank that holds the features `ids`. Copies its rows of E."""
        return CovariancePart(
            xp.asarray(np.ascontiguousarray(self.vectors[ids], dtype)), xp.asarray(self.damping[:, None].astype(dtype))
        )


@dataclass(frozen=True, eq=False)
class CovariancePart:
    """One rank's rows E_r (p_r, k) of the directions, and their damping (k, 1)."""

    vectors: Array
    damping: Array

    def project(self, gradient: Array, blocks: tuple[slice, ...]) -> Array:
        """Return this rank's share of ``E^T r``, (k, c) float64; sum it over the ranks."""
        return multiply_transposed_blocks(self.vectors, gradient, blocks, namespace_of(gradient))

    def apply(self, gradient: Array, projected: Array, blocks: tuple[slice, ...]) -> Array:
        """Return the rank's rows (p_r, c) of ``P r`` from its rows of r and ``E^T r``."""
        return gradient - multiply(self.vectors, self.damping * projected, namespace_of(gradient), blocks)


def covariance_state(
    n_columns: int,
    inside: FeatureBlocks,
    w_S: HostArray | None,
    outside: FeatureBlocks,
    w_H: HostArray | None,
    settings: SpectrumSettings,
    max_batch: int,
    dtype: str,
    seed: int,
    drawn_S: HostArray | None = None,
) -> CovarianceState:
    """Compute the preconditioner from the features of the subsample, `inside`, and of held-out rows, `outside`.

    Weights are None or have mean about 1. `max_batch` bounds the batch that automatic k aims at; `drawn_S` are the
    weights of the subsample's rows in a batch where they differ from `w_S`. Sampled rows make dense float64 matrices.
    Features may be on a GPU, which then computes their products; the state is in host memory.

    Raises
    ------
    DataError
        When the features are all 0 on the subsample, or one is not finite.
    """
    n_sampled = next(inside())[1].shape[0]
    root = np.ones(n_sampled) if w_S is None else np.sqrt(w_S)
    in_features = is_smaller(n_columns, n_sampled)
    matrix, squares = (_covariance if in_features else _inner_products)(inside, root)
    if not squares.max() > 0:
        raise DataError("the columns of the model are 0 on all sampled rows; check the features")
    wanted = settings.n_directions
    k = min(n_sampled // 5, MOST_DIRECTIONS) if wanted is None else min(wanted, n_sampled - 1)
    k = min(k, n_columns - 1)
    pairs = top_eigenpairs(matrix / n_sampled, k + 1, method=settings.eigen_method, seed=seed, device=settings.device)
    counts = root**2 if drawn_S is None else drawn_S
    k = usable(pairs.values, k, float((squares * counts).max()) / max_batch if wanted is None else 0.0)
    values = np.maximum(pairs.values[: k + 1], np.finfo(np.float64).tiny)
    level = settings.level(values, float((squares * root**2).mean()), min(n_columns, n_sampled))
    damping = 1 - (level / values[:k]) ** settings.rho
    directions = pairs.vectors[:, :k]
    if not in_features:
        directions = _spread(n_columns, inside, root[:, None] * directions / np.sqrt(n_sampled * values[:k]))
    E = directions.astype(dtype)
    here = (squares - _projected(inside, E) ** 2 @ damping) * counts
    reach = CovarianceState(E, damping, values, 0.0, 0.0).gram(outside)
    if w_H is not None:
        reach *= np.sqrt(w_H)[:, None] * np.sqrt(w_H)
    beta = max([float(here.max()), *reach.diagonal().tolist()])
    top = top_eigenvalue(reach, seed) / reach.shape[0] if reach.size else 0.0
    damped = float(values[0]) * (1 - float(damping[0])) if k else float(values[0])
    return CovarianceState(E, damping, values, beta, max(float(values[k]), damped, top))


def is_smaller(n_columns: int, n_sampled: int) -> bool:
    """Return whether the covariance of so many features is a smaller problem than the inner products of the rows."""
    return _MANY_ROWS * n_columns <= n_sampled


def _inner_products(columns: FeatureBlocks, root: HostArray) -> tuple[FloatArray, FloatArray]:
    """Return ``W^(1/2) Phi Phi^T W^(1/2)`` (s, s) of rows, and the squared norms (s,) of their features."""
    gram = gram_of(columns)
    return gram * root[:, None] * root, np.diag(gram)


def _covariance(columns: FeatureBlocks, root: HostArray) -> tuple[FloatArray, FloatArray]:
    """Return ``Phi^T W Phi`` (p, p) of the rows, and the squared norms (s,) of their features."""
    parts = [to_host(phi.toarray() if is_sparse(phi) else phi) for _, phi in columns()]
    Phi = np.concatenate(parts, axis=1, dtype=np.float64)
    squares = np.einsum("ij,ij->i", Phi, Phi)
    if not np.isfinite(squares).all():
        raise DataError(_NOT_FINITE)
    Phi *= root[:, None]
    return Phi.T @ Phi, squares


def gram_of(columns: FeatureBlocks) -> FloatArray:
    """Return the inner products (s, s) float64 of rows, in host memory. Raises DataError when they are not finite."""
    total: Array | None = None
    for _, phi in columns():
        product = phi @ phi.T
        product = product.toarray() if is_sparse(product) else product
        total = product.astype(np.float64) if total is None else total + product
    assert total is not None
    gram: FloatArray = to_host(total)
    if not np.isfinite(gram).all():
        raise DataError(_NOT_FINITE)
    return gram


def _spread(n_columns: int, columns: FeatureBlocks, directions: FloatArray) -> FloatArray:
    """Return ``Phi^T directions`` (p, k), whose columns are orthonormal but for rounding, made orthonormal exactly."""
    E = np.empty((n_columns, directions.shape[1]))
    for part, phi in columns():
        E[part] = to_host(phi.T @ _moved_to(phi, directions))
    if E.size:
        factor = scipy.linalg.cholesky(E.T @ E, check_finite=False)
        E = scipy.linalg.solve_triangular(factor, E.T, trans="T", check_finite=False).T
    return E


def _projected(columns: FeatureBlocks, E: HostArray) -> FloatArray:
    """Return ``Phi E`` (s, k) float64 of rows."""
    total: Array | None = None
    for part, phi in columns():
        share = (phi @ _moved_to(phi, E[part])).astype(np.float64)
        total = share if total is None else total + share
    assert total is not None
    found: FloatArray = to_host(total)
    return found


def _moved_to(phi: Array, matrix: HostArray) -> Array:
    """Return `matrix` in the memory of `phi`; sparse features are in host memory."""
    return matrix if is_sparse(phi) else namespace_of(phi).asarray(matrix)
