"""Validation of rows to predict: a table of finite numbers."""

from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.rows.finite import check_finite, refuse_masks
from daskkern.errors import DataError


def checked_table(X: Any, n_features: int, task: str) -> Any:
    """Return `X` as a 2-d array of finite numbers, dense or CSR, with so many features, or raise DataError."""
    refuse_masks(X, "X")
    array = X.tocsr() if is_sparse(X) else _as_array(X)
    if array is None or array.ndim != 2 or array.dtype.kind not in "fiub":
        found = f"a {type(X).__name__}" if array is None else f"{array.dtype} of shape {array.shape}"
        estimator = "KernelRegressor" if task == "regression" else "KernelClassifier"
        raise DataError(
            f"got {found}; expected a table (rows, {n_features} features) of numbers; for data frames, files and "
            f"Datasets use {estimator}.from_model(model)"
        )
    if array.shape[1] != n_features:
        raise DataError(
            f"the model was trained on {n_features} features, but X has {array.shape[1]}; "
            "give the same columns in the same order"
        )
    check_finite(array)
    return array


def _as_array(X: Any) -> HostArray | None:
    """Return `X` as an array; None for what NumPy does not take."""
    try:
        return np.asarray(X)
    except (TypeError, ValueError):
        return None
