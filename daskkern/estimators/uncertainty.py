"""Probabilities, prediction sets and intervals of the estimators, for arrays, frames, Dask arrays and stores."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from daskkern.estimators.base import KernelEstimator
from daskkern.estimators.parameters import loss_of
from daskkern.losses import Probabilistic
from daskkern.models import KernelModel


def _has_probabilities(estimator: "ClassUncertainty") -> bool:
    if estimator.calibrate or isinstance(loss_of(estimator), Probabilistic):
        return True
    raise AttributeError(
        f"predict_proba is not available for the {loss_of(estimator).name} loss with calibrate=False; leave "
        "calibrate out, or train with loss='logistic' or 'multinomial_logistic'"
    )


class ClassUncertainty(KernelEstimator):
    """Mixin of classifiers for probabilities and prediction sets."""

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities (n, n_classes), or (n, c) of several labels; lazy for a dask array.

        The scores of any loss become probabilities by the calibration of the model; see
        :meth:`daskkern.models.KernelModel.predict_proba`.
        """
        check_is_fitted(self, "model_")
        return self._apply(X, self.model_.probabilities, np.empty((0, len(self.classes_)), self.model_.coef.dtype))

    def predict_set(self, X: Any, confidence: float = 0.9) -> Any:
        """Return which labels may be the true one, (n, n_classes) bool, columns ordered as `classes_`.

        Lazy for a dask array. See :meth:`daskkern.models.KernelModel.predict_set` for the guarantee and the errors.
        """
        check_is_fitted(self, "model_")
        like = self.model_.sets(self.model_.coef[:0, : self.model_.n_outputs], confidence)
        return self._apply(X, partial(self.model_.sets, confidence=confidence), like)


class ValueUncertainty(KernelEstimator):
    """Mixin of regressors for intervals and standard deviations."""

    def _deviations(self, X: Any) -> Any:
        """Return the standard deviations of new targets at rows, as :meth:`predict` takes them."""
        check_is_fitted(self, "model_")
        method = self.model_.deviations
        return self._apply(X, method, method(np.empty((0, 1))), KernelModel.variances)

    def predict_interval(self, X: Any, confidence: float = 0.9) -> Any:
        """Return lower and upper bounds of the targets, (n, 2) float64, or (n, t, 2) for several targets.

        Lazy for a dask array. See :meth:`daskkern.models.KernelModel.predict_interval` for the guarantee and the
        errors.
        """
        check_is_fitted(self, "model_")
        like = self.model_.intervals(self.model_.coef[:0, : self.model_.n_outputs], confidence)
        return self._apply(X, partial(self.model_.intervals, confidence=confidence), like)
