"""Rows without a subset, such as rows held out for validation or duplicates of others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import ALL, Fields, RowBlock, Rows


class RowsWithout(Rows):
    """All of `rows` but those at `excluded` (k,), sorted and distinct; the rest are renumbered in order.

    A read decodes each chunk that it spans once, including the excluded rows.
    """

    def __init__(self, rows: Rows, excluded: IntArray) -> None:
        self._rows, self._excluded = rows, excluded
        self.n_rows = rows.n_rows - excluded.size
        self.n_features, self.n_targets = rows.n_features, rows.n_targets
        self.chunk_rows, self.task, self.classes = min(rows.chunk_rows, self.n_rows), rows.task, rows.classes
        self.has_weight, self.dtype, self.reads_pieces = rows.has_weight, rows.dtype, rows.reads_pieces
        self.decodes_chunks, self.in_memory = rows.decodes_chunks, rows.in_memory
        edges = _equal_groups(rows) if rows.chunk_edges is None else rows.chunk_edges
        self.chunk_edges = None if edges is None else edges.without(excluded)
        if rows.n_stored is not None:
            self.n_stored = rows.n_stored * self.n_rows // rows.n_rows

    def encoded(self) -> "RowsWithout":
        return RowsWithout(self._rows.encoded(), self._excluded)

    def decoded(self, X: FeatureRows) -> FeatureRows:
        return self._rows.decoded(X)

    def parts_at(self, positions: IntArray, fields: Fields = ALL) -> Iterator[tuple[slice, RowBlock]]:
        """Yield slices of positions and their rows, read as by the underlying rows."""
        return self._rows.parts_at(original_numbers(positions, self._excluded), fields)

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        block, keep = self._span(start, stop, Fields.X)
        return block.X[keep]

    def _read_targets(self, start: int, stop: int) -> HostArray:
        block, keep = self._span(start, stop, Fields.y)
        return block.y[keep]

    def _read_weight(self, start: int, stop: int) -> HostArray:
        block, keep = self._span(start, stop, Fields.weight)
        return block.weight[keep]

    def _span(self, start: int, stop: int, fields: Fields) -> tuple[Any, IntArray]:
        numbers = original_numbers(np.arange(start, stop), self._excluded)
        first, end = (int(numbers[0]), int(numbers[-1]) + 1) if stop > start else (0, 0)
        return self._rows.read(first, end, fields), numbers - first


class MergedRows(RowsWithout):
    """Rows without the copies among them, with a weight (n,) for each that remains, in place of its own."""

    def __init__(self, rows: Rows, excluded: IntArray, weight: FloatArray) -> None:
        super().__init__(rows, excluded)
        self._weight, self.has_weight = weight, True

    def encoded(self) -> "MergedRows":
        return MergedRows(self._rows.encoded(), self._excluded, self._weight)

    def parts_at(self, positions: IntArray, fields: Fields = ALL) -> Iterator[tuple[slice, RowBlock]]:
        for places, block in super().parts_at(positions, fields & ~Fields.weight):
            weight = self._weight[positions[places]] if Fields.weight in fields else None
            yield places, replace(block, weight=weight)

    def _read_weight(self, start: int, stop: int) -> HostArray:
        return self._weight[start:stop]


def _equal_groups(rows: Rows) -> ChunkEdges | None:
    """Return the edges of groups of equal size that are decoded whole: rows left out make them unequal.

    Chunks of the remaining rows would each lie in two groups, and a pass would decode every group twice.
    """
    if not rows.decodes_chunks or rows.reads_pieces:
        return None
    whole, rest = divmod(rows.n_rows, rows.chunk_rows)
    return ChunkEdges([*[rows.chunk_rows] * whole, rest])


def original_numbers(positions: IntArray, excluded: IntArray) -> IntArray:
    """Return the numbers that rows at `positions` had before the rows `excluded` (sorted, distinct) were left out."""
    # Before excluded row number i, counting from 0, excluded[i] - i rows remain.
    remaining_before = excluded - np.arange(excluded.size)
    return positions + np.searchsorted(remaining_before, positions, side="right")
