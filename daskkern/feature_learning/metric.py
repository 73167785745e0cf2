"""From the average gradient outer product to the kernel that uses it as its metric."""

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.kernels.functions.length_scale import MEDIAN_ROWS
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel

MOST_RANK = 256
_LEAST_WEIGHT = 1e-4  # of the largest: a feature that never counts could not be told from one that is constant
_LEAST_VALUE = 1e-6  # of the largest eigenvalue of M


def weights_of(M: FloatArray) -> FloatArray:
    """Return the weights (d,) of the features: the root of the diagonal M (d,), with mean square 1."""
    size = float(M.mean())
    if not (size > 0 and np.isfinite(size)):
        return np.ones_like(M)
    weights = np.sqrt(np.maximum(M, 0) / size)
    found: FloatArray = np.maximum(weights, _LEAST_WEIGHT * weights.max())
    return found


def factor_of(M: FloatArray, rank: int) -> FloatArray:
    """Return F (d, k) with ``F F^T = M d / trace(M)``, up to the directions left out: k is at most `rank`."""
    size = float(np.trace(M)) / len(M)
    if not (size > 0 and np.isfinite(M).all()):
        return np.eye(len(M))
    values, vectors = np.linalg.eigh(M / size)
    kept = np.arange(len(values))[values > _LEAST_VALUE * values[-1]][-rank:]
    factor: FloatArray = vectors[:, kept] * np.sqrt(values[kept])
    return factor


def with_factor(kernel: ScaledDistanceKernel, factor: FloatArray, sample: Array, times: float) -> ScaledDistanceKernel:
    """Return `kernel` of rows that are weighted by `factor`, with `times` their median distance as its length scale.

    Parameters
    ----------
    kernel : ScaledDistanceKernel
    factor : (d,) weights or (d, k) matrix
    sample : (m, d) array or CSR rows
        Rows whose median distance counts.
    times : float

    Raises
    ------
    DataError
        When all weighted rows are equal.
    """
    unit = kernel.weighted(factor, 1.0)
    return kernel.weighted(factor, times * unit.median(unit.transform(sample[:MEDIAN_ROWS].astype(np.float64))))


def median_of(kernel: ScaledDistanceKernel, sample: Array) -> float:
    """Return the median distance of the rows of `sample`, as the kernel measures it without its length scale.

    Raises
    ------
    DataError
        When all rows are equal.
    """
    return kernel.median(sample[:MEDIAN_ROWS].astype(np.float64))
