"""The scores of scikit-learn for lazy predictions, from one pass over the blocks of Dask arrays."""

from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute, is_dask_collection, persist

from daskkern.arrays import HostArray
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.finite import refuse_masks
from daskkern.errors import DataError
from daskkern.evaluation.r2 import r2_of


def lazy_accuracy(predicted: da.Array, y: Any, sample_weight: Any = None) -> float:
    """Return the weighted share of rows (n,) whose predicted label is that of `y`, or of rows (n, c) all of whose are.

    Raises
    ------
    DataError
        For another number of labels than rows, labels of another kind than the classes, missing labels, and weights
        that are not finite or all 0.
    """
    predicted, y, weight = _aligned(predicted, y, sample_weight)
    if "O" not in (y.dtype.kind, predicted.dtype.kind) and _is_text(y) != _is_text(predicted):
        of, expected = ("text", "numbers") if _is_text(y) else ("numbers", "text")
        raise DataError(f"y holds {of}; expected labels that are {expected}, as the classes of the model are")
    missing = da.isnan(y).any() if y.dtype.kind == "f" else np.False_
    same = predicted == y
    same = same.all(axis=1) if same.ndim == 2 else same
    right, total, unknown = compute((weight * same).sum(), weight.sum(), missing)
    if unknown:
        raise DataError("y holds NaN; remove such rows first")
    _check_total(total)
    return float(right / total)


def lazy_r2(predicted: da.Array, y: Any, sample_weight: Any = None) -> float:
    """Return the mean R2 over targets; of a target without spread 1 where it is predicted exactly, else 0.

    Raises
    ------
    DataError
        For another number of rows or targets than predicted, targets that are not finite, and weights that are not
        finite or all 0.
    """
    predicted, y, weight = _aligned(predicted, y, sample_weight)
    weight = weight.reshape((-1,) + (1,) * (y.ndim - 1))
    total = weight.sum()
    mean = (weight * y).sum(axis=0) / da.where(total == 0, 1, total)
    residual, spread, mean, total = compute(
        (weight * (y - predicted) ** 2).sum(axis=0), (weight * (y - mean) ** 2).sum(axis=0), mean, total
    )
    _check_total(total)
    if not (np.isfinite(residual).all() and np.isfinite(spread).all()):
        raise DataError("y holds NaN or infinity; remove such rows first")
    return float(np.mean(r2_of(residual, spread, mean, total)))


def _check_total(weight: float) -> None:
    if not np.isfinite(weight) or weight == 0:
        raise DataError(f"sample_weight adds up to {float(weight):g}; give finite weights that are not all 0")


def _aligned(predicted: da.Array, y: Any, sample_weight: Any) -> tuple[da.Array, da.Array, da.Array]:
    """Return predictions, targets of their shape and weights (n,) in the same chunks; a single column is a vector.

    Where Dask knows no lengths, all three are computed together once: few numbers a row, and no features.
    """
    fix_places(y, sample_weight)
    given = [_unmasked(_lazy(y), "y")]
    if sample_weight is not None:
        given.append(_unmasked(_lazy(sample_weight), "sample_weight"))
    arrays = [predicted, *given]
    if any(np.isnan(size) for array in arrays for size in array.shape):
        arrays = [array.compute_chunk_sizes() for array in persist(*arrays)]
    predicted, array, *weights = arrays
    if array.ndim == 2 and predicted.ndim == 1 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != predicted.shape:
        raise DataError(f"got y of shape {array.shape} for predictions of shape {predicted.shape}; give a value a row")
    rows = predicted.chunks[0]
    weight = weights[0] if weights else da.ones(predicted.shape[0], chunks=(rows,))
    if weight.shape != predicted.shape[:1]:
        raise DataError(f"got sample_weight of shape {weight.shape} for {predicted.shape[0]} rows; give one a row")
    return predicted, array.rechunk(predicted.chunks), weight.rechunk((rows,))


def _lazy(values: Any) -> da.Array:
    """Return targets or weights as a dask array, which Dask itself does not make of objects."""
    if isinstance(values, da.Array):
        return values
    if is_dask_collection(values) and hasattr(values, "to_dask_array"):
        return values.to_dask_array()
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)
    return da.from_array(array, chunks=-1)


def _unmasked(values: da.Array, name: str) -> da.Array:
    """Return targets or weights whose chunks are refused when they are computed, if they are masked."""
    return da.map_blocks(partial(_refused_masks, name=name), values, dtype=values.dtype, meta=values._meta)


def _refused_masks(chunk: Any, name: str) -> Any:
    refuse_masks(chunk, f"a chunk of {name}")
    return np.asarray(chunk)


def _is_text(labels: da.Array | HostArray) -> bool:
    return labels.dtype.kind in "UST"
