"""Conversion of a user's input - a path, a Zarr group, dask or NumPy arrays - to a source of rows."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import zarr
from dask.base import compute, is_dask_collection
from dask.delayed import delayed
from distributed import futures_of
from sklearn.base import BaseEstimator

from daskkern.arrays import HostArray
from daskkern.backend.namespace import as_host, is_of_gpu, is_sparse
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.csr import FeatureRows, as_csr
from daskkern.data.rows.exact_integers import check_label_floats, check_quantities
from daskkern.data.rows.finite import refuse_masks
from daskkern.data.schema.same_columns import column_names
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.estimators.direct_inputs import direct_source, is_direct
from daskkern.estimators.frames import check_raw, named
from daskkern.estimators.labels import codes_of, one_column, plain_labels, plain_targets, refuse_sparse, refuse_text
from daskkern.training.direct.group_source import GroupSource
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.cluster_blocks import BlockSource, LazyBlock
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sources import StoreSource


def is_store(X: Any) -> bool:
    """Return whether `X` is a store or the location of one."""
    return isinstance(X, str | os.PathLike | zarr.Group)


def is_lazy(X: Any) -> bool:
    """Return whether `X` is a dask array."""
    return isinstance(X, da.Array)


def only_store(y: Any, sample_weight: Any) -> None:
    """Raise DataError for targets or weights passed with a store, which brings its own."""
    if y is not None or sample_weight is not None:
        raise DataError("a store brings its own targets and weights; pass y and sample_weight with arrays only")


def store_source(X: Any, y: Any, sample_weight: Any, task: str) -> StoreSource:
    """Return the source for a store, which brings its own targets and weights."""
    only_store(y, sample_weight)
    source = StoreSource.at(X)
    if source.info.task is None:
        raise DataError(f"the store {X} has no targets; ingest it again with --target")
    if source.info.task != task:
        other = "KernelRegressor" if source.info.task == "regression" else "KernelClassifier"
        raise DataError(
            f"got the store {X} with a {source.info.task} target for a {task} estimator; "
            f"use {other} or ingest with --task {task}"
        )
    return source


def validation_source(
    validation: Any,
    make: Callable[[Any, Any], RowSource],
    estimator: BaseEstimator,
    roles: RowRoles,
    source: RowSource,
) -> RowSource | None:
    """Return the source for ``validation=`` of a fit to `source`: None, a store, a Dataset, or a pair (X, y)."""
    if validation is None:
        return None
    X, y = validation if isinstance(validation, tuple) and len(validation) == 2 else (validation, None)
    if isinstance(source, GroupSource) and is_direct(X, roles):
        task = str(source.info.task)
        return direct_source(estimator, X, y, None, roles, task, source.info)
    if is_store(validation):
        return StoreSource.at(validation)
    if isinstance(validation, tuple) and len(validation) == 2:
        X, y = map(_computed, validation)
        if y is None:
            raise DataError("got validation rows without targets; give a pair (X, y) of rows and targets")
        found = make(X, y)
        if not found.info.n_rows:
            raise DataError("got 0 validation rows; give one at least, or leave out validation")
        return named(found, column_names(X))
    raise DataError(f"got validation of type {type(validation).__name__}; give a store, or a pair (X, y) of arrays")


def _computed(part: Any) -> Any:
    """Return a collection of Dask in memory; others as they are."""
    return part.compute() if is_dask_collection(part) else part


def lazy_source(
    X: da.Array, y: Any, sample_weight: Any, task: str, known: HostArray | None = None
) -> tuple[BlockSource, HostArray | None]:
    """Return the source for a dask array `X` (n, d) with targets, and the classes.

    Rows are computed block by block when they are needed; y is computed once here to find the classes, or to check
    that it has no classes other than `known`.
    """
    fix_places(X, y, sample_weight)
    X = _table(X)
    if y is None:
        raise DataError("got no y; a fit on arrays needs the targets of the rows of X")
    if not is_lazy(y):
        y = _in_memory(y, task)
    y = _aligned(y, X, "y")
    weight = lazy_weights(sample_weight, X)
    classes = None
    if task == "classification":
        y = one_column(y)
        if y.ndim != 1:
            raise DataError(f"got y with shape {y.shape}; expected one class label per row")
        classes = _unique(y)
        if classes.dtype.kind == "f" and np.isnan(classes).any():
            raise DataError("y holds NaN; remove such rows first")
        if classes.dtype.kind == "f" and not (classes == np.rint(classes)).all():
            raise DataError("y holds fractions, which are not class labels; use KernelRegressor")
        check_label_floats(classes)
        if known is not None:
            codes_of(classes, known)
            classes = known
    elif y.dtype.kind not in "fiubO":
        raise DataError(f"got y as a dask array of {y.dtype}; expected numbers")
    elif y.ndim > 2:
        raise DataError(f"got y with shape {y.shape}; expected one target for each row, (n,), or several, (n, t)")
    single = y.ndim == 1
    labels = None if classes is None else plain_labels(classes)
    width = 1 if single else y.shape[1]
    info = SourceInfo(X.shape[0], X.shape[1], task, labels, Scaling(), None, width, single, _stored_entries(X))
    return _blocks(X, y, weight, classes, info), classes


def unlabelled_lazy_source(X: da.Array, sample_weight: Any = None) -> BlockSource:
    """Return the source for a dask array `X` (n, d) without targets; see :func:`lazy_source`."""
    fix_places(X, sample_weight)
    X = _table(X)
    weight = lazy_weights(sample_weight, X)
    info = SourceInfo(X.shape[0], X.shape[1], None, None, Scaling(), None, 0, True, _stored_entries(X))
    return _blocks(X, None, weight, None, info)


def _table(X: da.Array) -> da.Array:
    """Return `X` with a block of rows a chunk."""
    X = _known(X, "X")
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise DataError(f"got X as a dask array of {X.dtype} with shape {X.shape}; expected a table of numbers")
    return X.rechunk({1: -1})


def _blocks(
    X: da.Array, y: da.Array | None, weight: da.Array | None, classes: HostArray | None, info: SourceInfo
) -> BlockSource:
    """Return the blocks of aligned dask arrays."""
    sizes = tuple(int(size) for size in X.chunks[0])
    none = [None] * len(sizes)
    to_y = none if y is None else list(y.to_delayed().reshape(len(sizes), -1)[:, 0])
    to_w = none if weight is None else list(weight.to_delayed())
    encode = _Encode(classes, info.n_stored is not None)
    on_gpu, held = is_of_gpu(X._meta), {future.key for future in futures_of(X)}
    chunks = X.to_delayed()[:, 0]
    blocks = [LazyBlock(parts, encode, on_gpu, parts[0].key in held) for parts in zip(chunks, to_y, to_w, strict=True)]
    return BlockSource(tuple(blocks), sizes, weight is not None, info, itemsize=X.dtype.itemsize)


def _stored_entries(X: da.Array) -> int | None:
    """Return the number of entries of sparse chunks, which are computed for it; None for dense chunks."""
    if not is_sparse(X._meta):
        return None
    counts = [delayed(_entries)(chunk) for chunk in X.to_delayed()[:, 0]]
    return int(sum(compute(*counts)))


def _entries(chunk: Any) -> int:
    return int(chunk.nnz) if is_sparse(chunk) else int(np.count_nonzero(as_host(chunk)))


def _csr(chunk: Any) -> Any:
    """Return a sparse chunk of SciPy or CuPy as canonical CSR rows in host memory."""
    return as_csr(chunk.get() if hasattr(chunk, "get") and hasattr(chunk, "device") else chunk)


def _unique(y: da.Array) -> HostArray:
    """Return the labels in `y`, ascending."""
    try:
        lazy: Any = y
        on_host = lazy.map_blocks(_labels_on_host, dtype=y.dtype, meta=np.empty(0, y.dtype))
        return np.asarray(da.unique(on_host).compute())
    except TypeError as error:
        raise DataError(
            "y holds labels that have no order; remove missing ones, and make all text, or all numbers"
        ) from error


def _labels_on_host(chunk: Any) -> HostArray:
    """Return a chunk of labels in host memory: CuPy cannot unite them, and masks would be lost."""
    refuse_masks(chunk, "a chunk of y")
    return as_host(chunk)


@dataclass(frozen=True, eq=False)
class _Encode:
    """Converts the computed parts of a block to (X, y, weight), with codes for class labels. None stays None."""

    classes: HostArray | None
    is_sparse: bool

    def __call__(self, X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
        refuse_masks(X, "a chunk of X")
        refuse_masks(y, "a chunk of y")
        rows, targets = None if X is None else self._rows(X), None if y is None else self._targets(as_host(y))
        return rows, targets, None if weight is None else host_weights(weight)

    def _rows(self, X: Any) -> FeatureRows:
        if is_sparse(X):
            return _csr(X) if self.is_sparse else _csr(X).toarray()
        return as_csr(as_host(X)) if self.is_sparse else as_host(X)

    def _targets(self, y: HostArray) -> HostArray:
        if self.classes is not None:
            return np.searchsorted(self.classes, y).astype(np.int64)
        check_quantities(y)
        return y[:, None] if y.ndim == 1 else y


def host_weights(chunk: Any) -> HostArray:
    """Return a chunk of weights (m,) in host memory, float64. DataError unless they are finite, and 0 or more."""
    refuse_masks(chunk, "a chunk of sample_weight")
    weight: HostArray = as_host(chunk).astype(np.float64)
    check_weight(weight)
    return weight


def check_weight(weight: HostArray) -> None:
    """Raise DataError for weights that are negative or not finite."""
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise DataError("sample_weight holds NaN, infinite or negative numbers; give finite ones of 0 or more")


def _known(array: da.Array, name: str) -> da.Array:
    refuse_masks(array, name)
    if any(np.isnan(size) for size in array.shape):
        raise DataError(f"{name} is a dask array of unknown length; call {name}.compute_chunk_sizes() first")
    return array


def _in_memory(y: Any, task: str) -> HostArray:
    """Return targets in memory as an array, with the checks of a fit to rows in memory."""
    refuse_sparse(y)
    check_raw(None, y)
    if task == "regression":
        refuse_text(y)
    return as_host(plain_targets(y))


def lazy_weights(sample_weight: Any, X: da.Array) -> da.Array | None:
    """Return weights as an array (n,) with the chunks of `X`; a number is the weight of every row."""
    if sample_weight is None:
        return None
    if not is_lazy(sample_weight) and np.ndim(sample_weight) == 0:
        sample_weight = np.full(X.shape[0], sample_weight)
    weight = _aligned(sample_weight, X, "sample_weight")
    if weight.ndim != 1 or weight.dtype.kind not in "fiubO":
        raise DataError(
            f"got sample_weight of {weight.dtype} and shape {weight.shape}; expected a number for each row, (n,)"
        )
    return weight


def _aligned(other: Any, X: da.Array, name: str) -> Any:
    """Return an array (n, ...) with the chunks of rows that `X` has."""
    refuse_masks(other, name)
    array: Any = _known(other, name) if is_lazy(other) else as_host(other)
    if array.ndim == 0 or array.shape[0] != X.shape[0]:
        raise DataError(f"{name} has {array.shape[0] if array.ndim else 'no'} rows, but X has {X.shape[0]}")
    if not is_lazy(array):  # Dask does not choose chunks of objects
        return da.from_array(array, chunks=(X.chunks[0], *array.shape[1:]))
    chunks = {0: X.chunks[0], **({1: -1} if array.ndim == 2 else {})}
    return array.rechunk(chunks)
