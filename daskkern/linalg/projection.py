"""The solver of ``K_ZZ t = h`` for exact projections: a Cholesky factor, partly inverted, distributed by columns.

The centers are distributed over the ranks in blocks, and neighboring blocks form one group or two
(:class:`daskkern.linalg.block_cyclic.BlockCyclicLayout`). One right-looking sweep factors ``K_ZZ + jitter = L L^T`` and
inverts the diagonal blocks L_gg of the groups on the way: at step k the owner of block k factors its panel and
broadcasts it, and every rank updates its later columns of the matrix and its earlier columns of the group's inverse.
The inverse overwrites columns that are no longer needed. Work is ``p^3 / (3 W)`` for the factor and a quarter of that
for the inverses, memory p^2 / (2 W) numbers a rank.

A solve goes through the groups, forwards with L and backwards with L^T. Each group costs two allreduces of its share
of (p, c) numbers forwards and two allgathers backwards, and all its work is products.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.kernels.engines.block_products import multiply, multiply_transposed
from daskkern.linalg.blas import subtract_product
from daskkern.linalg.block_cyclic import BlockCyclicLayout
from daskkern.linalg.panels import FactoredPanels, downdate, each_panel


@dataclass(frozen=True)
class OwnPanel:
    """An own panel within a group: its global and local columns, the inverse above, the factor below."""

    columns: slice
    own: slice
    inverse: Array
    below: Array


@dataclass(frozen=True)
class BlockCyclicFactor:
    """This rank's columns of the factor L of ``L L^T = K_ZZ + jitter``.

    Attributes
    ----------
    layout : BlockCyclicLayout
    panels : tuple of (p - k0, width) arrays
        One for each own block, starting at its diagonal: down to the end of the block's group the columns of the
        inverse of the group's diagonal block, below it those of L.
    jitter : float
    """

    layout: BlockCyclicLayout
    panels: tuple[Array, ...]
    jitter: float

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of ``(K_ZZ + jitter)^-1 h`` from its part of `h`, in its dtype.

        Sums are taken in float64: the solution is the same for any number of ranks up to its rounding.
        """
        xp, groups = namespace_of(h), list(self.groups())
        y = xp.zeros((self.layout.p, h.shape[1]), np.float64)
        gone = xp.zeros_like(y)  # what this rank's columns before a group subtract from the rest
        for rows, pieces in groups:
            self._forward(rows, pieces, h, y, gone, comm)
        x = xp.zeros(y.shape, h.dtype)
        for rows, pieces in reversed(groups):
            self._backward(rows, pieces, y, x, comm)
        parts = [x[piece.columns] for _, pieces in groups for piece in pieces]
        return xp.concatenate(parts) if parts else xp.zeros_like(h)

    def _forward(
        self, rows: slice, pieces: list[OwnPanel], h: Array, y: Array, gone: Array, comm: Communicator
    ) -> None:
        """Compute the `rows` of ``y = L^-1 h`` on every rank."""
        xp = namespace_of(h)
        if comm.size == 1:  # its own pieces are all rows of the group, in their order
            given = h[pieces[0].own.start : pieces[-1].own.stop] - gone[rows]
        else:
            given = -gone[rows]
            for piece in pieces:
                given[within(piece.columns, rows)] += h[piece.own]
        given = comm.allreduce(given) if rows.start else given  # own rows of the first group are already complete
        found, given = xp.zeros_like(given), given.astype(h.dtype)
        for piece in pieces:
            at = piece.columns.start - rows.start
            found[at:] += multiply(piece.inverse, given[within(piece.columns, rows)], xp)
        y[rows] = comm.allreduce(found)
        if rows.stop < self.layout.p:
            solved = y[rows].astype(h.dtype)
            for piece in pieces:
                gone[rows.stop :] += multiply(piece.below, solved[within(piece.columns, rows)], xp)

    def _backward(self, rows: slice, pieces: list[OwnPanel], y: Array, x: Array, comm: Communicator) -> None:
        """Compute the `rows` of ``x = L^-T y``: on every rank, except for the last group computed."""
        given = y[rows].astype(x.dtype)
        if rows.stop < self.layout.p:
            for piece in pieces:
                later = multiply_transposed(piece.below, x[rows.stop :], namespace_of(y))
                given[within(piece.columns, rows)] = y[piece.columns] - later
            self._share(rows, pieces, given, comm)
        found = x[rows]
        for piece in pieces:
            at = piece.columns.start - rows.start
            found[within(piece.columns, rows)] = multiply_transposed(piece.inverse, given[at:], namespace_of(y))
        if rows.start:
            self._share(rows, pieces, found, comm)

    def _share(self, rows: slice, pieces: list[OwnPanel], values: Array, comm: Communicator) -> None:
        """Fill the other ranks' entries of `values`, the `rows` of a vector in which this rank's own are set."""
        if comm.size == 1:
            return
        xp = namespace_of(values)
        own = [values[within(piece.columns, rows)] for piece in pieces]
        inside = [(k, block) for k, block in enumerate(self.layout.blocks) if rows.start <= block.start < rows.stop]
        lengths = [0] * comm.size
        for k, block in inside:
            lengths[self.layout.owners[k]] += block.stop - block.start
        parts = comm.allgather_of(xp.concatenate(own) if own else values[:0], lengths)
        for rank, part in enumerate(parts):
            edge = 0
            for k, block in inside:
                if self.layout.owners[k] == rank:
                    width = block.stop - block.start
                    values[within(block, rows)] = xp.asarray(part[edge : edge + width])
                    edge += width

    def groups(self) -> Iterator[tuple[slice, list[OwnPanel]]]:
        """Yield the rows of each group and the rank's panels in it."""
        blocks, own = self.layout.blocks, dict(zip(self.layout.own, self.panels, strict=True))
        places = dict(zip(self.layout.own, self.layout.own_blocks, strict=True))
        for group in self.layout.groups:
            rows = rows_of(self.layout, group)
            pieces = []
            for k in range(group.start, group.stop):
                if k in own:
                    height = rows.stop - blocks[k].start
                    pieces.append(OwnPanel(blocks[k], places[k], own[k][:height], own[k][height:]))
            yield rows, pieces


