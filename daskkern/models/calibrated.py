"""Calibrated predictions of a model: probabilities, prediction sets and intervals. Needs only NumPy."""

from typing import TYPE_CHECKING, Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.concurrency import product_threads
from daskkern.calibration import (
    Calibration,
    Posterior,
    ScoreScaling,
    conformal_quantile,
    intervals_around,
    intervals_between,
    label_sets,
)
from daskkern.data.schema.schema import Scaling
from daskkern.errors import ModelError
from daskkern.kernels import Kernel
from daskkern.losses import Loss, Probabilistic, Quantile, parse_loss
from daskkern.models.posterior import PosteriorFactor


class CalibratedScores:
    """The calibrated predictions of a model; see :class:`daskkern.models.KernelModel`."""

    if TYPE_CHECKING:
        loss: str
        task: str
        classes: Any
        calibration: Calibration | None
        coef: HostArray
        scores_each: int
        kernel: Kernel
        points: Any
        scaling: Scaling
        single_target: bool

        def check(self, X: Any) -> Any: ...
        def scores(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray: ...
        def labels(self, scores: HostArray) -> HostArray: ...

    @property
    def n_outputs(self) -> int:
        """Scores c of a row."""
        return int(self.coef.shape[1]) // self.scores_each

    @property
    def n_targets(self) -> int:
        """Targets of a regression: outputs, but for several quantiles of one target."""
        return self.n_outputs // self.loss_function.heads

    @property
    def loss_function(self) -> Loss:
        """The loss that the model was trained with."""
        return parse_loss(self.loss)

    @property
    def has_probabilities(self) -> bool:
        """Whether :meth:`predict_proba` gives probabilities: with a calibration, or a logistic loss."""
        calibrated = self.calibration is not None and self.calibration.scaling is not None
        return self.task != "regression" and (calibrated or isinstance(self.loss_function, Probabilistic))

    def predict_proba(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray:
        """Return class probabilities (n, n_classes), columns in the order of `classes`, or (n, t) of several labels.

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
        true label with a probability of at least `confidence`, on average over rows. The most probable label is always
        in the set.

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
        `confidence`, on average over rows. Of several quantiles, the lowest and the highest are moved apart, or
        together, so that the width differs from row to row (conformalized quantile regression).

        Raises
        ------
        ModelError
            For a classification model, and one without calibration.
        DataError
            When the model has too few calibration rows for this confidence.
        """
        return self.intervals(self.scores(self.check(X), scaled=scaled, threads=threads), confidence)

    def predict_std(
        self, X: HostArray, *, noisy: bool = True, scaled: bool = False, threads: int | None = None
    ) -> HostArray:
        """Return the standard deviations of the targets, (n,) float64, or (n, t) for several targets.

        Those of a Gaussian process whose posterior mean is the model: of the function, and with `noisy` of the noise of
        a new target. Its factor is made in the first call, from at most 2,000 points of the model; see
        :mod:`daskkern.calibration.posterior` for the formula.

        Raises
        ------
        ModelError
            For a classification model, one without calibration, and one whose columns are explicit features.
        DataError
            When the kernel matrix of the points is numerically not positive definite.
        """
        return self.deviations(self.variances(self.check(X), scaled=scaled, threads=threads), noisy=noisy)

    def variances(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray:
        """Return posterior variances (n, 1) of checked rows, in units of the prior's amplitude."""
        factor = self.__dict__.get("_factor")
        if factor is None:
            factor = PosteriorFactor(self, self._posterior().alpha)
            object.__setattr__(self, "_factor", factor)
        with product_threads(threads, float(X.shape[0]) * len(factor) ** 2):
            found: HostArray = factor.variance(X, scaled=scaled)[:, None]
        return found

    def deviations(self, variances: HostArray, *, noisy: bool = True) -> HostArray:
        """Return standard deviations for posterior variances (n, 1); see :meth:`predict_std`."""
        found = self._posterior().deviations(variances[:, 0], noisy=noisy)
        return found[:, 0] if self.single_target else found

    def _posterior(self) -> Posterior:
        found = self._recorded("regression", "standard deviations").posterior
        if found is None:
            raise ModelError(
                "models of explicit features, which have no posterior variance here, or of several quantiles, have no "
                "standard deviations; fit with landmarks or all rows as centres, and with loss 'squared'"
            )
        return found

    def probabilities(self, scores: HostArray) -> HostArray:
        """Return class probabilities for scores (n, c); see :meth:`predict_proba`."""
        if not self.has_probabilities:
            raise ModelError(
                f"a model of {self.task} with the {self.loss} loss that was not calibrated has no probabilities; fit a "
                "classifier with calibrate=True, or with loss 'logistic' or 'multinomial_logistic'"
            )
        scaling = None if self.calibration is None else self.calibration.scaling
        if self.task == "multilabel":
            return (scaling or ScoreScaling(1.0)).each(scores)
        if scaling is not None:
            return scaling.probabilities(scores)
        loss: Any = self.loss_function
        result: HostArray = loss.probabilities(scores)
        return result

    def central(self, scores: HostArray) -> HostArray:
        """Return predictions (n,) or (n, t) of regression targets; of several quantiles, the one nearest to 1/2."""
        loss, values = self.loss_function, self.labels(scores)
        if not isinstance(loss, Quantile) or loss.heads == 1:
            return values
        middle: HostArray = values[:, int(np.argmin(np.abs(np.asarray(loss.levels) - 0.5)))]
        return middle

    def sets(self, scores: HostArray, confidence: float) -> HostArray:
        """Return sets of labels for scores (n, c); see :meth:`predict_set`."""
        q = conformal_quantile(self._recorded("classification", "sets of labels").scores, confidence)
        return label_sets(self.probabilities(scores), q)

    def intervals(self, scores: HostArray, confidence: float) -> HostArray:
        """Return intervals for scores (n, c); see :meth:`predict_interval`."""
        q = self.widening(confidence)
        values = self.labels(scores)
        if self.loss_function.heads > 1:
            return intervals_between(values[:, 0], values[:, -1], q)
        return intervals_around(values, q)

    def widening(self, confidence: float) -> FloatArray:
        """Return how far intervals reach beyond predictions, (t,) float64; (1,) for several quantiles."""
        return conformal_quantile(self._recorded("regression", "intervals").scores, confidence)

    def _recorded(self, task: str, what: str) -> Calibration:
        if self.task != task:
            kind = "several labels a row" if self.task == "multilabel" else self.task
            raise ModelError(f"a model of {kind} has no {what}; these are for {task}")
        if self.calibration is None:
            raise ModelError(f"the model was not calibrated, so it has no {what}; fit it again with calibrate=True")
        return self.calibration
