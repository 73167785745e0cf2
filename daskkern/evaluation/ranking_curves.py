"""ROC and precision-recall curves, from counts of rows by score."""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray

_MOST_POINTS = 256


@dataclass(frozen=True, eq=False, repr=False)
class RankingCurve:
    """What thresholds of one column of scores achieve, from the strictest to the loosest: fractions, float64 (m,).

    Attributes
    ----------
    false_positive_rate : array (m,)
        The share of negative rows above each threshold; begins with 0 and ends with 1.
    recall : array (m,)
        The share of positive rows above it (the true positive rate); begins with 0 and ends with 1.
    precision : array (m,)
        The share of the rows above it that are positive; begins with 1, where no row is above, by convention.
    area : float
        Area under the ROC curve of all thresholds.
    average_precision : float
        ``sum_n (recall_n - recall_(n-1)) precision_n`` over all thresholds, as scikit-learn's.
    prevalence : float
        The share of positive rows: the precision of scores that say nothing.
    """

    false_positive_rate: HostArray
    recall: HostArray
    precision: HostArray
    area: float
    average_precision: float
    prevalence: float


def ranking_curve(negative: FloatArray | IntArray, positive: FloatArray | IntArray) -> RankingCurve | None:
    """Return the curve of a column whose negative and positive rows were counted, or their weights added up, by rising
    score, or None without rows of both kinds. About 256 points are kept, at equal distances along the two rates."""
    n_negative, n_positive = float(negative.sum()), float(positive.sum())
    if n_negative == 0 or n_positive == 0:
        return None
    counted = np.flatnonzero(negative + positive)[::-1]
    false, true = np.cumsum(negative[counted]), np.cumsum(positive[counted])
    rates = np.concatenate([[0.0], false / n_negative]), np.concatenate([[0.0], true / n_positive])
    precision = np.concatenate([[1.0], true / (false + true)])
    area = float((np.diff(rates[0]) * (rates[1][1:] + rates[1][:-1]) / 2).sum())
    average = float((np.diff(rates[1]) * precision[1:]).sum())
    kept = _kept(rates[0] + rates[1])
    prevalence = n_positive / (n_positive + n_negative)
    return RankingCurve(rates[0][kept], rates[1][kept], precision[kept], area, average, prevalence)


def _kept(along: HostArray) -> IntArray:
    """Return the indices of about _MOST_POINTS rising numbers at equal distances, the first and the last included."""
    if len(along) <= _MOST_POINTS:
        return np.arange(len(along))
    found = np.searchsorted(along, np.linspace(along[0], along[-1], _MOST_POINTS))
    return np.unique(np.append(found, [0, len(along) - 1]))
