"""The set-up of preconditioned conjugate gradient on one rank: its part of a preconditioner of low rank."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis import KernelBasis
from daskkern.features import FourierFeatures
from daskkern.preconditioners import LowRankPart, Unconditioned, low_rank_part, nystrom_factor
from daskkern.solvers.setup import RankInputs, RankSetup

_SKETCH = 62
_STRIP = 4096


@dataclass(frozen=True)
class PCGSetup(RankSetup):
    """The set-up of one rank: the preconditioner, its own rows' targets and weights, and which rank has which row.

    Attributes
    ----------
    part : LowRankPart or Unconditioned
    y, root : (n_r, c) and (n_r, 1) float64
        Encoded targets and W^(1/2) of the rank's own columns.
    ids : tuple of (n_k,) int64
        The columns of each rank, in their order.
    """

    part: LowRankPart | Unconditioned
    y: Array
    root: Array
    ids: tuple[IntArray, ...]

    @property
    def n_rows(self) -> int:
        """n."""
        return sum(ids.size for ids in self.ids)


def pcg_setup(inputs: RankInputs, preconditioner: str, s: int) -> PCGSetup:
    """Return what PCG needs on a rank, with a preconditioner of rank `s` made of its own columns' points (n_r, d)."""
    basis, columns, comm, xp = inputs.basis, inputs.columns, inputs.comm, inputs.xp
    n = basis.n_columns
    targets, weight = inputs.rows.labels(columns.ids)
    root = np.ones((columns.ids.size, 1)) if weight is None else np.sqrt(weight.astype(np.float64))
    X = to_device(inputs.points, xp)
    y = xp.asarray(targets.astype(np.float64))
    ids = tuple(basis.split(rank, comm.size).ids for rank in range(comm.size))
    if preconditioner == "none":
        return PCGSetup(Unconditioned(), y, xp.asarray(root), ids)
    if preconditioner == "random_features":
        features = FourierFeatures(basis.kernel, s, inputs.seed)(X)
    else:
        chosen = np.sort(generator(inputs.seed, _SKETCH).choice(n, size=s, replace=False))
        S = inputs.rows.features(chosen)
        features = _nystrom_features(basis, X, to_device(S, xp), xp)
    features = (features * xp.asarray(root)).astype(inputs.dtype)
    part = low_rank_part(features, n * inputs.alpha, comm)
    return PCGSetup(part, y, xp.asarray(root), ids)


def _nystrom_features(basis: KernelBasis, X: Array, S: Array, xp: ModuleType) -> Array:
    """Return ``K_XS L^-T`` (n_r, s), in float64: rounding of K is divided by the small singular values of L."""
    S = S.astype(np.float64)
    inverse = xp.asarray(nystrom_factor(to_host(basis.kernel.block(S, S))))
    points = basis.kernel.points(S, basis.placement.on(xp))
    parts = slices(X.shape[0], _STRIP) or [slice(0, 0)]
    return xp.concatenate([basis.kernel.matvec(X[part].astype(np.float64), points, inverse) for part in parts])
