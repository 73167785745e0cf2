"""A least-recently-used cache of the rows of a kernel matrix.

The columns are all rows of the data, or those that can still change; memory that is left by columns holds more rows.
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

BLOCK_ROWS = 1024
"""Rows whose values are computed at once."""


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
        self._most_bytes, self._least, self._clock = most_bytes, min(least, self.n_rows), 0
        self._everything = self._points = prepare(X)
        self._held = self._empty(np.arange(self.n_rows))

    @property
    def holds_all(self) -> bool:
        """Whether all rows with all columns fit into the memory."""
        return self.n_rows**2 * self._dtype.itemsize <= self._most_bytes

    def take_columns(self, columns: IntArray | None) -> None:
        """Keep only these columns, ascending, some of those that are kept; None takes all of them, and no rows."""
        before = self._held
        if columns is None:
            self._held = self._empty(np.arange(self.n_rows))
            self._points = self._everything
            return
        after = self._empty(columns)
        recent = np.flatnonzero(before.owners >= 0)
        recent = recent[np.argsort(-before.stamps[recent], kind="stable")][: after.owners.size]
        places = np.searchsorted(before.columns, columns)
        for place, slot in enumerate(recent):
            after.values[place] = before.values[slot, places]
        after.stamps[: recent.size], after.owners[: recent.size] = before.stamps[recent], before.owners[recent]
        after.slots[before.owners[recent]] = np.arange(recent.size)
        self._held = after
        self._points = self._prepare(self._rows_of(columns))

    @property
    def columns(self) -> IntArray:
        """The columns (w,) that are kept, ascending."""
        return self._held.columns

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that are kept, once all slots are used."""
        return self._held.values.nbytes

    def _empty(self, columns: IntArray) -> "_Held":
        capacity = self._most_bytes // (max(1, columns.size) * self._dtype.itemsize)
        capacity = min(self.n_rows, max(self._least, capacity))
        values = np.empty((capacity, columns.size), self._dtype)  # memory is used as rows are written
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

    def square(self, rows: IntArray) -> FloatArray:
        """Return the values (q, q), float64, between loaded rows that are also columns; the diagonal is exact."""
        places = np.searchsorted(self.columns, rows)
        values: FloatArray = self._held.values[self._held.slots[rows][:, None], places[None, :]].astype(np.float64)
        upper = np.triu(values, 1)  # both halves of one block may differ in the last bits
        values = upper + upper.T
        index = np.arange(rows.size)
        values[index, index] = self.diagonal[rows]
        return values

    def combine(self, rows: IntArray, factors: FloatArray) -> FloatArray:
        """Return ``sum_i factors_i k(x_i, .)`` at the columns, float64, of loaded rows."""
        return sum_rows(self._held.values, self._held.slots[rows], factors)

    def scores(self, rows: IntArray, factors: FloatArray) -> FloatArray:
        """Return ``sum_i factors_i k(x_i, .)`` at all n points, float64; rows that are not in memory are computed."""
        known = (self._held.slots[rows] >= 0) & (self.columns.size == self.n_rows)
        found = sum_rows(self._held.values, self._held.slots[rows[known]], factors[known])
        found = found if found.size == self.n_rows else np.zeros(self.n_rows)
        others, weights = rows[~known], factors[~known]
        for part in slices(others.size, BLOCK_ROWS):
            self.computed += (part.stop - part.start) * self.n_rows
            values = to_host(self._kernel.block(self._rows_of(others[part]), self._everything))
            found += sum_rows(values, np.arange(len(values)), weights[part])
        return found

    def _fill(self, rows: IntArray, slots: IntArray) -> None:
        self.computed += rows.size * self.columns.size
        first, last = int(slots[0]), int(slots[-1]) + 1
        X = self._rows_of(rows)
        if last - first == slots.size and module_of(X) is np:
            self._kernel.block(X, self._points, self._held.values[first:last])
        else:
            self._held.values[slots] = to_host(self._kernel.block(X, self._points))

    def _rows_of(self, rows: IntArray) -> Array:
        xp = module_of(self._X)
        return self._X[rows if xp is np else xp.asarray(rows)]
