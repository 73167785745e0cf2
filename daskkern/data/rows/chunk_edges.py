"""Boundaries of chunks of unequal size, such as row groups of files, and blocks with rows left out."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from daskkern.arrays import IntArray
from daskkern.errors import SpecError


class ChunkEdges:
    """Where chunks of unequal size begin and end. Equal by value; hashed once, since plans of batches are cached by it.

    Parameters
    ----------
    sizes : sequence of int
        Rows of each chunk; those without rows are left out.
    """

    def __init__(self, sizes: Sequence[int] | IntArray) -> None:
        counts = np.asarray(sizes, np.int64)
        if counts.ndim != 1 or (counts.size and counts.min() < 0) or not counts.any():
            raise SpecError("got chunks without rows; at least one row is needed")
        self.values: IntArray = np.concatenate([[0], np.cumsum(counts[counts > 0])]).astype(np.int64)

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self.values) - 1

    @property
    def n_rows(self) -> int:
        """Number of rows of all chunks."""
        return int(self.values[-1])

    @cached_property
    def sizes(self) -> IntArray:
        """Rows of each chunk (n_chunks,)."""
        return np.diff(self.values)

    def bounds_of(self, chunk: int) -> tuple[int, int]:
        """Return the first row of a chunk, and the one after its last."""
        return int(self.values[chunk]), int(self.values[chunk + 1])

    def chunks_of(self, positions: IntArray) -> IntArray:
        """Return the number of the chunk of each row position (k,)."""
        return np.searchsorted(self.values, positions, side="right").astype(np.int64) - 1

    def rows_of(self, chunks: IntArray) -> IntArray:
        """Return the positions of the rows of chunks (k,), chunk after chunk."""
        return np.concatenate([np.arange(*self.bounds_of(int(chunk))) for chunk in chunks]).astype(np.int64)

    def without(self, excluded: IntArray) -> "ChunkEdges":
        """Return the edges after the rows `excluded` (sorted, distinct) were left out and the rest renumbered."""
        return ChunkEdges(np.diff(self.values - np.searchsorted(excluded, self.values)))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ChunkEdges) and np.array_equal(self.values, other.values))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"ChunkEdges({self.n_chunks} chunks, {self.n_rows} rows)"

    @cached_property
    def _hash(self) -> int:
        return hash(self.values.tobytes())
