"""Validation and canonical form of CSR rows, so that compiled code can read them: each column once per row."""

from typing import Any, TypeAlias

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.device_rows import DeviceRows
from daskkern.errors import DataError

Rows: TypeAlias = Any
"""A CSR matrix or array of SciPy or CuPy, or :class:`DeviceRows`."""


def flaw(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> str | None:
    """Return why the parts are not CSR rows of `shape`, so that products would read out of bounds; None if they are.

    `data` and `indices` may be longer than what `indptr` uses, as SciPy allows. Nothing is copied.
    """
    if len(indptr) != shape[0] + 1:
        return f"indptr has {len(indptr)} entries for {shape[0]} rows"
    used = int(indptr[-1])
    if int(indptr[0]) != 0 or used > min(len(data), len(indices)) or bool((indptr[1:] < indptr[:-1]).any()):
        return f"indptr does not rise from 0 to at most its {min(len(data), len(indices))} entries"
    if used == 0:
        return None
    first, last = int(indices[:used].min()), int(indices[:used].max())
    return None if first >= 0 and last < shape[1] else f"column numbers reach from {first} to {last}"


def canonical(rows: Rows) -> Rows:
    """Return CSR rows with sorted column numbers, each once per row: duplicate entries are added, in a copy.

    The cached flag of a matrix (``has_canonical_format``) is not used, because it may be older than the entries: its
    parts can be written to, and the flag can be set by hand. `rows` is never modified.
    """
    fresh = type(rows)((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    if fresh.has_canonical_format:
        return rows
    fresh = fresh.copy()  # it shares its parts with `rows`
    fresh.sum_duplicates()  # sorts, too
    return fresh


def float_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the float32 or float64 that holds numbers of this dtype, as rows have it."""
    found = np.dtype(dtype)
    small = found.itemsize <= (2 if found.kind != "f" else 4)
    return np.dtype(np.float32 if small else np.float64)


def checked(rows: Rows, dtype: Any = None) -> Rows:
    """Return sparse rows, of any format, in CSR, canonical and of this dtype. Checking a CuPy matrix waits for the GPU.

    Raises
    ------
    DataError
        When the arrays are inconsistent.
    """
    dtype = rows.dtype if dtype is None else dtype
    if isinstance(rows, DeviceRows):
        return rows if rows.dtype == dtype else rows.astype(dtype)
    rows = rows if rows.format == "csr" else rows.tocsr()
    found = flaw(rows.data, rows.indices, rows.indptr, rows.shape)
    if found is not None:
        raise DataError(f"sparse rows of shape {tuple(rows.shape)} cannot be read: {found}; construct them again")
    return canonical(rows if rows.dtype == dtype else rows.astype(dtype))


def parts_of(rows: Rows) -> tuple[Array, Array, IntArray]:
    """Return numbers, columns and starts of canonical rows in the types of :class:`DeviceRows`, where they lie."""
    if isinstance(rows, DeviceRows):
        return rows.data, rows.indices, rows.indptr
    if rows.shape[1] > np.iinfo(np.int32).max:
        raise DataError(f"got sparse rows of {rows.shape[1]:,} features; on a GPU give at most 2,147,483,647")
    used = int(rows.indptr[-1])
    starts: IntArray = rows.indptr.astype(np.int64, copy=False)
    return rows.data[:used], rows.indices[:used].astype(np.int32, copy=False), starts


def with_entries(rows: Rows, data: Array) -> Rows:
    """Return CSR rows with other numbers in the same places."""
    if isinstance(rows, DeviceRows):
        return rows.with_data(data)
    return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)


def library_matrix(rows: Rows) -> Rows:
    """Return rows on a GPU as a matrix of CuPy's, for what :class:`DeviceRows` has not, which waits; others as is."""
    return rows.tocsr() if isinstance(rows, DeviceRows) else rows
