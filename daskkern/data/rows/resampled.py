"""Systematic sampling of rows in proportion to a mass: one pass over the disk, the same draws on every machine.

With masses ``v_i`` of sum T and one random number u, draw j of n is the row whose interval of the cumulative masses
contains ``(j + u) T / n``. Row i is drawn ``n v_i / T`` times in expectation, and the actual number differs by less
than 1. Draws come in the order of the rows, so that reading a range of them reads a range of chunks.

References
----------
W. G. Madow, "On the theory of systematic sampling, II", Annals of Mathematical Statistics 20, 1949.
"""

from collections.abc import Callable
from copy import copy

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.tiles import slices
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Fields, RowBlock, Rows, take
from daskkern.errors import DataError

Mass = Callable[[RowBlock], FloatArray]
"""Function that returns masses (m,), 0 or more, given y and weight of rows."""


def chunk_masses(rows: Rows, mass: Mass) -> FloatArray:
    """Return the mass (n_chunks,) of every chunk of rows: one pass over y and the weights."""
    parts = slices(rows.n_rows, rows.chunk_rows)
    return np.array([mass(rows.read(part.start, part.stop, Fields.y | Fields.weight)).sum() for part in parts])


class ResampledRows(Rows):
    """As many draws as there are rows, in the order of the rows.

    Parameters
    ----------
    rows : Rows
    masses : (n_chunks,) float64
        From :func:`chunk_masses`, with the same `mass`.
    mass : callable
    offset : float
        u above, from 0 to 1, 1 excluded.

    Notes
    -----
    A read decodes the chunks that its draws lie in, y and weights two more times, and holds one of them at a time in
    addition to the result. A chunk on the boundary of two reads is decoded for both.
    """

    def __init__(self, rows: Rows, masses: FloatArray, mass: Mass, offset: float) -> None:
        self._rows, self._mass, self._offset = rows, mass, offset
        self._ends = np.cumsum(masses)
        if not self._ends[-1] > 0:
            raise DataError("got weights that are all 0; drawing rows in proportion to weights needs a positive one")
        self.n_rows, self.n_features, self.n_targets = rows.n_rows, rows.n_features, rows.n_targets
        self.chunk_rows, self.task, self.classes = rows.chunk_rows, rows.task, rows.classes
        self.has_weight, self.dtype, self.n_stored = rows.has_weight, rows.dtype, rows.n_stored

    def encoded(self) -> "ResampledRows":
        same = copy(self)
        same._rows = self._rows.encoded()
        same.dtype = same._rows.dtype
        return same

    def decoded(self, X: FeatureRows) -> FeatureRows:
        return self._rows.decoded(X)

    def originals(self, draws: IntArray) -> IntArray:
        """Return the row numbers of the draws (k,), which are ascending."""
        total = float(self._ends[-1])
        at = np.minimum((draws + self._offset) * (total / self.n_rows), np.nextafter(total, 0))
        chunks = np.searchsorted(self._ends, at, side="right")
        found = np.empty(len(draws), np.int64)
        for chunk in np.unique(chunks):
            here = np.flatnonzero(chunks == chunk)
            first = int(chunk) * self.chunk_rows
            block = self._rows.read(first, min(first + self.chunk_rows, self.n_rows), Fields.y | Fields.weight)
            ends = np.cumsum(self._mass(block)) + (self._ends[chunk - 1] if chunk else 0.0)
            last = int(np.searchsorted(ends, ends[-1]))  # the last row that has a mass
            found[here] = first + np.minimum(np.searchsorted(ends, at[here], side="right"), last)
        return found

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        X = self._drawn(start, stop, Fields.X).X
        assert X is not None
        return X

    def _read_targets(self, start: int, stop: int) -> HostArray:
        y = self._drawn(start, stop, Fields.y).y
        assert y is not None
        return y

    def _read_weight(self, start: int, stop: int) -> HostArray:
        weight = self._drawn(start, stop, Fields.weight).weight
        assert weight is not None
        return weight

    def _drawn(self, start: int, stop: int, fields: Fields) -> RowBlock:
        return take(self._rows, self.originals(np.arange(start, stop, dtype=np.int64)), fields)
