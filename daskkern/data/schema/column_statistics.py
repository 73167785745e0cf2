"""Statistics of the columns of a table: moments and range.

Moments are merged block by block in float64 (Chan, Golub and LeVeque, "Algorithms for computing the sample
variance", The American Statistician 1983), so one pass over data of any size is enough.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.rows.csr import FeatureRows, is_sparse
from daskkern.data.schema.block_moments import column_moments, sparse_moments
from daskkern.data.schema.layout import is_by_column
from daskkern.errors import SpecError

WIDE = 1 << 15
"""Number of columns above which statistics are stored in arrays rather than in attributes."""

_PANEL_BYTES = 1 << 20  # the float64 copy of a panel stays in cache while its moments are taken


Floats: TypeAlias = tuple[float, ...] | FloatArray


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Mean, standard deviation (divisor n), minimum and maximum of every column, over `count` rows.

    Each is a tuple, or an array (d,) for very many columns, as sparse data have.
    """

    count: int
    mean: Floats
    std: Floats
    min: Floats
    max: Floats

    @property
    def is_wide(self) -> bool:
        """Whether a store keeps the statistics in an array rather than in its attributes."""
        return len(self.mean) > WIDE

    def table(self) -> FloatArray:
        """Return mean, std, min and max as the rows of an array (4, d)."""
        return np.array([self.mean, self.std, self.min, self.max], dtype=np.float64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColumnStatistics):
            return NotImplemented
        return self.count == other.count and np.array_equal(self.table(), other.table())

    __hash__ = None  # type: ignore[assignment]


class Moments:
    """Running moments of `n_columns` columns; pass blocks to :meth:`update`, then call :meth:`result`."""

    def __init__(self, n_columns: int) -> None:
        self._count = 0
        self._mean = np.zeros(n_columns)
        self._squares = np.zeros(n_columns)  # sum of squared deviations from the running mean
        self._min = np.full(n_columns, np.inf)
        self._max = np.full(n_columns, -np.inf)

    def update(self, block: FeatureRows) -> bool:
        """Add the rows of `block` (m, n_columns), dense or CSR, and return True when all of them are finite.

        After False the moments are meaningless: the caller is expected to refuse the data.
        """
        if is_sparse(block):
            return self.take(block.shape[0], sparse_moments(block))
        if is_by_column(block):
            return self.take(len(block), column_moments(block, _PANEL_BYTES))
        rows = max(1, _PANEL_BYTES // max(1, 8 * block.shape[1]))
        return all(self._update_panel(block[i : i + rows]) for i in range(0, len(block), rows))

    def _update_panel(self, panel: HostArray) -> bool:
        low, high = panel.min(axis=0), panel.max(axis=0)  # both carry NaN, and one of them any infinity
        if not self._widen(low, high):
            return False
        values = panel.astype(np.float64)
        mean = values.mean(axis=0)
        values -= mean
        self._merge(len(panel), mean, np.einsum("ij,ij->j", values, values))
        return True

    def _widen(self, low: HostArray, high: HostArray) -> bool:
        """Extend the ranges of the columns, and return True when the values are finite."""
        self._min, self._max = np.minimum(self._min, low), np.maximum(self._max, high)
        return bool(np.isfinite(low).all() and np.isfinite(high).all())

    def take(self, m: int, found: FloatArray | None) -> bool:
        """Add m rows of which minimum, maximum, mean and sum of squared deviations of each column are known, (4, d).

        None, for rows that are not finite, is ignored. Returns whether there were moments.
        """
        if found is None:
            return False
        if m:
            low, high, mean, squares = found
            self._widen(low, high)
            self._merge(m, mean, squares)
        return True

    def _merge(self, m: int, mean: FloatArray, squares: FloatArray) -> None:
        """Merge m rows with known means and sums of squared deviations."""
        total = self._count + m
        delta = mean - self._mean
        self._squares += squares + delta * delta * (self._count * m / total)
        self._mean += delta * (m / total)
        self._count = total

    def state(self) -> FloatArray:
        """Return everything as an array (5, n_columns), for :meth:`restore`."""
        count = np.full_like(self._mean, self._count)
        return np.array([count, self._mean, self._squares, self._min, self._max])

    def restore(self, state: FloatArray) -> None:
        """Continue from a :meth:`state`."""
        count, self._mean, self._squares, self._min, self._max = state.copy()
        self._count = int(count[0])

    def add(self, state: FloatArray) -> None:
        """Merge other moments, given their :meth:`state`."""
        count, mean, squares, low, high = state
        if count[0] > 0:
            self._min, self._max = np.minimum(self._min, low), np.maximum(self._max, high)
            self._merge(int(count[0]), mean, squares)

    def result(self) -> ColumnStatistics:
        """Return the statistics of all rows seen. A constant column has a std of exactly 0, and its value as mean."""
        if self._count == 0:
            raise SpecError("got no rows for column statistics; give at least one row")
        constant = self._min == self._max  # rounding errors in the mean must not count as spread
        std = np.where(constant, 0.0, np.sqrt(self._squares / self._count))
        mean = np.where(constant, self._min, self._mean)
        return ColumnStatistics(
            self._count, floats_of(mean), floats_of(std), floats_of(self._min), floats_of(self._max)
        )


def floats_of(values: HostArray) -> tuple[float, ...]:
    """Return an array as a tuple of Python floats."""
    return tuple(float(value) for value in values)
