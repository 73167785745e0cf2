"""Metrics accumulated block by block: memory does not grow with the number of rows."""

from dataclasses import replace

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError
from daskkern.evaluation.label_metrics import SeveralLabels
from daskkern.evaluation.measures import Score
from daskkern.evaluation.rankings import Ranking, mean_area
from daskkern.evaluation.score_bins import ReliabilitySums
from daskkern.models import KernelModel

__all__ = ["MetricAccumulator", "Score"]


class MetricAccumulator:
    """Accumulates a score. `classes` are the labels that the codes of the rows stand for."""

    def __init__(self, model: KernelModel, classes: tuple[ClassLabel, ...] | None) -> None:
        self._model = model
        self._classes = None if model.classes is None else _Classes(model, classes)
        self._values: _Values | SeveralLabels | None = None
        self._weight: float | None = None
        if model.classes is None:
            self._values = SeveralLabels(model) if model.task == "multilabel" else _Values(model)

    def add(self, scores: HostArray, y: HostArray, weight: HostArray | None = None) -> None:
        """Add a block of scores (m, c), targets: codes (m,), or values (m,) or (m, t), and weights (m,) of all or no
        blocks."""
        w = np.ones(len(y)) if weight is None else weight.astype(np.float64)
        if weight is not None:
            self._weight = (self._weight or 0.0) + float(w.sum())
        if self._classes is not None:
            self._classes.add(scores, y, w)
        if self._values is not None:
            self._values.add(scores, y, w)

    def result(self) -> Score:
        """Return the score of all rows added; DataError when there were none."""
        counted = self._classes or self._values
        if counted is None or counted.n_rows == 0:
            raise DataError("got no rows to score; give at least one")
        if self._weight == 0:
            raise DataError("the rows to score all have weight 0; give rows that count")
        return replace(counted.result(), weight=self._weight)


class _Values:
    """Accumulated errors of predicted numbers."""

    def __init__(self, model: KernelModel) -> None:
        t = model.n_targets
        self.n_rows, self._weight = 0, 0.0
        self._model = model
        self._absolute = 0.0
        self._squares, self._mean, self._spread = np.zeros(t), np.zeros(t), np.zeros(t)
        self._anchor: HostArray | None = None

    def add(self, scores: HostArray, y: HostArray, weight: HostArray) -> None:
        y, w = y.reshape(len(y), -1).astype(np.float64), weight[:, None]
        errors = self._model.central(scores).reshape(len(y), -1) - y
        self.n_rows += len(y)
        self._squares += (w * errors**2).sum(axis=0)
        self._absolute += float((w * np.abs(errors)).sum())
        if weight.any():
            self._add_moments(y, w)

    def _add_moments(self, y: HostArray, w: HostArray) -> None:
        """Add weighted moments as Chan, Golub and LeVeque do (The American Statistician, 1983)."""
        if self._anchor is None:  # deviations from it are exactly 0 for targets that are all the same
            first = int(np.argmax(w[:, 0] > 0))
            self._anchor = y[first : first + 1]
        total, y = float(w.sum()), y - self._anchor
        mean = (w * y).sum(axis=0) / total
        delta, joined = mean - self._mean, self._weight + total
        self._spread += (w * (y - mean) ** 2).sum(axis=0) + delta**2 * (self._weight * total / joined)
        self._mean += delta * (total / joined)
        self._weight = joined

    def result(self) -> Score:
        t, spread = self._spread.size, self._spread
        defined = bool((spread > 0).all())
        return Score(
            self.n_rows,
            rmse=float(self._squares.sum() / (self._weight * t)) ** 0.5,
            mae=self._absolute / (self._weight * t),
            r2=float((1 - self._squares / spread).mean()) if defined else float("nan"),
        )


class _Classes:
    """Accumulated accuracy, confusion matrix, ranking of scores, and calibration of probabilities."""

    def __init__(self, model: KernelModel, classes: tuple[ClassLabel, ...] | None) -> None:
        assert model.classes is not None
        k = len(model.classes)
        self.n_rows, self._weight, self._right = 0, 0.0, 0.0
        self._model = model
        self._codes = translate(model.classes, classes)
        self._confusion = np.zeros((k, k), np.int64)
        self._unknown = 0
        self._probable = model.has_probabilities
        self._ranking = Ranking(1 if k == 2 else k)
        self._reliability = ReliabilitySums(k)

    def add(self, scores: HostArray, y: HostArray, weight: HostArray) -> None:
        codes, k = self._codes[y], len(self._confusion)
        known = codes >= 0
        found = self._model.codes(scores)
        pairs, w = codes[known] * k + found[known], weight[known]
        self.n_rows += len(codes)
        self._weight += float(weight.sum())
        self._right += float(weight[known & (codes == found)].sum())
        self._unknown += int((~known).sum())
        self._confusion += np.bincount(pairs, minlength=k * k).reshape(k, k)
        ordered = scores
        if self._probable:
            ordered = self._model.probabilities(scores)
            self._reliability.add(ordered[known], codes[known], w)
        if k == 2:
            single = ordered[:, 1:] if ordered.shape[1] == 2 else ordered
            if not self._probable and ordered.shape[1] == 2:
                single = ordered[:, 1:] - ordered[:, :1]
            self._ranking.add(single[known], (codes[known] == 1)[:, None], w)
        else:
            self._ranking.add(ordered[known], codes[known][:, None] == np.arange(k), w)

    def result(self) -> Score:
        curves = self._ranking.curves()
        accuracy = self._right / self._weight
        reliability = self._reliability.result() if self._probable and self._reliability.weight > 0 else None
        return Score(
            self.n_rows,
            accuracy=accuracy,
            error=1 - accuracy,
            roc_auc=mean_area(curves),
            curves=curves,
            classes=self._model.classes,
            confusion=tuple(tuple(int(count) for count in row) for row in self._confusion),
            unknown=self._unknown,
        ).with_reliability(reliability)


def translate(ours: tuple[ClassLabel, ...], theirs: tuple[ClassLabel, ...] | None) -> IntArray:
    """Return the model's code of each of the rows' codes, or -1 for a label unknown to the model."""
    if theirs is None:
        raise DataError("got rows without class labels to score a classifier; give rows with labels")
    known = {label: code for code, label in enumerate(ours)}
    codes = np.array([known.get(label, -1) for label in theirs], np.int64)
    if (codes < 0).all():
        raise DataError(
            f"none of the labels of the rows ({list(theirs)[:5]}) is a class of the model ({list(ours)[:5]}); "
            "was the store made from other data?"
        )
    return codes
