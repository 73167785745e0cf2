"""Fitted estimators from saved models, without the state of their solver."""

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.inspection.columns import columns_of
from daskkern.models import KernelModel, load_model

_OF_ROWS = ("all rows", "landmarks")
"""Columns whose function is the kernel of the fit; that of features takes their place, not that of rows."""


def restore(estimator: BaseEstimator, saved: Any) -> None:
    """Set the attributes of a fitted estimator from a model, and the parameters that the model records.

    Raises
    ------
    SpecError
        For a model of another task, or anything that is not a model.
    ModelError
        When the model is missing or damaged.
    """
    model = load_model(os.fspath(saved)) if isinstance(saved, str | os.PathLike) else saved
    if not isinstance(model, KernelModel):
        raise SpecError(f"got a {type(model).__name__}; expected a saved model: its path, URL, or KernelModel")
    if (model.task == "regression") == is_classifier(estimator):
        kind = "KernelRegressor" if model.task == "regression" else "KernelClassifier"
        raise SpecError(f"got a model of {model.task}; use {kind}.from_model")
    settings = model.provenance.get("settings", {})
    alpha = float(settings.get("alpha", np.nan))
    known = {"kernel": model.kernel, "alpha": alpha} if settings.get("basis") in _OF_ROWS else {}
    estimator.set_params(loss=model.loss, **known)
    history = model.history_
    found: dict[str, Any] = {
        "model_": model,
        "dual_coef_": model.coef,
        "landmarks_": model.points,
        "landmark_indices_": None,
        "kernel_": model.kernel,
        "alpha_": alpha,
        "n_features_in_": model.n_features if model.encoding is None else len(model.encoding),
        "n_iter_": len(history),
        "best_epoch_": history.finished.best_epoch or len(history) if history.finished else len(history),
        "history_": history,
        "stop_reason_": str(model.provenance.get("reason", "")),
    }
    if model.task != "regression":
        found["classes_"] = model.class_array() if model.classes is not None else np.arange(model.n_outputs)
    if settings.get("learn_features"):
        found["feature_importances_"] = column_importances(model, found["n_features_in_"])
    for name, value in found.items():
        setattr(estimator, name, value)


def column_importances(model: KernelModel, n_columns: int) -> HostArray:
    """Return the share of each column of a table (n_columns,) in the metric, the sum over its features."""
    shares = model.feature_importances()
    return shares if len(shares) == n_columns else columns_of(model).sum(shares)
