"""The rows with the largest errors: a running selection of fixed size."""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.data.schema.schema import ClassLabel
from daskkern.evaluation.metrics import translate
from daskkern.models import KernelModel

_MOST_ROWS = 10


@dataclass(frozen=True)
class WorstRow:
    """A row of the scored data, counted from 0, with the truth and the prediction: labels, or numbers of all targets.

    `measure` is, of a classification, the probability of the true class, or where the model has none its score minus
    the highest other score; of a regression, the Euclidean norm of the row's errors, in units of the targets.
    """

    row: int
    truth: ClassLabel | tuple[float, ...]
    predicted: ClassLabel | tuple[float, ...]
    measure: float


class WorstRows:
    """Selects the worst rows of blocks that are added in their order; of equally bad rows the first.

    Of a classification, rows with a wrong prediction only; those with labels unknown to the model are left out.
    Several labels have no such order, and select none.
    """

    def __init__(self, model: KernelModel, classes: tuple[ClassLabel, ...] | None) -> None:
        self._model, self._start = model, 0
        self._codes = None if model.classes is None else translate(model.classes, classes)
        self._found: list[tuple[float, WorstRow]] = []

    def add(self, scores: HostArray, y: HostArray) -> None:
        """Add a block of scores (m, c) and targets: codes (m,), or values (m,) or (m, t)."""
        if self._codes is not None:
            self._add_classes(scores, self._codes[y])
        elif self._model.task == "regression":
            self._add_values(scores, y)
        self._start += len(y)

    def result(self) -> tuple[WorstRow, ...]:
        """Return the rows, the worst first."""
        return tuple(row for _, row in self._found)

    def _add_classes(self, scores: HostArray, codes: IntArray) -> None:
        assert self._model.classes is not None
        classes, predicted = self._model.classes, self._model.codes(scores)
        wrong = np.flatnonzero((codes >= 0) & (codes != predicted))
        if not len(wrong):
            return
        measure = self._certainty(scores[wrong], codes[wrong])
        for k in _smallest(measure):
            at = int(wrong[k])
            row = WorstRow(self._start + at, classes[codes[at]], classes[predicted[at]], float(measure[k]))
            self._found.append((row.measure, row))
        self._shorten()

    def _certainty(self, scores: HostArray, codes: IntArray) -> HostArray:
        """Return how sure the model is of the true classes `codes` (m,) of wrongly predicted rows."""
        at = np.arange(len(codes))
        if self._model.has_probabilities:
            return self._model.probabilities(scores)[at, codes].astype(np.float64)
        if scores.shape[1] == 1:
            return np.where(codes == 1, scores[:, 0], -scores[:, 0]).astype(np.float64)
        return (scores[at, codes] - scores.max(axis=1)).astype(np.float64)

    def _add_values(self, scores: HostArray, y: HostArray) -> None:
        truth = y.reshape(len(y), -1).astype(np.float64)
        predicted = self._model.central(scores).reshape(truth.shape).astype(np.float64)
        errors = np.linalg.norm(predicted - truth, axis=1)
        for k in _smallest(-errors):
            row = WorstRow(
                self._start + int(k), tuple(truth[k].tolist()), tuple(predicted[k].tolist()), float(errors[k])
            )
            self._found.append((-row.measure, row))
        self._shorten()

    def _shorten(self) -> None:
        self._found.sort(key=lambda found: (found[0], found[1].row))
        del self._found[_MOST_ROWS:]


def _smallest(measure: HostArray) -> IntArray:
    return np.argsort(measure, kind="stable")[:_MOST_ROWS]
