"""Systematic sampling of rows in proportion to a mass, in one pass over the disk and reproducible anywhere.

With masses ``v_i`` of sum T and one random number u, draw j of n is the row whose interval of the cumulative masses
contains ``(j + u) T / n``. Row i is drawn ``n v_i / T`` times in expectation, and the actual number differs by less
than 1. Draws come in the order of the rows, so that reading a range of them reads a range of chunks.

References
----------
W. G. Madow, "On the theory of systematic sampling, II", Annals of Mathematical Statistics 20, 1949.
"""

from collections.abc import Callable

import numpy as np

from daskkern.arrays import FloatArray, IntArray
from daskkern.backend.tiles import slices
from daskkern.data.rows.row_samplers import DrawnRows
from daskkern.data.rows.rows import Fields, RowBlock, Rows
from daskkern.errors import DataError

Mass = Callable[[RowBlock], FloatArray]
"""Function that returns masses (m,), 0 or more, given y and weight of rows."""


def chunk_masses(rows: Rows, mass: Mass) -> FloatArray:
    """Return the mass (n_chunks,) of every chunk of rows: one pass over y and the weights."""
    parts = slices(rows.n_rows, rows.chunk_rows)
    return np.array([mass(rows.read(part.start, part.stop, Fields.y | Fields.weight)).sum() for part in parts])


class ResampledRows(DrawnRows):
    """Draws in proportion to a mass.

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
        super().__init__(rows)
        self._mass, self._offset = mass, offset
        self._ends = np.cumsum(masses)
        if not self._ends[-1] > 0:
            raise DataError("got weights that are all 0; drawing rows in proportion to weights needs a positive one")

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
