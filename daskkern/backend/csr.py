"""Validation and canonical form of CSR rows, so that compiled code may read them: each column once per row."""

from typing import Any, TypeAlias

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of

Rows: TypeAlias = Any
"""A CSR matrix or array of SciPy or CuPy."""


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


def with_ones(X: Any, column: int, n_columns: int) -> Any:
    """Return CSR rows (m, n_columns) with an entry 1 more in each, in `column`; a copy, of the same type."""
    xp = namespace_of(X.data)
    m = X.shape[0]
    at = X.indptr[1:] + xp.arange(m, dtype=X.indptr.dtype)  # the last entry of each row
    old = xp.ones(X.nnz + m, bool)
    old[at] = False
    data, indices = xp.ones(X.nnz + m, X.dtype), xp.full(X.nnz + m, column, X.indices.dtype)
    data[old], indices[old] = X.data, X.indices
    indptr = X.indptr + xp.arange(m + 1, dtype=X.indptr.dtype)
    return type(X)((data, indices, indptr), shape=(m, n_columns))
