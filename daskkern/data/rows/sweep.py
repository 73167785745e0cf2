"""Passes over all rows in storage order, one batch at a time, each batch distributed over the ranks."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.shares import Shares, share_edges
from daskkern.data.rows.batch_plan import DEFAULT_WINDOW_BYTES
from daskkern.data.rows.rows import Rows
from daskkern.errors import SpecError

PIECES = 12
"""Pieces of a batch: the same for 1, 2, 3, 4, 6 and 12 ranks."""
_MOST_ELEMENTS = 1 << 27  # kernel values of a batch on all ranks


@dataclass(frozen=True)
class SweepPlan:
    """The assignment of rows to batches, without shuffling: sums over all rows do not need it.

    Attributes
    ----------
    n_rows, chunk_rows : int
        Sizes of the rows to be read.
    batch_size : int
        Maximum number of rows of a batch, over all ranks.
    """

    n_rows: int
    chunk_rows: int
    batch_size: int

    def __post_init__(self) -> None:
        if min(self.n_rows, self.chunk_rows, self.batch_size) < 1:
            raise SpecError(f"batches need at least one row, and chunks too; got {self}")

    @classmethod
    def for_rows(cls, rows: Rows, batch_size: int | str, n_columns: int, elements: int | None = None) -> "SweepPlan":
        """Return the plan for `rows`; "auto" batches are whole chunks of about 64 MB, and 2^27 kernel values.

        `elements` kernel values where that is more: small pieces would be too little for a GPU.
        """
        if not isinstance(batch_size, str):
            return cls(rows.n_rows, rows.chunk_rows, min(int(batch_size), rows.n_rows))
        most = min(DEFAULT_WINDOW_BYTES // rows.row_bytes, max(_MOST_ELEMENTS, elements or 0) // max(1, n_columns))
        size = max(1, most // rows.chunk_rows) * rows.chunk_rows
        return cls(rows.n_rows, rows.chunk_rows, min(size, rows.n_rows))

    @property
    def n_batches(self) -> int:
        """Number of batches of a pass."""
        return -(-self.n_rows // self.batch_size)

    @cached_property
    def batch_sizes(self) -> IntArray:
        """Number of rows of every batch (n_batches,)."""
        return np.array([self.n_rows * (k + 1) // self.n_batches - self._start(k) for k in range(self.n_batches)])

    def pieces(self, batch: int, rank: int, size: int, shares: Shares = ()) -> list[slice]:
        """Return a rank's pieces of batch number `batch` among `size` ranks: consecutive row numbers.

        With `shares` of the ranks, which may differ, no piece is longer than with equal ones.
        """
        if not 0 <= batch < self.n_batches:
            raise SpecError(f"got batch {batch}, but there are {self.n_batches} batches")
        start, length = self._start(batch), int(self.batch_sizes[batch])
        count = -(-PIECES // size) * size
        if shares:
            first, last = (start + edge for edge in share_edges(length, size, shares)[rank : rank + 2])
            parts = -(-(last - first) * count // length)
            edges = [first + (last - first) * k // max(1, parts) for k in range(parts + 1)]
            own = range(parts)
        else:
            edges = [start + length * k // count for k in range(count + 1)]
            own = range(count * rank // size, count * (rank + 1) // size)
        return [slice(edges[k], edges[k + 1]) for k in own if edges[k + 1] > edges[k]]

    def rows_of_ranks(self, size: int, shares: Shares = ()) -> list[int]:
        """Return the number of rows of each rank."""
        batches = range(self.n_batches)
        return [
            sum(piece.stop - piece.start for batch in batches for piece in self.pieces(batch, rank, size, shares))
            for rank in range(size)
        ]

    def _start(self, batch: int) -> int:
        return self.n_rows * batch // self.n_batches
