"""Conversion of users' rows to those that products take: tables of floats, dense or CSR, valid and canonical."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array
from daskkern.backend import csr
from daskkern.backend.namespace import is_sparse, namespace_of
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
    small = found.itemsize <= (2 if found.kind != "f" else 4)
    return np.dtype(np.float32 if small else np.float64)


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
    rows = X if X.format == "csr" else X.tocsr()
    flaw = csr.flaw(rows.data, rows.indices, rows.indptr, rows.shape)
    if flaw is not None:
        raise DataError(f"sparse rows of shape {tuple(rows.shape)} cannot be read: {flaw}; construct them again")
    return csr.canonical(rows if rows.dtype == dtype else rows.astype(dtype))


def stack_rows(first: Array, later: Array) -> Array:
    """Return CSR rows followed by others; a copy."""
    xp = module_of(first)
    parts = [xp.concatenate(pair) for pair in ((first.data, later.data), (first.indices, later.indices))]
    starts = xp.concatenate([first.indptr, first.indptr[-1] + later.indptr[1:]])
    return type(first)((*parts, starts), shape=(first.shape[0] + later.shape[0], first.shape[1]))


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
