"""Ranking metrics from counts of rows by score, in memory of fixed size."""

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.evaluation.ranking_curves import RankingCurve, ranking_curve

_MOST_SCORES = 1 << 22  # of all columns together
_TINY = float(np.finfo(float).tiny)


class Ranking:
    """Negative and positive rows of each column of scores, or their weights, added up by score (float32).

    Sums are exact up to 4 million / c different scores of a column. Beyond, neighbours are counted together, as equal,
    in groups of at most one part in (2 million / c) of all rows each.
    """

    def __init__(self, n_columns: int, *, most_scores: int = _MOST_SCORES) -> None:
        most = max(1024, most_scores // n_columns)
        self._columns = [_ScoreCounts(most) for _ in range(n_columns)]

    def add(self, scores: HostArray, positive: HostArray, weight: HostArray | None = None) -> None:
        """Add scores (m, columns), of which some are `positive`, of rows that count by their weights (m,), or alike."""
        weight = np.ones(len(scores)) if weight is None else weight
        for column, counts in enumerate(self._columns):
            counts.add(scores[:, column], positive[:, column], weight)

    def curves(self) -> tuple[RankingCurve | None, ...]:
        """Return the curve of each column; None of a column without rows of both kinds."""
        return tuple(ranking_curve(*counts.result()) for counts in self._columns)


def mean_area(curves: tuple[RankingCurve | None, ...]) -> float | None:
    """Return the mean area under the ROC curves of the columns that have one, or None."""
    areas = [curve.area for curve in curves if curve is not None]
    return sum(areas) / len(areas) if areas else None


class _ScoreCounts:
    """Different scores in rising order, with the weights of their negative and positive rows: exact below 2^53."""

    def __init__(self, most: int) -> None:
        self._most, self._n_new = most, 0
        self._values: HostArray = np.empty(0, np.float32)
        self._counts: FloatArray = np.empty((2, 0))
        self._new: list[tuple[HostArray, HostArray, HostArray]] = []

    def add(self, scores: HostArray, positive: HostArray, weight: HostArray) -> None:
        self._new.append((scores.astype(np.float32), np.asarray(positive, bool), weight))
        self._n_new += len(scores)
        if self._n_new >= self._most // 2:
            self._merge()

    def result(self) -> tuple[FloatArray, FloatArray]:
        """Return the weights of negative and of positive rows by rising score."""
        self._merge()
        return self._counts[0], self._counts[1]

    def _merge(self) -> None:
        """Sort what was added among what was counted; count neighbours together where there are too many scores."""
        if not self._n_new:
            return
        scores = np.concatenate([self._values, *(part for part, _, _ in self._new)])
        positive = np.concatenate([part for _, part, _ in self._new])
        weight = np.concatenate([part for _, _, part in self._new])
        weights = np.concatenate([self._counts, np.stack([~positive * weight, positive * weight])], axis=1)
        self._new, self._n_new = [], 0
        self._values, where = np.unique(scores, return_inverse=True)
        self._counts = _sums(weights, where, len(self._values))
        if len(self._values) > self._most:
            rows = self._counts.sum(axis=0)
            before = np.cumsum(rows) - rows
            group = before * (self._most // 2) // max(float(rows.sum()), _TINY)
            first = np.flatnonzero(np.diff(group, prepend=-1))
            self._values = self._values[first]
            self._counts = np.add.reduceat(self._counts, first, axis=1)


def _sums(weights: FloatArray, where: IntArray, n: int) -> FloatArray:
    """Return the sums of both rows of `weights` (2, m) at each of the indices `where` (m,) below `n`."""
    return np.stack([np.bincount(where, of_kind, n) for of_kind in weights])
