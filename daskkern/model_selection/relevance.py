"""The relevance of single features to the targets, as initial weights of a metric.

Where a few of many features matter, a function of all of them fits noise, and its gradients say little. The correlation
ratio of a feature, the share of the variance of y that is between the bins of its values, says which ones matter by
themselves. Under chance, b bins of n rows share ``(b - 1) / (n - 1)``, and the most of d features about
``sqrt(2 log d)`` standard deviations ``sqrt(2 (b - 1)) / (n - 1)`` more; only what exceeds that counts.
"""

import numpy as np

from daskkern.arrays import FloatArray, HostArray

LEAST_FEATURES = 16
"""Features from which weights by relevance are tried: of fewer, gradients find those that matter."""
_BINS = 8
_ROUNDING = 1e-12  # of the mean square of y: a variance below it is none
_SPREAD = 0.1  # share of the squared weights that is spread over all features: some matter only with others


def relevance(X: HostArray, y: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the excess (d,) of the correlation ratio of each feature over what is chance; 0 for most that are noise.

    Parameters
    ----------
    X : (n, d) array
    y : (n, c) array
        The variances of the columns are added up.
    shares : (n,) array
        Weights of the rows, with the sum 1.
    """
    n, d = X.shape
    centred = y - shares @ y
    total, size_of_y = (float((shares @ values**2).sum()) for values in (centred, y))
    found = np.zeros(d)
    if n < 2 or not total > _ROUNDING * size_of_y:
        return found
    gaps = shares[:, None] * centred
    bounds = np.quantile(X, np.arange(1, _BINS) / _BINS, axis=0)
    for number in range(d):
        bins = np.searchsorted(np.unique(bounds[:, number]), X[:, number], side="left")
        size = np.bincount(bins, shares)
        sums = np.stack([np.bincount(bins, gap) for gap in gaps.T], axis=1)
        held = size > 0
        freedom = int(held.sum()) - 1
        if not freedom:
            continue
        ratio = float((sums[held] ** 2).sum(axis=1) @ (1 / size[held])) / total
        chance = (freedom + np.sqrt(2 * freedom) * np.sqrt(2 * np.log(max(d, 2)))) / (n - 1)
        found[number] = max(0.0, ratio - chance)
    return found


def spread(found: FloatArray) -> FloatArray:
    """Return squared weights (d,) of features with this relevance, with the sum 1 and a share for every feature."""
    total, d = float(found.sum()), len(found)
    if not total > 0:
        return np.full(d, 1 / d)
    return (1 - _SPREAD) * found / total + _SPREAD / d
