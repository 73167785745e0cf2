"""Class labels and their codes, from 0 on."""

from typing import Any

import dask.array as da
import numpy as np
from sklearn.utils import check_array

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.ingest.columns.written_values import is_number
from daskkern.data.rows.finite import check_labels, refuse_masks
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError
from daskkern.losses import decode
from daskkern.models import KernelModel


def codes_of(y: Any, classes: HostArray, what: str = "y") -> IntArray:
    """Return the codes (n,) int64 of labels. DataError names labels that are not among the classes."""
    refuse_masks(y, what)
    y = one_column(np.asarray(plain_targets(y)))
    unknown = np.setdiff1d(y, classes)
    if unknown.size:
        raise DataError(f"{what} holds {unknown[:5].tolist()}, not among the classes {classes[:20].tolist()}")
    return np.searchsorted(classes, y).astype(np.int64)


def plain_targets(y: Any) -> Any:
    """Return targets with nullable dtypes of pandas, of integers or booleans, as NumPy has them; others as they are.

    scikit-learn makes floats of them, which renames labels and rounds large integers.
    """
    dtypes = list(y.dtypes) if hasattr(y, "iloc") and hasattr(y, "columns") else [getattr(y, "dtype", None)]
    plain = [getattr(dtype, "numpy_dtype", None) for dtype in dtypes]
    if not plain or any(dtype is None or dtype.kind not in "iub" for dtype in plain) or np.any(y.isna()):
        return y
    common = np.result_type(*plain)
    return y.to_numpy(common) if common.kind in "iub" else y


def one_column(y: HostArray) -> HostArray:
    """Return a column (n, 1) of targets as (n,); others as they are."""
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def refuse_sparse(y: Any) -> None:
    """Raise DataError for a sparse matrix of numbers as targets."""
    if is_sparse(y):
        raise DataError(f"got targets as a sparse matrix of shape {y.shape}; give a dense array, such as y.toarray()")


def refuse_text(y: Any) -> None:
    """Raise DataError for targets that hold text which is not a number."""
    if y is None:
        return
    targets = np.asarray(y)
    if targets.dtype.kind not in "OUS":
        return
    for value in targets.ravel().tolist():
        if isinstance(value, str | bytes) and not is_number(value):
            raise DataError(
                f"got {value!r:.60} among the targets; a regressor needs numbers, and KernelClassifier takes classes"
            )


def scored_labels(model: KernelModel, y: Any, sample_weight: Any) -> Any:
    """Return the labels that predictions of a classifier are compared with; several a row are checked to be 0 or 1.

    Of a dask array they are checked when they are computed. DataError for masked labels and weights.
    """
    refuse_masks(y, "y")
    refuse_masks(sample_weight, "sample_weight")
    if model.task != "multilabel" or y is None:
        return y
    if isinstance(y, da.Array):
        lazy: Any = y
        return lazy.map_blocks(_zeros_and_ones, dtype=y.dtype, meta=y._meta)
    labels: Any = y if is_sparse(y) else np.asarray(y)
    if labels.dtype.kind == "O":  # of nullable dtypes
        labels = check_array(y, dtype="numeric", ensure_all_finite=False)
    _zeros_and_ones(labels.data if is_sparse(labels) else labels)
    return labels


def _zeros_and_ones(labels: HostArray) -> HostArray:
    if labels.dtype.kind in "fiub":
        check_labels(labels)
    return labels


def plain_labels(classes: HostArray) -> tuple[ClassLabel, ...]:
    """Return class labels as Python strings, integers, floats or booleans, which a saved model can store."""
    labels = tuple(classes.tolist())
    kinds = {type(label) for label in labels}
    if len(kinds) != 1 or not kinds <= {str, int, float, bool}:
        names = sorted(kind.__name__ for kind in kinds)
        raise DataError(f"got class labels of type {names}; use strings, integers, floats or booleans")
    return labels


class Labels:
    """Maps scores to labels, in the dtype of the user's labels."""

    def __init__(self, classes: HostArray) -> None:
        self._classes = classes

    def __call__(self, scores: HostArray) -> HostArray:
        return self._classes[decode(scores)]
