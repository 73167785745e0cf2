"""Random samples of row numbers that depend on the seed alone, and rows of which a pass keeps a sample."""

from collections.abc import Iterator

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.rows.rows import ALL, Fields, RowBlock, Rows, RowsReadWhole, take

_MOST = 2000
_STREAM = 54


def some_positions(n_rows: int, seed: int) -> IntArray:
    """Return the numbers, ascending, of at most 2,000 of `n_rows` rows."""
    k = min(_MOST, n_rows)
    return np.sort(generator(seed, _STREAM).choice(n_rows, size=k, replace=False))


def features_at(rows: Rows, positions: IntArray) -> HostArray:
    """Return the features (m, d) of the rows with these numbers."""
    block = take(rows, positions, Fields.X)
    assert block.X is not None
    return block.X


def sampled_rows(rows: Rows, seed: int) -> HostArray:
    """Return the features of the rows of :func:`some_positions` that count."""
    block = take(rows, some_positions(rows.n_rows, seed), Fields.X | Fields.weight)
    assert block.X is not None
    return counted(block.X, block.weight)


def counted(X: HostArray, weight: HostArray | None) -> HostArray:
    """Return rows (m, d) without those of weight 0, which carry no information on the rows that a model is for.

    None stands for weights of 1; where all are 0, all rows are returned.
    """
    if weight is None or weight.all() or not weight.any():
        return X
    return X[weight > 0]


class SampledInPassing(RowsReadWhole):
    """The same rows, which keep the features of a sample of them when a pass comes by.

    Where a whole chunk is decoded for any of its rows, a sample costs as much as a pass over all rows. Of rows that no
    pass has come by, those of the whole sample are read at the first of its rows that is asked for.

    Parameters
    ----------
    rows : Rows
        Dense ones.
    positions : (k,) int64
        Numbers of the sampled rows, in any order.
    """

    def __init__(self, rows: Rows, positions: IntArray) -> None:
        self.n_rows, self.n_features, self.n_targets = rows.n_rows, rows.n_features, rows.n_targets
        self.chunk_rows, self.task, self.classes = rows.chunk_rows, rows.task, rows.classes
        self.has_weight, self.dtype, self.chunk_edges = rows.has_weight, rows.dtype, rows.chunk_edges
        self.reads_pieces, self.decodes_chunks, self.in_memory = rows.reads_pieces, rows.decodes_chunks, rows.in_memory
        self._rows, self._positions = rows, np.unique(positions)
        self._X = np.empty((len(self._positions), rows.n_features), rows.dtype)
        self._seen = np.zeros(len(self._positions), bool)

    def read(self, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        """Return the rows from `start` to `stop` (excluded), and keep those of the sample."""
        block = self._rows.read(start, stop, fields)
        if block.X is not None:
            part = slice(*np.searchsorted(self._positions, [start, stop]).tolist())
            self._X[part] = block.X[self._positions[part] - start]
            self._seen[part] = True
        return block

    def parts_at(self, positions: IntArray, fields: Fields = ALL) -> Iterator[tuple[slice, RowBlock]]:
        """Yield slices of ascending positions and their rows, with features from memory if all are in the sample."""
        if Fields.X not in fields or not np.isin(positions, self._positions).all():
            yield from self._rows.parts_at(positions, fields)
            return
        missing = self._positions[~self._seen]
        if missing.size:
            self._X[~self._seen] = features_at(self._rows, missing)
            self._seen[:] = True
        X, others = self._X[np.searchsorted(self._positions, positions)], fields & ~Fields.X
        rest = take(self._rows, positions, others) if others else RowBlock(None, None, None)
        yield slice(0, len(positions)), RowBlock(X, rest.y, rest.weight)
