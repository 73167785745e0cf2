"""Conversion of users' rows to operands of products: valid, canonical, dense or CSR."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array
from daskkern.backend import csr
from daskkern.backend.device_rows import DeviceRows, stack_device_rows
from daskkern.backend.namespace import device_rows, is_sparse, namespace_of
from daskkern.errors import DataError

_unchecked: ContextVar[bool] = ContextVar("unchecked", default=False)


def module_of(rows: Array) -> ModuleType:
    """Return the module (``numpy`` or ``cupy``) of dense or CSR rows."""
    return namespace_of(rows.data if is_sparse(rows) else rows)


def rows_dtype(X: Array) -> Any:
    """Return the dtype that :func:`as_rows` gives to `X`, without reading its numbers; raises DataError likewise."""
    if len(getattr(X, "shape", ())) != 2:
        raise DataError(f"rows must be a table (n, d); found {getattr(X, 'shape', type(X).__name__)}")
    found = np.dtype(X.dtype)
    if found.kind not in "fiub" or found.itemsize > 8:
        raise DataError(f"rows must be real numbers; found dtype {found}")
    return csr.float_dtype(found)


def as_rows(X: Array, dtype: Any = None) -> Array:
    """Return `X` as rows that products take: float32 or float64, dense or CSR, two-dimensional; copied if necessary.

    float16 becomes float32, and so do integers of up to 16 bits; other integers become float64. Duplicate CSR
    entries are then added. `X` is never modified.

    Raises
    ------
    DataError
        For another shape or dtype, and for sparse rows whose arrays are inconsistent.
    """
    natural = rows_dtype(X)
    dtype = natural if dtype is None else np.dtype(dtype)
    if not is_sparse(X):
        return X if X.dtype == dtype else X.astype(dtype)
    rows = csr.checked(X, dtype)
    xp = module_of(rows)
    return rows if xp is np or isinstance(rows, DeviceRows) else device_rows(rows, xp)


def stack_rows(first: Array, later: Array) -> Array:
    """Return CSR rows followed by others; a copy."""
    if isinstance(first, DeviceRows):
        return stack_device_rows([first, later])
    xp = module_of(first)
    parts = [xp.concatenate(pair) for pair in ((first.data, later.data), (first.indices, later.indices))]
    starts = xp.concatenate([first.indptr, first.indptr[-1] + later.indptr[1:]])
    return type(first)((*parts, starts), shape=(first.shape[0] + later.shape[0], first.shape[1]))


def with_ones(X: Any, column: int, n_columns: int) -> Any:
    """Return CSR rows (m, n_columns) with an entry 1 more in each, in `column`; a copy, of the same type."""
    if isinstance(X, DeviceRows):
        return X.with_ones(column, n_columns)
    xp = namespace_of(X.data)
    m = X.shape[0]
    at = X.indptr[1:] + xp.arange(m, dtype=X.indptr.dtype)  # the last entry of each row
    old = xp.ones(X.nnz + m, bool)
    old[at] = False
    data, indices = xp.ones(X.nnz + m, X.dtype), xp.full(X.nnz + m, column, X.indices.dtype)
    data[old], indices[old] = X.data, X.indices
    indptr = X.indptr + xp.arange(m + 1, dtype=X.indptr.dtype)
    return type(X)((data, indices, indptr), shape=(m, n_columns))


@contextmanager
def unchecked_rows() -> Iterator[None]:
    """Within the context, points on a GPU are not checked, which would be to wait for it.

    For rows that have been on the left side before: of those that are too large, all values are NaN there.
    """
    token = _unchecked.set(True)
    try:
        yield
    finally:
        _unchecked.reset(token)


def is_unchecked() -> bool:
    """Return whether this is within :func:`unchecked_rows`."""
    return _unchecked.get()
