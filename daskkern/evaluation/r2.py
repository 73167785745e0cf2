"""The coefficient of determination, R2, from sums over rows."""

from typing import Any

import numpy as np

from daskkern.arrays import FloatArray

_ROUNDING = 8 * np.finfo(np.float64).eps  # of a mean, as a share of it


def r2_of(residual: Any, spread: Any, mean: Any, weight: Any) -> FloatArray:
    """Return R2 for each target (...): of one without spread 1 where it is predicted exactly, else 0.

    Parameters
    ----------
    residual : float or array (...)
        The sum of weighted squared errors.
    spread : float or array (...)
        The sum of weighted squared departures of the targets from their mean. Targets that are all the same depart from
        a mean that is rounded, which counts as no spread.
    mean, weight : float or array (...)
        The weighted mean of the targets, and the sum of the weights.
    """
    spreads = np.asarray(spread) > np.asarray(weight) * (_ROUNDING * np.asarray(mean)) ** 2
    found: FloatArray = np.where(spreads, 1 - residual / np.where(spreads, spread, 1.0), np.asarray(residual) == 0)
    return found
