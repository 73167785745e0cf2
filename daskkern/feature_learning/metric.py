"""Conversion of the average gradient outer product to a kernel with that metric."""

from dataclasses import replace

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.random import generator
from daskkern.kernels.functions.length_scale import MEDIAN_ROWS
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel

MOST_RANK = 256
MOST_SQUARE = 2048
"""Features up to which M (d, d) is made; beyond, its product with random directions."""
_MOST_NUMBERS = MOST_RANK * MOST_SQUARE  # of a factor whose rank is not given: a kernel keeps it as Python's numbers
_LEAST_RANK = 8
MORE = 16
"""Directions beyond the rank that M is multiplied with."""
_DIRECTIONS = 74  # the stream that they are drawn from
_LEAST_WEIGHT = 1e-4  # of the largest: a feature that never counts could not be told from one that is constant
_LEAST_VALUE = 1e-6  # of the largest eigenvalue of M


def rank_for(d: int, rank: int | None) -> int:
    """Return the most directions of a metric of d features: `rank`, or by default 256, and fewer beyond 2,048."""
    return min(d, rank or min(MOST_RANK, max(_LEAST_RANK, _MOST_NUMBERS // d)))


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
    plain = replace(kernel, length_scale="median")
    return plain.median(sample[:MEDIAN_ROWS].astype(np.float64))


def directions_for(d: int, rank: int, seed: int, known: FloatArray | None = None) -> FloatArray:
    """Return orthonormal directions (d, r) that M is multiplied with, r a few more than `rank`.

    The first span `known` (d, k), where leading directions of M are known approximately; the others are random.
    """
    r = min(d, rank + MORE)
    drawn = generator(seed, _DIRECTIONS).standard_normal((d, r))
    if known is not None:
        drawn[:, : min(r, known.shape[1])] = known[:, -r:]
    found: FloatArray = np.linalg.qr(drawn)[0]
    return found


def range_of(sketch: FloatArray) -> FloatArray:
    """Return orthonormal directions (d, r) of the range of M, for M's product with directions and its diagonal."""
    found: FloatArray = np.linalg.qr(sketch[:, :-1])[0]
    return found


def factor_of_sketch(sketch: FloatArray, directions: FloatArray, rank: int) -> FloatArray:
    """Return F (d, k) as :func:`factor_of` does, from M's product Y with directions Q, without M.

    ``M ~ Y (Q^T Y)^+ Y^T``, the Nystrom approximation (Halko, Martinsson and Tropp, SIAM Review 2011, alg. 5.5), which
    is exact where M has no more directions than Q.

    Parameters
    ----------
    sketch : (d, r + 1) array
        Y, and the diagonal of M in the last column.
    directions : (d, r) array
        Q, orthonormal.
    rank : int
    """
    Y, d = sketch[:, :-1], len(sketch)
    size = float(sketch[:, -1].sum()) / d
    if not (size > 0 and np.isfinite(sketch).all()):
        return np.eye(d, min(d, rank))
    core = directions.T @ Y / size
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    sound = values > len(values) * np.finfo(np.float64).eps * values[-1]
    left, roots, _ = np.linalg.svd(Y / size @ (vectors[:, sound] / np.sqrt(values[sound])), full_matrices=False)
    kept = np.flatnonzero(roots**2 > _LEAST_VALUE * roots[0] ** 2)[:rank][::-1]
    factor: FloatArray = left[:, kept] * roots[kept]
    return factor
