"""Split-conformal prediction sets and intervals, from nonconformity scores of rows outside the training set.

With n such rows, a quantile of their nonconformity scores at the rank ``ceil((n + 1) confidence)`` is exceeded by that
of a new row, exchangeable with them, with a probability of at most ``1 - confidence``.

References
----------
Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005; Sadinle, Lei and Wasserman, "Least ambiguous
set-valued classifiers with bounded error levels", JASA 2019 (scores of labels); Barber, Candes, Ramdas and Tibshirani,
"Predictive inference with the jackknife+", Annals of Statistics 2021 (leave-one-out scores).
"""

import math

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.errors import DataError, SpecError


def label_scores(probabilities: HostArray, codes: IntArray) -> FloatArray:
    """Return ``1 - p`` (m, 1) of the true class of each row, ascending."""
    truth = probabilities[np.arange(len(codes)), codes].astype(np.float64)
    return np.sort(1 - truth)[:, None]


def absolute_errors(errors: FloatArray) -> FloatArray:
    """Return the sizes of errors (m, t), ascending for each target."""
    return np.sort(np.abs(errors), axis=0)


def beyond_quantiles(low: FloatArray, high: FloatArray, y: FloatArray) -> FloatArray:
    """Return how far targets y (m,) lie below `low` (m,) or above `high` (m,), (m, 1) ascending; inside negative.

    Romano, Patterson and Candes, "Conformalized quantile regression", NeurIPS 2019, equation 6.
    """
    return np.sort(np.maximum(low - y, y - high))[:, None]


def conformal_quantile(scores: FloatArray, confidence: float) -> FloatArray:
    """Return the score (t,) of rank ``ceil((n + 1) confidence)`` of ascending scores (n, t).

    Raises
    ------
    SpecError
        For a confidence that is not between 0 and 1.
    DataError
        For too few rows.
    """
    if isinstance(confidence, bool) or not isinstance(confidence, int | float | np.number) or not 0 < confidence < 1:
        raise SpecError(f"got confidence={confidence!r}; give a number between 0 and 1, such as 0.9")
    n = len(scores)
    rank = math.ceil((n + 1) * float(confidence) - 1e-9)
    if rank > n:
        needed = math.ceil(float(confidence) / (1 - float(confidence)) - 1e-9)
        raise DataError(
            f"a confidence of {float(confidence):g} needs at least {needed:,} calibration rows, but the model has {n:,}"
            "; give a lower confidence, or fit with more rows"
        )
    quantile: FloatArray = scores[rank - 1]
    return quantile


def label_sets(probabilities: HostArray, quantile: FloatArray) -> HostArray:
    """Return which labels (n, c) have a score ``1 - p`` of at most the `quantile` (1,), and the most probable, bool.

    Without the latter, a model that is right more often than the confidence asks for would have empty sets.
    """
    inside: HostArray = 1 - probabilities.astype(np.float64) <= quantile
    inside[np.arange(len(inside)), probabilities.argmax(axis=1)] = True
    return inside


def intervals_around(values: HostArray, quantile: FloatArray) -> HostArray:
    """Return intervals (n, 2) or (n, t, 2) that reach `quantile` (t,) beyond values (n,) or (n, t) on both sides."""
    width = quantile if values.ndim == 2 else quantile[0]
    return np.stack([values - width, values + width], axis=-1)


def intervals_between(low: HostArray, high: HostArray, quantile: FloatArray) -> HostArray:
    """Return intervals (n, 2) from `low` (n,) to `high` (n,), widened by `quantile` (1,) on both sides.

    A negative quantile narrows them, at most to their middle.
    """
    low, high = low - quantile[0], high + quantile[0]
    middle = (low + high) / 2
    return np.stack([np.minimum(low, middle), np.maximum(high, middle)], axis=-1)
