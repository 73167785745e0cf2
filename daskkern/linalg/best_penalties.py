"""The penalty of the least leave-one-out error of kernel ridge regression, and how it falls with the number of rows."""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of
from daskkern.linalg.leave_one_out import leave_one_out_errors, lowest, weighted_spectrum

LEAST_ROWS = 10
"""Rows below which errors say nothing."""
PER_DECADE = 3
"""Penalties that are tried in each power of ten."""
_PARTS, _LEAST_PART = 4, 50
_SLOWEST, _FASTEST, _BEYOND = 0.5, 1.25, 2.0
_EXPECTED = 1.0  # order of the best penalty; what quarters of 1,000 rows say of it varies by 0.2 from draw to draw


@dataclass(frozen=True)
class BestPenalty:
    """The penalty of the least leave-one-out error.

    Attributes
    ----------
    alpha, least_tried : float
        The penalty, and the least that was tried.
    error : float
        The weighted sum of squares.
    unexplained : float
        The same as a share of the sum of squares about the mean.
    n_rows : int
        The rows.
    """

    alpha: float
    least_tried: float
    error: float
    unexplained: float = 0.0
    n_rows: int = 0


def best_penalty(gram: Array, y: FloatArray, weight: FloatArray | None, floor: float) -> BestPenalty | None:
    """Return the penalty of the least weighted sum of squared leave-one-out errors.

    Parameters
    ----------
    gram : (s, s) float64 array
        Kernel of the rows, where the work is to be done.
    y : (s, c) float64 array
    weight : (s,) float64 array or None
    floor : float
        Least penalty that is tried, as a share of the largest eigenvalue of B / s.

    Returns
    -------
    BestPenalty or None
        None where errors say nothing: under ten rows that count, targets or a kernel of zeros only.
    """
    found = _searched(gram, y, weight, floor)
    if found is None:
        return None
    top, exponents, errors = found
    counts = np.ones(len(y)) if weight is None else weight
    total = float((counts[:, None] * (y - counts @ y / counts.sum()) ** 2).sum())
    least = float(errors.min())
    share = least / total if total > 0 else 0.0
    return BestPenalty(top * 10.0 ** lowest(exponents, errors), top * floor, least, share, len(y))


def order_of(gram: Array, y: FloatArray, weight: FloatArray | None, best: BestPenalty) -> float:
    """Return b of ``alpha ~ s^-b``, by which the best penalty of s rows falls with s; between 1/2 and 9/8.

    Parameters
    ----------
    gram, y, weight
        As in :func:`best_penalty`.
    best : BestPenalty
        Of all rows.

    Returns
    -------
    float
        The mean of 1 and of what follows from the penalty of the least mean error of four quarters of the rows; 1/2
        where they are too few, or where a best penalty is the least or the largest that was tried.
    """
    if len(gram) < _PARTS * _LEAST_PART:
        return _SLOWEST
    found = []
    for k in range(_PARTS):
        part = slice(k, None, _PARTS)
        own = None if weight is None else weight[part]
        found.append(_searched(gram[part, part], y[part], own, best.least_tried / best.alpha, best.alpha))
    known = [part for part in found if part is not None]
    if len(known) < _PARTS:
        return _SLOWEST
    errors: FloatArray = np.sum([part[2] for part in known], axis=0)
    if best.alpha <= best.least_tried or int(np.argmin(errors)) in (0, len(errors) - 1):
        return _SLOWEST
    measured = np.clip(lowest(known[0][1], errors) / np.log10(_PARTS), _SLOWEST, _FASTEST)
    return float(measured + _EXPECTED) / 2


def _searched(
    gram: Array, y: FloatArray, weight: FloatArray | None, floor: float, unit: float | None = None
) -> tuple[float, FloatArray, FloatArray] | None:
    """Return a unit, the largest eigenvalue of B / s, the penalties as powers of ten of it, and their errors.

    Penalties are at least `floor` units. With a `unit` given, they reach beyond it.
    """
    s = len(gram)
    counted = s if weight is None else int((weight > 0).sum())
    if counted < LEAST_ROWS or not y.any():
        return None
    xp = namespace_of(gram)
    values, U, root = weighted_spectrum(gram, weight)
    top = float(values[-1]) / s
    if not top > 0:
        return None
    highest, unit = (0.0, top) if unit is None else (_BEYOND, unit)
    exponents = np.arange(np.log10(floor), highest + 0.01, 1 / PER_DECADE)
    return unit, exponents, leave_one_out_errors(values, U, root[:, None] * xp.asarray(y), s * unit * 10.0**exponents)
