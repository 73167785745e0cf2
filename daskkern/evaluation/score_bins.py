"""Calibration of probabilities, from histograms of fixed size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray, IntArray

_CALIBRATION_BINS = 15
_NORMAL_95 = 1.959964
_SMALLEST = 1e-15  # a probability of 0 for the true class would make the log loss infinite


@dataclass(frozen=True)
class CalibrationBin:
    """Rows whose largest probability is in one range: their number, its mean, and the share of correct predictions."""

    lower: float
    upper: float
    n_rows: int
    confidence: float
    accuracy: float

    def interval(self) -> tuple[float, float]:
        """Return the 95% interval of the share that is right in the long run, by Wilson's score.

        Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
        """
        n, z = self.n_rows, _NORMAL_95
        middle = (self.accuracy + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * (self.accuracy * (1 - self.accuracy) / n + z**2 / (4 * n**2)) ** 0.5
        return max(0.0, middle - half), min(1.0, middle + half)

    def joined(self, other: "CalibrationBin") -> "CalibrationBin":
        """Return the rows of both."""
        n = self.n_rows + other.n_rows
        mine, its = self.n_rows / n, other.n_rows / n
        return CalibrationBin(
            min(self.lower, other.lower),
            max(self.upper, other.upper),
            n,
            mine * self.confidence + its * other.confidence,
            mine * self.accuracy + its * other.accuracy,
        )


def joined_bins(bins: Sequence[CalibrationBin], least: int) -> list[CalibrationBin]:
    """Return bins of at least `least` rows each, made of neighbours; one, if there are fewer rows altogether."""
    found: list[CalibrationBin] = []
    for part in bins:
        if found and found[-1].n_rows < least:
            found[-1] = found[-1].joined(part)
        else:
            found.append(part)
    if len(found) > 1 and found[-1].n_rows < least:
        last = found.pop()
        found[-1] = found[-1].joined(last)
    return found


@dataclass(frozen=True)
class Reliability:
    """The result of :class:`ReliabilitySums`; `error` is the expected calibration error."""

    log_loss: float
    brier: float
    error: float
    bins: tuple[CalibrationBin, ...]


class ReliabilitySums:
    """Sums of predicted probabilities and of outcomes."""

    def __init__(self, n_classes: int) -> None:
        self.weight, self._log, self._squares, self._k = 0.0, 0.0, 0.0, n_classes
        self._rows = np.zeros(_CALIBRATION_BINS, np.int64)
        self._weights, self._right, self._promised = np.zeros((3, _CALIBRATION_BINS))

    def add(self, probabilities: HostArray, codes: IntArray, weight: HostArray | None = None) -> None:
        """Add probabilities (m, k) of rows of classes `codes` (m,), which count by `weight` (m,), or all alike."""
        w = np.ones(len(codes)) if weight is None else weight
        p = probabilities.astype(np.float64)
        truth = p[np.arange(len(codes)), codes]
        self.weight += float(w.sum())
        self._log -= float(w @ np.log(np.maximum(truth, _SMALLEST)))
        self._squares += float(w @ ((p**2).sum(axis=1) - 2 * truth + 1))
        top = p.max(axis=1)
        where = np.minimum((top * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
        self._rows += np.bincount(where, minlength=_CALIBRATION_BINS)
        right = w * (p.argmax(axis=1) == codes)
        for sums, values in ((self._weights, w), (self._right, right), (self._promised, w * top)):
            sums += np.bincount(where, weights=values, minlength=_CALIBRATION_BINS)

    def result(self) -> Reliability:
        """Return the result for the rows added, of which one must have a weight above 0."""
        bins = tuple(
            CalibrationBin(
                k / _CALIBRATION_BINS,
                (k + 1) / _CALIBRATION_BINS,
                int(rows),
                float(self._promised[k] / self._weights[k]),
                float(self._right[k] / self._weights[k]),
            )
            for k, rows in enumerate(self._rows)
            if self._weights[k] > 0
        )
        error = float(np.abs(self._promised - self._right).sum()) / self.weight
        brier = self._squares / self.weight / (2 if self._k == 2 else 1)
        return Reliability(self._log / self.weight, brier, error, bins)
