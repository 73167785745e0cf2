"""Scores of lazy predictions: what scikit-learn gives for arrays, from one pass over the blocks of dask arrays."""

from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute

from daskkern.arrays import HostArray
from daskkern.data.remote.local_stores import fix_places
from daskkern.errors import DataError


def lazy_accuracy(predicted: da.Array, y: Any, sample_weight: Any = None) -> float:
    """Return the weighted share of rows (n,) whose predicted label is that of `y`, or of rows (n, c) all of whose are.

    Raises
    ------
    DataError
        For another number of labels than rows, labels of another kind than the classes, and missing labels.
    """
    y = _aligned(y, predicted)
    if _is_text(y) != _is_text(predicted):
        of, expected = ("text", "numbers") if _is_text(y) else ("numbers", "text")
        raise DataError(f"y holds {of}; expected labels that are {expected}, as the classes of the model are")
    weight = _weight(sample_weight, predicted)
    missing = da.isnan(y).any() if y.dtype.kind == "f" else np.False_
    same = predicted == y
    same = same.all(axis=1) if same.ndim == 2 else same
    right, total, unknown = compute((weight * same).sum(), weight.sum(), missing)
    if unknown:
        raise DataError("y holds NaN; remove such rows first")
    return float(right / total)


def lazy_r2(predicted: da.Array, y: Any, sample_weight: Any = None) -> float:
    """Return the mean R2 over targets; of a target without spread 1 where it is predicted exactly, else 0.

    Raises
    ------
    DataError
        For another number of rows or targets than predicted, and targets that are not finite.
    """
    y, weight = _aligned(y, predicted), _weight(sample_weight, predicted)
    weight = weight.reshape((-1,) + (1,) * (y.ndim - 1))
    mean = (weight * y).sum(axis=0) / weight.sum()
    residual, spread = compute((weight * (y - predicted) ** 2).sum(axis=0), (weight * (y - mean) ** 2).sum(axis=0))
    if not (np.isfinite(residual).all() and np.isfinite(spread).all()):
        raise DataError("y holds NaN or infinity; remove such rows first")
    residual, spread = np.atleast_1d(residual), np.atleast_1d(spread)
    return float(np.mean(np.where(spread > 0, 1 - residual / np.where(spread > 0, spread, 1), residual == 0)))


def _aligned(y: Any, predicted: da.Array) -> da.Array:
    """Return `y` as a dask array of the shape of the predictions; a single column is a vector."""
    fix_places(y)
    array = y if isinstance(y, da.Array) else da.from_array(np.asarray(y))
    if array.ndim == 2 and predicted.ndim == 1 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != predicted.ndim or any(_differ(*sizes) for sizes in zip(array.shape, predicted.shape, strict=True)):
        raise DataError(f"got y of shape {array.shape} for predictions of shape {predicted.shape}; give a value a row")
    return array if any(map(np.isnan, array.shape)) else array.rechunk(predicted.chunks)


def _weight(sample_weight: Any, predicted: da.Array) -> da.Array:
    if sample_weight is None:
        return da.ones(predicted.shape[0], chunks=predicted.chunks[0])
    fix_places(sample_weight)
    weight = da.asarray(sample_weight)
    if weight.ndim != 1 or _differ(weight.shape[0], predicted.shape[0]):
        raise DataError(f"got sample_weight of shape {weight.shape} for {predicted.shape[0]} rows; give one a row")
    return weight


def _differ(ours: float, theirs: float) -> bool:
    """Return whether two numbers of rows differ, as far as both are known."""
    return ours != theirs and not np.isnan(ours) and not np.isnan(theirs)


def _is_text(labels: da.Array | HostArray) -> bool:
    return labels.dtype.kind in "UST"
