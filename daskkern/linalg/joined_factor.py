"""The factor of exact projections with each group of blocks in one array, which takes fewer kernel launches.

A solve goes through the groups as that of :class:`daskkern.linalg.projection.BlockCyclicFactor` and sends the same
messages, so that ranks with panels and ranks with joined groups may solve together.
"""

import itertools
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.kernels.engines.block_products import multiply_blocks, multiply_transposed
from daskkern.linalg.block_cyclic import BlockCyclicLayout
from daskkern.linalg.projection import BlockCyclicFactor, within

JOINED_COLUMNS = 16_384
"""Columns up to which ranks on GPUs join the panels of a group: with more, launches do not matter. Not measured on a
GPU."""


@dataclass(frozen=True)
class JoinedGroup:
    """What a rank has of a group, and where.

    Attributes
    ----------
    rows : slice
        Of the group.
    own : slice
        The rank's columns in it, among its columns.
    blocks : tuple of slices
        The blocks of these, counted from the first.
    places : (own,) int64 array, or None
        Their rows, counted from the group's first; None on a single rank, which has all.
    lengths : tuple of int
        How many rows each rank has.
    order : (rows,) int64 array, or None
        The place of each row among those of all ranks, rank after rank.
    whole : (p - g0, own) array
        The rank's columns of the inverse of the group's diagonal block, with zeros above, and below it those of L.
    """

    rows: slice
    own: slice
    blocks: tuple[slice, ...]
    places: Array | None
    lengths: tuple[int, ...]
    order: Array | None
    whole: Array

    @property
    def inverse(self) -> Array:
        """The part in the rows of the group."""
        return self.whole[: self.rows.stop - self.rows.start]

    @property
    def below(self) -> Array:
        """The part in later rows."""
        return self.whole[self.rows.stop - self.rows.start :]

    def of_own(self, values: Array) -> Array:
        """Return those of a vector's entries for the group's rows that are the rank's."""
        return values if self.places is None else values[self.places]

    def shared(self, own: Array, comm: Communicator) -> Array:
        """Return the rows of a vector, of which every rank has its own."""
        if self.order is None:
            return own
        xp = namespace_of(own)
        parts = comm.allgather_of(own, self.lengths)
        return xp.concatenate([xp.asarray(part) for part in parts])[self.order]


@dataclass(frozen=True)
class JoinedFactor:
    """This rank's columns of the factor, joined. See :func:`joined_factor`."""

    layout: BlockCyclicLayout
    groups: tuple[JoinedGroup, ...]
    jitter: float

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of ``(K_ZZ + jitter)^-1 h`` from its part of `h`, in its dtype.

        With each group, two products forwards and two backwards. Sums over blocks are taken in float64.
        """
        xp, p = namespace_of(h), self.layout.p
        y, gone = [], None  # what the columns before a group subtract from its rows and those below
        for group in self.groups:
            given = self._given(group, h[group.own], gone, comm)
            y.append(comm.allreduce(multiply_blocks(group.inverse, given, group.blocks, xp)))
            if group.rows.stop < p:
                below = multiply_blocks(group.below, group.of_own(y[-1]).astype(h.dtype), group.blocks, xp)
                gone = below if gone is None else gone[group.rows.stop - group.rows.start :] + below
        x, parts = xp.empty((p, h.shape[1]), h.dtype), []
        for group, solved in reversed(list(zip(self.groups, y, strict=True))):
            if group.rows.stop < p:
                rest = group.of_own(solved) - multiply_transposed(group.below, x[group.rows.stop :], xp)
                solved = group.shared(rest.astype(h.dtype), comm)
            parts.append(multiply_transposed(group.inverse, solved.astype(h.dtype), xp))
            if group.rows.start:
                x[group.rows] = group.shared(parts[-1], comm)
        return xp.concatenate(parts[::-1]) if len(parts) > 1 else parts[0]

    def _given(self, group: JoinedGroup, own: Array, gone: Array | None, comm: Communicator) -> Array:
        """Return the rank's entries of the right side of a group, less what earlier columns of all ranks subtract."""
        if gone is None:
            return own
        height = group.rows.stop - group.rows.start
        if group.places is None:
            return (own - gone[:height]).astype(own.dtype)
        every = -gone[:height]
        every[group.places] += own
        return comm.allreduce(every)[group.places].astype(own.dtype)


def joined_factor(factor: BlockCyclicFactor, xp: ModuleType, dtype: str) -> JoinedFactor:
    """Return the factor with one array for each group, of the library and dtype of its panels: a rank may have none.

    With two groups, the arrays of all ranks take 3/4 p^2 numbers, and with the panels, while both exist, 5/4 p^2.
    """
    layout, first, found = factor.layout, 0, []
    for rows, pieces in factor.groups():
        edges = np.cumsum([0, *(piece.columns.stop - piece.columns.start for piece in pieces)]).tolist()
        whole, height = xp.zeros((layout.p - rows.start, edges[-1]), dtype), rows.stop - rows.start
        blocks = tuple(slice(start, stop) for start, stop in itertools.pairwise(edges))
        for piece, columns in zip(pieces, blocks, strict=True):
            whole[within(piece.columns, rows).start : height, columns] = piece.inverse
            whole[height:, columns] = piece.below
        alone, numbers = layout.size == 1, [_rows_of_rank(layout, rows, rank) for rank in range(layout.size)]
        places = None if alone else xp.asarray(numbers[layout.rank])
        order = None if alone else xp.asarray(np.argsort(np.concatenate(numbers), kind="stable"))
        own, lengths = slice(first, first + edges[-1]), tuple(part.size for part in numbers)
        found.append(JoinedGroup(rows, own, blocks, places, lengths, order, whole))
        first = own.stop
    return JoinedFactor(layout, tuple(found), factor.jitter)


def _rows_of_rank(layout: BlockCyclicLayout, rows: slice, rank: int) -> IntArray:
    """Return the rows of a group that are a rank's, counted from the group's first."""
    blocks = [block for block, owner in zip(layout.blocks, layout.owners, strict=True) if owner == rank]
    inside = [np.arange(block.start, block.stop) for block in blocks if rows.start <= block.start < rows.stop]
    return np.concatenate([np.zeros(0, np.int64), *inside]) - rows.start
