"""Rows prepared for products: the operands whose plain matrix product is the kernel's statistic.

For squared distances the norms ride along as two extra features,

    [x, |x|^2, 1] . [-2 z, 1, |z|^2] = |x - z|^2,

so that one GEMM replaces a GEMM and two passes over the tile.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import slices

_SHIFT_SAMPLE = 512
_SHIFT_RATIO = 100.0
_NORM_ROWS = 4096


class Statistic(Enum):
    """What a kernel's profile is a function of."""

    SQUARED_DISTANCE = "squared distance"
    INNER_PRODUCT = "inner product"
    COSINE = "cosine"


@dataclass(frozen=True)
class Points:
    """The right side of kernel blocks: made once, used for every batch.

    `operand` is (p, d + 2) for squared distances and (p, d) else; `norms` are the row norms (p,) where the
    statistic is the cosine; `shift` is what was subtracted from the rows.
    """

    operand: Array
    norms: Array | None
    shift: Array | None
    n_features: int

    @property
    def size(self) -> int:
        """Number of points p."""
        return int(self.operand.shape[0])


@dataclass(frozen=True)
class Left:
    """The left side of kernel blocks, for rows that meet several sets of points: see :meth:`Kernel.left`."""

    operand: Array
    norms: Array | None
    shape: tuple[int, int]
    dtype: Any


def make_points(Z: Array, statistic: Statistic, shift: Array | None) -> Points:
    """Return the right operand for rows `Z` (p, d); `Z` is copied."""
    xp = namespace_of(Z)
    p, d = Z.shape
    if statistic is Statistic.SQUARED_DISTANCE:
        rows = Z if shift is None else Z - shift
        operand = xp.empty((p, d + 2), Z.dtype)
        xp.multiply(rows, -2, out=operand[:, :d])
        operand[:, d] = 1
        operand[:, d + 1] = squared_norms(rows)
        return Points(operand, None, shift, d)
    if statistic is Statistic.COSINE:
        rows, norms = _unit_rows(Z)
        return Points(rows, norms, None, d)
    return Points(Z.copy(), None, None, d)


def left_operand(X: Array, statistic: Statistic, shift: Array | None, cut_off: bool) -> tuple[Array, Array | None]:
    """Return the left operand of rows `X` (m, d) and, for the cosine, their norms.

    With `cut_off` the squared distances are lowered by the rounding error of a GEMM over d features (measured: at
    most 6.5 eps times the norms at d = 784) before they are clamped at 0. Equal rows then have distance exactly
    0, where a kernel in the plain distance would turn an error of 1e-6 into one of 1e-3.
    """
    xp = namespace_of(X)
    m, d = X.shape
    if statistic is Statistic.SQUARED_DISTANCE:
        left = xp.empty((m, d + 2), X.dtype)
        rows = left[:, :d]
        if shift is None:
            rows[...] = X
        else:
            xp.subtract(X, shift, out=rows)
        left[:, d] = squared_norms(rows)
        left[:, d + 1] = 1
        if cut_off:
            left[:, d] *= 1 - 2 * (4 + d**0.5 / 4) * float(xp.finfo(X.dtype).eps)
        return left, None
    if statistic is Statistic.COSINE:
        return _unit_rows(X)
    return X, None


def squared_norms(X: Array) -> Array:
    """Return ``|x_i|^2``, shape (m,), by pairwise sums, which err five times less than einsum's in float32."""
    xp = namespace_of(X)
    norms = xp.empty(X.shape[0], X.dtype)
    for rows in slices(X.shape[0], _NORM_ROWS):
        norms[rows] = (X[rows] * X[rows]).sum(axis=1)
    return norms


def _unit_rows(X: Array) -> tuple[Array, Array]:
    """Return rows of unit length and their norms; a zero row stays zero."""
    xp = namespace_of(X)
    norms = xp.sqrt(squared_norms(X))
    return X / xp.where(norms > 0, norms, 1)[:, None], norms


def pick_shift(Z: Array) -> Array | None:
    """Return the mean of `Z` when distances would lose digits without subtracting it, else None.

    ``|x|^2 + |z|^2 - 2 x.z`` cancels when rows are far from the origin: only then, when |mean|^2 exceeds 100
    times the median squared distance, is centring worth its own rounding. The mean of integer data is rounded
    to integers, so that equal rows stay equal and exact.
    """
    xp = namespace_of(Z)
    sample = Z[:: max(1, Z.shape[0] // _SHIFT_SAMPLE)][:_SHIFT_SAMPLE].astype(xp.float64)
    if sample.shape[0] < 2:
        return None
    mean = sample.mean(axis=0)
    centred = sample - mean
    gaps = centred - xp.roll(centred, 1, axis=0)
    typical = float(xp.median(xp.einsum("ij,ij->i", gaps, gaps)))
    if float(mean @ mean) <= _SHIFT_RATIO * typical:
        return None
    if bool(xp.all(sample == xp.rint(sample))):
        mean = xp.rint(mean)
    return mean.astype(Z.dtype)
