"""Accuracy and calibration of multi-label predictions, accumulated block by block."""

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.rows.finite import check_labels
from daskkern.evaluation.measures import Score
from daskkern.evaluation.rankings import Ranking, mean_area
from daskkern.evaluation.score_bins import ReliabilitySums
from daskkern.models import KernelModel


class SeveralLabels:
    """Accumulated accuracy of rows, ranking of each label, and calibration of all labels together."""

    def __init__(self, model: KernelModel) -> None:
        self.n_rows, self._weight = 0, 0.0
        self._model, self._right = model, 0.0
        self._ranking, self._reliability = Ranking(model.n_outputs), ReliabilitySums(2)

    def add(self, scores: HostArray, y: HostArray, weight: HostArray) -> None:
        """Add a block of scores (m, c), labels (m, c) and weights (m,); DataError for another label than 0 and 1."""
        labels = np.asarray(y).reshape(len(y), -1)
        check_labels(labels)
        truth = labels > 0
        self.n_rows += len(truth)
        self._weight += float(weight.sum())
        self._right += float(weight[(self._model.labels(scores) == truth).all(axis=1)].sum())
        self._ranking.add(scores, truth, weight)
        if self._model.has_probabilities:
            p = self._model.probabilities(scores).reshape(-1, 1)
            self._reliability.add(
                np.concatenate([1 - p, p], axis=1), truth.ravel().astype(np.int64), np.repeat(weight, truth.shape[1])
            )

    def result(self) -> Score:
        """Return the score of the rows added, of which there must be at least one."""
        curves = self._ranking.curves()
        accuracy = self._right / self._weight
        reliability = self._reliability.result() if self._model.has_probabilities else None
        score = Score(self.n_rows, accuracy=accuracy, error=1 - accuracy, roc_auc=mean_area(curves), curves=curves)
        return score.with_reliability(reliability)
