"""Checks of dense and sparse tables for NaN and infinity, and of labels for values other than 0 and 1."""

from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import slices
from daskkern.data.rows.csr import FeatureRows
from daskkern.errors import DataError

_BLOCK_ROWS = 8192
"""Rows checked at once, which bounds the memory of a check."""


def first_not_finite(X: FeatureRows) -> tuple[int, int, Any] | None:
    """Return row, column and value of the first NaN or infinity of dense (n,) or (n, d) or CSR rows; None without
    one."""
    if X.dtype.kind != "f":
        return None
    if is_sparse(X):
        csr: Any = X
        bad = np.flatnonzero(~np.isfinite(csr.data))
        if not bad.size:
            return None
        at = int(bad[0])
        return int(np.searchsorted(csr.indptr, at, side="right")) - 1, int(csr.indices[at]), csr.data[at]
    for rows in slices(X.shape[0], _BLOCK_ROWS):
        block = X[rows].reshape(rows.stop - rows.start, -1)
        if not bool(np.isfinite(block).all()):
            row, column = np.argwhere(~np.isfinite(block))[0]
            return rows.start + int(row), int(column), block[row, column]
    return None


def check_finite(X: FeatureRows, first_row: int = 0, name: str = "X") -> None:
    """Raise DataError with row and column of the first NaN or infinity of a table whose row 0 is `first_row`."""
    bad = first_not_finite(X)
    if bad is not None:
        row, column, value = bad
        raise DataError(
            f"{name} has {'NaN' if np.isnan(value) else 'infinity'} ({value}) in row {first_row + row}, column "
            f"{column}; remove or fill such rows first"
        )


def check_chunk(X: FeatureRows, block_info: Any) -> None:
    """Raise DataError for the first NaN or infinity of a chunk of a dask array, in the numbering of its rows if known.

    `block_info` is what :func:`dask.array.map_blocks` says of the chunk.
    """
    start = np.nan if block_info is None else block_info[0]["array-location"][0][0]
    is_known = not np.isnan(start)
    check_finite(X, int(start) if is_known else 0, "X" if is_known else "a chunk of X")


def check_labels(y: HostArray) -> None:
    """Raise DataError unless all numbers of a table of several labels a row are 0 or 1."""
    other = y[(y != 0) & (y != 1)]
    if other.size:
        raise DataError(f"got the label {other[0]:g} in a table of several labels; expected 0 and 1 only")


def refuse_masks(array: Any, name: str) -> None:
    """Raise DataError for masked entries, whose values would be used, and for a dask array of masked chunks."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise DataError(
            f"{name} has {int(np.ma.getmaskarray(array).sum()):,} masked entries; fill them in, such as with "
            "numpy.ma.filled(array, value), or remove their rows"
        )
    if isinstance(getattr(array, "_meta", None), np.ma.MaskedArray):
        raise DataError(
            f"{name} is a dask array of masked chunks; fill in what is masked, such as with "
            "dask.array.ma.filled(array, value), or leave out these rows"
        )
