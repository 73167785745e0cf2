"""Shifts that calibrate predicted quantiles, from errors on rows outside the training set."""

from collections.abc import Sequence

import numpy as np

from daskkern.arrays import FloatArray

_CHANCE = 2.0  # standard errors of a share


def quantile_shifts(levels: Sequence[float], errors: FloatArray, weight: FloatArray) -> FloatArray:
    """Return what to add to each prediction (c,), so that the share of targets below is its quantile.

    It is 0 where the share does not differ by more than chance: a minimum of the loss is left alone.

    Parameters
    ----------
    levels : sequence of float
        The quantiles, of each target in turn.
    errors : (k, c) array
        Targets less predictions.
    weight : (k,) array
        Weights of the rows.
    """
    k, c = errors.shape
    share = weight / weight.sum()
    n_effective = 1 / float((share**2).sum())
    found = np.zeros(c)
    for j in range(c):
        q = levels[j % len(levels)]
        order = np.argsort(errors[:, j], kind="stable")
        below = float(share[errors[:, j] < 0].sum())
        at = float(share[errors[:, j] <= 0].sum())
        spread = _CHANCE * np.sqrt(q * (1 - q) / n_effective)
        if at < q - spread or below > q + spread:
            sums = np.cumsum(share[order])
            found[j] = errors[order[min(k - 1, int(np.searchsorted(sums, q)))], j]
    return found
