"""The effect of rounded squared distances on kernel values, estimated before any of them is computed.

``|x|^2 + |z|^2 - 2 x.z`` has an error e of some eps times the squared norms, whatever the distance is. A kernel of rows
that spread widely against its length scale then differs by up to ``max_s |k(s + e) - k(s)|``, s squared distances.
Sums of differences ``|x_j - z_j|^p`` of dense rows need no such care, and never float64: each difference is rounded
once, so that their error is some eps of the sum itself. Of sparse rows, the features that only one row has are those of
``sum_j |z_j|^p`` without the others, and e is some eps of that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import is_sparse, to_host
from daskkern.kernels.formula import DIFFERENCES, Program, evaluate
from daskkern.kernels.norms import Difference, difference_norms
from daskkern.kernels.points import slack_of

TOLERANCE = 1e-3
"""Largest error of a kernel's values, in units of k(x, x), that is accepted."""
ROUGH_TOLERANCE = 2e-2
"""The same for kernels with an infinite slope at equal rows, such as the Laplacian: only rows that nearly coincide have
this error; at a twentieth of the length scale and beyond it is below the other one. Standardised columns, and pixels
divided by 255, have a tenth to a half of it in float32 with the length scales that fit them."""
_SAMPLE = 1024
_WITHIN = 0.99
_OUTLIER = 0.01
_GRID = 10.0 ** np.linspace(-2, 14, 321)


@dataclass(frozen=True)
class Rounding:
    """The error of a kernel's values in one dtype.

    Attributes
    ----------
    error : float
        A bound on it, in units of k(x, x).
    tolerance : float
        The largest accepted error.
    spread : float
        Norm of the rows, in the coordinates of the kernel's formula.
    """

    error: float
    tolerance: float
    spread: float

    @property
    def is_within_tolerance(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance


def rounding_of(
    what: Program,
    Z: Array,
    shift: Array | None,
    transform: Callable[[Array], Array],
    dtype: Any,
    difference: Difference | None = None,
) -> Rounding:
    """Return the error of values of the formula `what` for rows like `Z` (p, d) in `dtype`.

    The size of rows is the squared norm, or sum of powers, that 99 % of (at most 1,024 of) `Z` stay below, or a
    hundredth of the largest where that is more: rows beyond it are few, and have larger errors among themselves only.
    `difference` are the terms that a formula of sums of differences reads.
    """
    size, d = _size(Z, shift, transform, difference or Difference(2.0))
    is_exact = difference is not None and not is_sparse(Z)
    error, tolerance = _errors(what, 0.0 if is_exact else slack_of(d, dtype) * size)
    return Rounding(error, tolerance, size ** (0.5 if difference is None else 1 / difference.power))


def _size(
    Z: Array, shift: Array | None, transform: Callable[[Array], Array], difference: Difference
) -> tuple[float, int]:
    sample = Z[:: max(1, -(-Z.shape[0] // _SAMPLE))].astype(np.float64)
    if not sample.shape[0]:
        return 0.0, int(Z.shape[1])
    placed = transform(sample if shift is None or is_sparse(sample) else sample - shift)
    squared = to_host(difference_norms(placed, difference))
    size = max(float(np.quantile(squared, _WITHIN)), _OUTLIER * float(squared.max()))
    return (size if np.isfinite(size) else 0.0), int(placed.shape[1])


@lru_cache(256)
def _errors(what: Program, e: float) -> tuple[float, float]:
    """Return the largest change of the formula when squared distances change by `e`, and the tolerance."""
    if not e > 0 or not what.symbols & {"squared_distance", "distance", *DIFFERENCES}:
        return 0.0, TOLERANCE
    s = np.concatenate([[0.0], e * _GRID])
    values = values_at(what, s)
    scale = abs(float(values[0])) or float(np.abs(values).max()) or 1.0
    error = float(np.abs(values_at(what, s + e) - values).max()) / scale
    here = np.abs(values_at(what, np.array([e / 100, e])) - values[0])
    return error, ROUGH_TOLERANCE if here[0] > here[1] / 30 else TOLERANCE


def values_at(what: Program, s: FloatArray) -> FloatArray:
    """Return the formula at squared distances, or sums of differences, `s` of rows whose inner product is 0."""
    zero = np.zeros_like(s)
    symbols = {"squared_distance": s.copy(), "distance": np.sqrt(s), **{name: s.copy() for name in DIFFERENCES}}
    symbols |= {name: zero.copy() for name in ("inner", "cosine", "norms")}
    with np.errstate(all="ignore"):
        values = np.broadcast_to(evaluate(what, symbols, np), s.shape)
    found: FloatArray = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return found
