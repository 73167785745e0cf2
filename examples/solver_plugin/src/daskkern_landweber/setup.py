"""The set-up of Landweber iteration on one rank: all landmarks, and the factor of their kernel."""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.backend.namespace import to_host
from daskkern.backend.random import generator
from daskkern.basis import KernelPart
from daskkern.errors import DataError
from daskkern.linalg import factor_lower
from daskkern.solvers import RankInputs, RankSetup

_ATTEMPTS = 5
_POWER_ITERATIONS = 20
_STREAM = 64


@dataclass(frozen=True, eq=False)
class LandweberSetup(RankSetup):
    """The set-up of one rank.

    Attributes
    ----------
    whole : KernelPart
        The products with all landmarks.
    factor : (p, p) float64
        L in its lower half, ``K_ZZ = L L^T``; the same on every rank.
    n_rows : int
        Training rows on all ranks together.
    top : float
        The largest eigenvalue of ``K_ZZ / p``, about that of the covariance of the rows.
    """

    whole: KernelPart
    factor: FloatArray
    n_rows: int
    top: float

    @property
    def all_columns(self) -> KernelPart:
        return self.whole


def landweber_setup(inputs: RankInputs) -> LandweberSetup:
    """Return the set-up of a rank. Every rank calls it: the landmarks are gathered from all of them."""
    basis = inputs.basis
    Z = inputs.every_point()
    whole = inputs.part if inputs.comm.size == 1 else basis.part(basis.split(0, 1), Z)
    Z = Z.astype(np.float64)
    K = np.asarray(to_host(basis.kernel.block(Z, Z)), np.float64)
    return LandweberSetup(whole, _factor(K, inputs.dtype), inputs.n_rows, _top_eigenvalue(K))


def _factor(K: FloatArray, dtype: str) -> FloatArray:
    """Return L of ``K + jitter = L L^T``, with as little jitter as lets it exist. DataError where none does."""
    p = len(K)
    unit = float(np.finfo(dtype).eps) * p * float(K.diagonal().mean())
    for attempt in range(_ATTEMPTS):
        A = K + unit * 10.0**attempt * np.eye(p)
        if factor_lower(A):
            return np.tril(A)
    raise DataError(f"the {p} landmarks are too dependent for a factor; take fewer, or a shorter length scale")


def _top_eigenvalue(K: FloatArray) -> float:
    v, top = generator(0, _STREAM).standard_normal(len(K)), 1.0
    for _ in range(_POWER_ITERATIONS):
        v = K @ (v / np.linalg.norm(v)) / len(K)
        top = float(np.linalg.norm(v))
    return top
