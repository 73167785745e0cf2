"""Layout of rows on disk: rows per chunk, and the dtype of features."""

from typing import Any

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray
from daskkern.errors import DataError

DEFAULT_CHUNK_ROWS = 4096
_MAX_CHUNK_BYTES = 32 << 20


def default_chunk_rows(n_features: int, dtype: npt.DTypeLike) -> int:
    """Return the number of rows per chunk: 4096, or fewer where such a chunk would exceed 32 MiB."""
    return _chunk_rows(n_features * np.dtype(dtype).itemsize)


def sparse_chunk_rows(entries: int, dtype: npt.DTypeLike) -> int:
    """Return the number of CSR rows per chunk, given about `entries` entries per row."""
    return _chunk_rows(entries * (np.dtype(dtype).itemsize + 4))


def _chunk_rows(row_bytes: int) -> int:
    return max(1, min(DEFAULT_CHUNK_ROWS, _MAX_CHUNK_BYTES // row_bytes))


def stored_dtype(dtype: npt.DTypeLike) -> np.dtype[np.generic]:
    """Return the dtype in which features of `dtype` are stored.

    Integers and float16 keep their dtype, booleans become uint8. Other floats become float32: a float64 value
    beyond its range is refused on writing.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return dtype.newbyteorder("=")
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind == "f":
        return np.dtype(np.float16) if dtype.itemsize == 2 else np.dtype(np.float32)
    raise DataError(f"features of type {dtype} cannot be stored; give real numbers")


def is_by_column(block: HostArray) -> bool:
    """Return whether the columns of dense rows (m, d) are contiguous, and the rows are not."""
    return block.ndim == 2 and min(block.shape) > 1 and block.strides[0] == block.itemsize


def float32_rounds(dtype: Any) -> bool:
    """Return whether float32 rounds numbers of `dtype`: wide floats of any byte order, wide integers."""
    kind = getattr(dtype, "kind", "")
    return (kind == "f" and dtype.itemsize > 4) or (kind in ("i", "u") and dtype.itemsize > 2)