def rows_of(layout: BlockCyclicLayout, group: slice) -> slice:
    """Return the rows of a group of blocks."""
    return slice(layout.blocks[group.start].start, layout.blocks[group.stop - 1].stop)


def within(columns: slice, rows: slice) -> slice:
    return slice(columns.start - rows.start, columns.stop - rows.start)


def distributed_factor(
    panels: list[Array],
    layout: BlockCyclicLayout,
    jitter: float,
    comm: Communicator,
    dtype: str = "float32",
    xp: ModuleType = np,
) -> BlockCyclicFactor:
    """Factor, and invert the diagonal blocks of the groups.

    Parameters
    ----------
    panels : list of arrays
        For each own block k the panel ``K_ZZ[k0:, block k]``, shape (p - k0, width). Overwritten.
    layout : BlockCyclicLayout
        The layout of the columns.
    jitter : float
        Added to the diagonal.
    dtype, xp : str, module
        Of the panels: a rank without any must know what it receives.

    Raises
    ------
    NotPositiveDefiniteError
        On every rank alike, when the matrix with this jitter is not numerically positive definite.
    """
    own = dict(zip(layout.own, panels, strict=True))
    blocks, factored = layout.blocks, FactoredPanels(own, layout, jitter, comm, dtype, xp)
    for group in layout.groups:
        end = blocks[group.stop - 1].stop
        for k in range(group.start, group.stop):
            block, panel = blocks[k], factored.take(k)
            width = block.stop - block.start
            top, rest = panel[:width], panel[width:]
            inside, ahead = rest[: end - block.stop], factored.lead(k, rest)

            def update(
                j: int, k: int = k, block: slice = block, top: Array = top, rest: Array = rest, inside: Array = inside
            ) -> None:
                if j > k:
                    downdate(own[j], blocks[j], block, rest)
                elif j < k:
                    _substitute(own[j], blocks[j], block, top, inside)
                else:
                    _start_inverse(own[j], top, rest, inside.shape[0])

            each_panel([j for j in layout.own if j >= group.start and j != ahead], update, xp)
    return BlockCyclicFactor(layout, tuple(panels), jitter)


def _start_inverse(panel: Array, top: Array, rest: Array, height: int) -> None:
    """Turn the own panel into the first columns of its group's inverse, and the factor below the group's `height`."""
    width = top.shape[0]
    panel[:width] = top
    panel[width : width + height] = -(rest[:height] @ top)
    panel[width + height :] = rest[height:]


def _substitute(panel: Array, own: slice, block: slice, top: Array, rest: Array) -> None:
    """One step of forward substitution in an earlier own panel of the group's inverse, down to where `rest` ends."""
    at, end = block.start - own.start, block.stop - own.start
    solved = top @ panel[at:end]
    panel[at:end] = solved
    subtract_product(panel[end : end + rest.shape[0]], rest, solved)
