"""Sampled rows: the base class of all sampling schemes, and independent sampling.

Draws come in the order of the rows, so that reading a range of them reads a range of chunks: a pass over the draws is
one over the disk, at most.
"""

from abc import abstractmethod
from copy import copy
from functools import cached_property
from typing import Self

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Fields, RowBlock, Rows, take

_COUNTS, _DRAWS = 0xDA7A_0005, 0xDA7A_0006
_TILE = 1 << 20


class DrawnRows(Rows):
    """As many draws as there are `rows`, in the order of the rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.n_rows, self.n_features, self.n_targets = rows.n_rows, rows.n_features, rows.n_targets
        self.chunk_rows, self.task, self.classes = rows.chunk_rows, rows.task, rows.classes
        self.has_weight, self.dtype, self.n_stored = rows.has_weight, rows.dtype, rows.n_stored

    @abstractmethod
    def originals(self, draws: IntArray) -> IntArray:
        """Return the row numbers of the draws (k,), which are ascending."""

    def encoded(self) -> Self:
        same = copy(self)
        same._rows = self._rows.encoded()
        same.dtype = same._rows.dtype
        return same

    def decoded(self, X: FeatureRows) -> FeatureRows:
        return self._rows.decoded(X)

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


class IndependentRows(DrawnRows):
    """n independent draws from n rows, each row with probability ``1 / n`` in each, with replacement.

    How many fall into each stretch of `chunk_rows` rows is drawn first, from n raw numbers in tiles, then which: the
    same law, without memory for n numbers.

    Parameters
    ----------
    rows : Rows
    seed, epoch : int
        All that the draws depend on.
    """

    def __init__(self, rows: Rows, seed: int, epoch: int) -> None:
        super().__init__(rows)
        self._seed, self._epoch = seed, epoch

    def originals(self, draws: IntArray) -> IntArray:
        """Return the row numbers of the draws (k,), which are ascending."""
        stretches = np.searchsorted(self._ends, draws, side="right")
        found = np.empty(len(draws), np.int64)
        for stretch in np.unique(stretches):
            here = stretches == stretch
            before = int(self._ends[stretch - 1]) if stretch else 0
            found[here] = self._of_stretch(int(stretch), int(self._ends[stretch]) - before)[draws[here] - before]
        return found

    @cached_property
    def _ends(self) -> IntArray:
        """Draws of each stretch and those before it (n_stretches,)."""
        counts = np.zeros(-(-self.n_rows // self.chunk_rows), np.int64)
        source = generator(self._seed, _COUNTS, self._epoch).bit_generator
        for part in slices(self.n_rows, _TILE):
            drawn = _below(self.n_rows, source.random_raw(part.stop - part.start))
            counts += np.bincount(drawn // self.chunk_rows, minlength=len(counts))
        return np.cumsum(counts)

    def _of_stretch(self, stretch: int, count: int) -> IntArray:
        """Return the ascending row numbers of the draws of a stretch."""
        first = stretch * self.chunk_rows
        size = min(self.chunk_rows, self.n_rows - first)
        raw = generator(self._seed, _DRAWS, self._epoch, stretch).bit_generator.random_raw(count)
        return first + np.sort(_below(size, raw))


def _below(n: int, raw: HostArray) -> IntArray:
    """Return whole numbers from 0 to n - 1 of equal probability, from raw 64-bit numbers."""
    return np.minimum((raw.astype(np.float64) * (n / 2.0**64)).astype(np.int64), n - 1)
