"""A least-recently-used cache of the rows of a kernel matrix.

The columns are all rows of the data, or those that can still change; memory that is left by columns holds more rows.
All of this is in one table, in which rows move towards its beginning as columns are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.namespace import to_host
from daskkern.backend.tiles import slices
from daskkern.kernels import Kernel, Points
from daskkern.kernels.rows import module_of
from daskkern.solvers.support_vectors.row_sums import sum_rows

BLOCK_ROWS = 256
"""Rows whose values are computed at once."""
_STRIP = 64


@dataclass(frozen=True, eq=False)
class _Square:
    """The values (q, q) between rows (q,) of the last working set."""

    rows: IntArray
    values: HostArray


@dataclass(frozen=True, eq=False)
class _Held:
    """Rows in memory, written in place.

    Attributes
    ----------
    columns : (w,) int64
    values : (s, w) array
        A row in each slot.
    slots : (n,) int64
        The slot of each row, or -1.
    stamps, owners : (s,) int64
        When the row of a slot was last used, and its number; -1 for none.
    """

    columns: IntArray
    values: HostArray
    slots: IntArray
    stamps: IntArray
    owners: IntArray


class KernelRows:
    """Rows ``k(x_i, x_j)`` of n points, in the dtype of the points.

    Parameters
    ----------
    kernel : Kernel
    X : (n, d) array, dense or CSR
        On the device of the products; values come to host memory.
    prepare : callable
        Makes rows of `X` points of the kernel.
    dtype : str
    most_bytes : int
        Of the rows that are kept. At least `least` rows are kept, whatever they take.
    least : int
        The most rows that one call of :meth:`load` may have.
    """

    def __init__(
        self, kernel: Kernel, X: Array, prepare: Callable[[Array], Points], dtype: str, most_bytes: int, least: int
    ) -> None:
        self.n_rows = int(X.shape[0])
        self.diagonal: FloatArray = to_host(kernel.diagonal(X)).astype(np.float64)
        self.computed = 0
        """Kernel values that were computed so far."""
        self._kernel, self._X, self._prepare, self._dtype = kernel, X, prepare, np.dtype(dtype)
        self._least, self._clock = min(least, self.n_rows), 0
        most = max(most_bytes // self._dtype.itemsize, self._least * self.n_rows)
        self._table = np.empty(min(most, self.n_rows**2), self._dtype)  # memory is used as rows are written
        self._block = np.empty(min(BLOCK_ROWS, self.n_rows) * self.n_rows, self._dtype)
        self._everything = self._points = prepare(X)
        self._held = self._empty(np.arange(self.n_rows))
        self._square = _Square(np.zeros(0, np.int64), np.zeros((0, 0), self._dtype))

    @property
    def rounding(self) -> float:
        """The rounding of a kernel value: of the largest one, in the dtype of the rows."""
        return float(np.finfo(self._dtype).eps * np.abs(self.diagonal).max(initial=0.0))

    @property
    def holds_all(self) -> bool:
        """Whether all rows with all columns fit into the memory."""
        return self.n_rows**2 <= self._table.size

    def take_columns(self, columns: IntArray | None) -> None:
        """Keep only these columns, ascending, some of those that are kept; None takes all of them, and no rows."""
        before = self._held
        if columns is None:
            self._held, self._points = self._empty(np.arange(self.n_rows)), self._everything
            return
        after, places = self._empty(columns), np.searchsorted(before.columns, columns)
        kept = np.flatnonzero(before.owners >= 0)
        for place, slot in enumerate(kept):  # ascending, so that no row is written over one that is still to move
            after.values[place] = before.values[slot][places]
        after.stamps[: kept.size], after.owners[: kept.size] = before.stamps[kept], before.owners[kept]
        after.slots[before.owners[kept]] = np.arange(kept.size)
        self._held, self._points = after, self._prepare(self._rows_of(columns))

    @property
    def columns(self) -> IntArray:
        """The columns (w,) that are kept, ascending."""
        return self._held.columns

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that are kept, once all slots are used."""
        return self._held.values.nbytes

    def _empty(self, columns: IntArray) -> "_Held":
        capacity = min(self.n_rows, self._table.size // max(1, columns.size))
        values = self._table[: capacity * columns.size].reshape(capacity, columns.size)
        stamps, owners = np.full(capacity, -1, np.int64), np.full(capacity, -1, np.int64)
        return _Held(columns, values, np.full(self.n_rows, -1, np.int64), stamps, owners)

    def load(self, rows: IntArray) -> None:
        """Have these rows (distinct numbers) in memory, computing those that are not."""
        self._clock += 1
        known = rows[self._held.slots[rows] >= 0]
        self._held.stamps[self._held.slots[known]] = self._clock
        missing = rows[self._held.slots[rows] < 0]
        if not missing.size:
            return
        oldest = np.argsort(self._held.stamps, kind="stable")[: missing.size]
        oldest.sort()
        gone = self._held.owners[oldest]
        self._held.slots[gone[gone >= 0]] = -1
        for part in slices(missing.size, BLOCK_ROWS):
            self._fill(missing[part], oldest[part])
        self._held.slots[missing], self._held.owners[oldest], self._held.stamps[oldest] = oldest, missing, self._clock

    def square(self, rows: IntArray) -> tuple[HostArray, IntArray]:
        """Return the values (q, q) between these rows, in an order of their own, and the place (q,) of each row in it.

        They are computed, which is less work than finding them in rows that are kept, except for those between rows of
        the last call, and where all rows are wanted and kept. The diagonal is exact.
        """
        last, places = self._square, np.empty(rows.size, np.int64)
        if np.array_equal(rows, last.rows):
            return last.values, np.arange(rows.size)
        _, here, there = np.intersect1d(rows, last.rows, assume_unique=True, return_indices=True)
        new, k = np.setdiff1d(np.arange(rows.size), here, assume_unique=True), here.size
        places[here], places[new] = np.arange(k), np.arange(k, rows.size)
        ordered = np.concatenate([rows[here], rows[new]])
        values = self._between(rows[new], ordered)
        if k:
            values = np.concatenate([np.empty((k, rows.size), self._dtype), values])
            values[:k, :k] = last.values.take(there, 0).take(there, 1)
            values[:k, k:] = values[k:, :k].T
        _mirror(values[k:, k:])  # both halves of one block may differ in the last bits
        at = np.arange(k, rows.size)
        values[at, at] = self.diagonal[rows[new]]
        self._square = _Square(ordered, values)
        return values, places

    def _between(self, some: IntArray, rows: IntArray) -> HostArray:
        """Return the values between some rows and the distinct `rows`: from memory where these are all, else computed.

        Rows in memory are in the order of their numbers where no column is left out.
        """
        slots = self._held.slots[some]
        if rows.size == self.n_rows == self.columns.size and (slots >= 0).all() and (rows[1:] > rows[:-1]).all():
            return self._held.values[slots]
        self.computed += some.size * rows.size
        return to_host(self._kernel.block(self._rows_of(some), self._prepare(self._rows_of(rows))))

    def combine(self, rows: IntArray, factors: FloatArray) -> FloatArray:
        """Return ``sum_i factors_i k(x_i, .)`` at the columns, float64, of loaded rows."""
        return sum_rows(self._held.values, self._held.slots[rows], factors)

    def scores(self, rows: IntArray, factors: FloatArray) -> FloatArray:
        """Return ``sum_i factors_i k(x_i, .)`` at all n points, float64; rows that are not in memory are computed."""
        known = (self._held.slots[rows] >= 0) & (self.columns.size == self.n_rows)
        found = sum_rows(self._held.values, self._held.slots[rows[known]], factors[known])
        found = found if found.size == self.n_rows else np.zeros(self.n_rows)
        self._add(found, rows[~known], factors[~known], self._everything)
        return found

    def scores_at(self, columns: IntArray, rows: IntArray, factors: FloatArray) -> FloatArray:
        """Return ``sum_i factors_i k(x_i, .)`` at these columns, float64; all values are computed."""
        found = np.zeros(columns.size)
        if rows.size and columns.size:
            self._add(found, rows, factors, self._prepare(self._rows_of(columns)))
        return found

    def _add(self, found: FloatArray, rows: IntArray, factors: FloatArray, points: Points) -> None:
        for part in slices(rows.size, BLOCK_ROWS):
            values = self._computed(rows[part], points, found.size)
            found += sum_rows(values, np.arange(len(values)), factors[part])

    def _fill(self, rows: IntArray, slots: IntArray) -> None:
        width, first, last = self.columns.size, int(slots[0]), int(slots[-1]) + 1
        if last - first == slots.size and module_of(self._X) is np:
            self.computed += rows.size * width
            self._kernel.block(self._rows_of(rows), self._points, self._held.values[first:last])
        else:
            self._held.values[slots] = self._computed(rows, self._points, width)

    def _computed(self, rows: IntArray, points: Points, width: int) -> HostArray:
        """Return the values of at most BLOCK_ROWS rows at points, in memory that the next call writes to."""
        self.computed += rows.size * width
        if module_of(self._X) is not np:
            return to_host(self._kernel.block(self._rows_of(rows), points))
        values = self._block[: rows.size * width].reshape(rows.size, width)
        self._kernel.block(self._rows_of(rows), points, values)
        return values

    def _rows_of(self, rows: IntArray) -> Array:
        xp = module_of(self._X)
        return self._X[rows if xp is np else xp.asarray(rows)]


def _mirror(values: HostArray) -> None:
    """Copy the upper triangle of a square matrix to the lower one, in place."""
    for part in slices(len(values), _STRIP):
        own = values[part, part]
        own[...] = np.triu(own) + np.triu(own, 1).T
        values[part.stop :, part] = values[part, part.stop :].T
