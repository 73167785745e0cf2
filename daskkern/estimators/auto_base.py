"""The base class of the estimators that search for a model."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskkern.cluster.connect.clients import client_of
from daskkern.estimators.classifier import KernelClassifier
from daskkern.estimators.parameters import active_client, cloned
from daskkern.estimators.regressor import KernelRegressor
from daskkern.model_selection import Budget
from daskkern.model_selection.searched_fit import search_on, with_trials
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings


class AutoKernelEstimator(BaseEstimator):
    """Base class of the estimators that search; it is not used by itself."""

    best_estimator_: KernelClassifier | KernelRegressor

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the client, which cannot be copied."""
        return cloned(self, ("client",))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "client": None}

    def _search(self, plain: KernelClassifier | KernelRegressor, source: RowSource) -> None:
        """Search, fit to all rows of `source`, and set the attributes of the fit. `plain` has the defaults."""
        source = plain._named(source)
        settings = plain._settings_for(source)
        budget = Budget(self.max_seconds)
        with plain._listening(settings.max_epochs) as listener, client_of(active_client(self.client)) as client:
            found = search_on(source, settings, client, budget=budget, scoring=self.scoring, listener=listener)
            result = with_trials(fit(source, found.settings, client=client, listener=listener), found.trials)
        if result.finished.note:
            warnings.warn(result.finished.note, ConvergenceWarning, stacklevel=4)
        self.trials_ = found.trials
        self.best_params_ = parameters_of(found.settings)
        best = plain.set_params(**self.best_params_)
        best._take(result)
        best._basis = found.settings.basis
        self.best_estimator_, self.model_ = best, result.model
        self.n_features_in_ = best.n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_

    def predict(self, X: Any) -> Any:
        """Return predictions: NumPy in, NumPy out; dask in, lazy dask out; a store is streamed."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a Zarr group at `path`, with the table of the trials."""
        check_is_fitted(self, "best_estimator_")
        self.best_estimator_.save(path)

    def to_onnx(
        self, path: str | Path, inputs: str = "auto", *, confidence: float | None = None, overwrite: bool = False
    ) -> None:
        """Write the fitted model to an ONNX file; see :func:`daskkern.models.onnx_graph.write_onnx`."""
        check_is_fitted(self, "best_estimator_")
        self.model_.to_onnx(path, inputs, confidence=confidence, overwrite=overwrite)

    def plot(
        self, show: str | Sequence[str] = ("loss", "validation_loss"), against: str = "epoch", axes: Any = None
    ) -> Any:
        """Draw columns of the history of the last fit and return the axes; see :func:`daskkern.plot.history`."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.plot(show, against, axes)


def parameters_of(settings: FitSettings) -> dict[str, Any]:
    """Return the parameters of an ordinary estimator that a search has chosen."""
    return {
        "kernel": settings.kernel,
        "loss": settings.loss.spec(),
        "basis": settings.basis,
        "solver": settings.solver,
        "alpha": settings.alpha,
        "scale": settings.scale,
        "learn_features": settings.learn_features or False,
    }
