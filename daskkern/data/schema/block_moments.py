"""Moments and ranges of the columns of a block of rows: of CSR rows, and of dense rows by column."""

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.rows.csr import CsrRows


def sparse_moments(block: CsrRows) -> FloatArray | None:
    """Return minimum, maximum, mean and sum of squared deviations of every column, as an array (4, d).

    None where a value is not finite. Entries of one row and column count one by one: they must not be repeated.
    """
    values, columns, (m, d) = block.data.astype(np.float64), block.indices, block.shape
    if not np.isfinite(values).all():
        return None
    rows = max(1, m)
    stored = np.bincount(columns, minlength=d)
    mean = np.bincount(columns, values, minlength=d) / rows
    centred = values - mean[columns]
    squares = np.bincount(columns, centred * centred, minlength=d) + (m - stored) * mean * mean
    low, high = np.where(stored < m, 0.0, np.inf), np.where(stored < m, 0.0, -np.inf)
    np.minimum.at(low, columns, values)
    np.maximum.at(high, columns, values)
    return np.array([low, high, mean, squares])


def column_moments(block: HostArray, panel_bytes: int) -> FloatArray | None:
    """Return the same of dense rows (m, d) whose columns are contiguous, a few columns at a time, in the cache."""
    m, d = block.shape
    low, high, mean, squares = found = np.empty((4, d))
    step = max(1, panel_bytes // (8 * m))
    for start in range(0, d, step):
        part = slice(start, start + step)
        columns = block.T[part]
        low[part], high[part] = columns.min(axis=1), columns.max(axis=1)  # both carry NaN, and one any infinity
        if not (np.isfinite(low[part]).all() and np.isfinite(high[part]).all()):
            return None
        values = columns.astype(np.float64)
        mean[part] = values.mean(axis=1)
        values -= mean[part, None]
        squares[part] = np.einsum("ij,ij->i", values, values)
    return found
