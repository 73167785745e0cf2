"""Probabilities, sets and intervals of a model, from its scores and its calibration. Needs only NumPy."""

from typing import TYPE_CHECKING, Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.calibration import Calibration, conformal_quantile
from daskkern.errors import ModelError
from daskkern.losses import Loss, Probabilistic, parse_loss


class CalibratedScores:
    """The part of a model that says how sure it is; see :class:`daskkern.models.KernelModel`."""

    if TYPE_CHECKING:
        loss: str
        task: str
        classes: Any
        calibration: Calibration | None
        coef: HostArray
        scores_each: int

        def check(self, X: Any) -> Any: ...
        def scores(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray: ...
        def labels(self, scores: HostArray) -> HostArray: ...

    @property
    def n_outputs(self) -> int:
        """Scores c of a row."""
        return int(self.coef.shape[1]) // self.scores_each

    @property
    def loss_function(self) -> Loss:
        """The loss that the model was trained with."""
        return parse_loss(self.loss)

    @property
    def has_probabilities(self) -> bool:
        """Whether :meth:`predict_proba` gives probabilities: with a calibration, or a logistic loss."""
        calibrated = self.calibration is not None and self.calibration.scaling is not None
        return self.task == "classification" and (calibrated or isinstance(self.loss_function, Probabilistic))

    def predict_proba(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray:
        """Return class probabilities (n, n_classes), columns in the order of `classes`.

        They are those of the calibration; without one, those of a logistic loss. With class weights in the fit, they
        are frequencies of the unweighted rows, and the most probable class need not be the predicted label.

        Raises
        ------
        ModelError
            For a regression model, and for one of another loss that was not calibrated.
        """
        return self.probabilities(self.scores(self.check(X), scaled=scaled, threads=threads))

    def predict_set(
        self, X: HostArray, confidence: float = 0.9, *, scaled: bool = False, threads: int | None = None
    ) -> HostArray:
        """Return which labels may be the true one, (n, n_classes) bool, columns in the order of `classes`.

        A set has every label whose probability is at least ``1 - q``, with q a quantile of ``1 - p`` of the true class
        on the calibration rows (least ambiguous sets). Where these rows were set aside, the set of a new row has its
        true label with a probability of at least `confidence`, on average over rows. Sets may be empty.

        Raises
        ------
        ModelError
            For a regression model, and one without calibration.
        DataError
            When the model has too few calibration rows for this confidence.
        """
        return self.sets(self.scores(self.check(X), scaled=scaled, threads=threads), confidence)

    def predict_interval(
        self, X: HostArray, confidence: float = 0.9, *, scaled: bool = False, threads: int | None = None
    ) -> HostArray:
        """Return lower and upper bounds of the targets, (n, 2) float64, or (n, t, 2) for several targets.

        Predictions minus and plus a quantile of the absolute errors on the calibration rows, of each target by itself.
        Where these rows were set aside, the interval of a new row has its target with a probability of at least
        `confidence`, on average over rows.

        Raises
        ------
        ModelError
            For a classification model, and one without calibration.
        DataError
            When the model has too few calibration rows for this confidence.
        """
        return self.intervals(self.scores(self.check(X), scaled=scaled, threads=threads), confidence)

    def probabilities(self, scores: HostArray) -> HostArray:
        """Return class probabilities for scores (n, c); see :meth:`predict_proba`."""
        if not self.has_probabilities:
            raise ModelError(
                f"a model of {self.task} with the {self.loss} loss that was not calibrated has no probabilities; fit a "
                "classifier with calibrate=True, or with loss 'logistic' or 'multinomial_logistic'"
            )
        scaling = None if self.calibration is None else self.calibration.scaling
        if scaling is not None:
            return scaling.probabilities(scores)
        loss: Any = self.loss_function
        result: HostArray = loss.probabilities(scores)
        return result

    def sets(self, scores: HostArray, confidence: float) -> HostArray:
        """Return sets of labels for scores (n, c); see :meth:`predict_set`."""
        q = conformal_quantile(self._recorded("classification", "sets of labels").scores, confidence)
        inside: HostArray = 1 - self.probabilities(scores).astype(np.float64) <= q
        return inside

    def intervals(self, scores: HostArray, confidence: float) -> HostArray:
        """Return intervals for scores (n, c); see :meth:`predict_interval`."""
        q = conformal_quantile(self._recorded("regression", "intervals").scores, confidence)
        values = self.labels(scores)
        width = q if values.ndim == 2 else q[0]
        return np.stack([values - width, values + width], axis=-1)

    def _recorded(self, task: str, what: str) -> Calibration:
        if self.task != task:
            raise ModelError(f"a model of {self.task} has no {what}; these are for {task}")
        if self.calibration is None:
            raise ModelError(f"the model was not calibrated, so it has no {what}; fit it again with calibrate=True")
        return self.calibration
