"""The function space of kernel columns: which column lives on which rank, and products with one rank's columns.

Each rank puts its columns of the preconditioner's subsample S first, as its first `n_head` columns: its part of K_BS is
then a slice of the block that the step computes anyway.
"""

from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.namespace import namespace_of
from daskkern.backend.shares import Shares, share_edges
from daskkern.data.rows.csr import append_column
from daskkern.errors import SpecError
from daskkern.kernels import PLAIN, Coordinate, Kernel, Placement, Points, Precision, TreeAverage
from daskkern.kernels.rows import module_of
from daskkern.linalg import BlockCyclicLayout, column_blocks


@dataclass(frozen=True)
class Columns:
    """One rank's share: global column numbers `ids` (p_r,), the first `n_head` of them in S.

    `blocks` split the share into the pieces over which sums are taken: the same pieces on any rank.
    """

    ids: IntArray
    n_head: int
    blocks: tuple[slice, ...]

    @property
    def head_blocks(self) -> list[slice]:
        """The blocks of the columns in S."""
        return [block for block in self.blocks if block.stop <= self.n_head]


@dataclass(frozen=True)
class KernelBasis:
    """p columns ``k(., z_j)`` over W ranks.

    Attributes
    ----------
    kernel : Kernel
        With every parameter known.
    n_columns : int
        p.
    head : (s,) int64
        Global numbers of the columns in S, ascending.
    all_rows : bool
        The columns are all training rows, column j is row j.
    placement : Placement
        How rows are prepared, so that their distances are accurate.
    precision : str or None
        What features are rounded to; see :func:`daskkern.kernels.check_precision`. None rounds nothing.
    leaves : (p,) int64 or None
        The leaf of each column in a partition, between whose leaves the kernel is 0.
    shares : tuple of int
        The shares of the ranks in the columns; () where they are equal. See :func:`daskkern.linalg.column_blocks`.
    """

    kernel: Kernel
    n_columns: int
    head: IntArray
    all_rows: bool
    placement: Placement = PLAIN
    precision: Precision | None = None
    leaves: IntArray | None = None
    shares: Shares = ()

    def split(self, rank: int, size: int) -> Columns:
        """Return the columns of `rank` among `size` ranks: whole blocks of S first, then whole blocks of the rest.

        Of a partition, whole leaves, each a block of its own.
        """
        if self.leaves is not None:
            return _whole_leaves(self.leaves, rank, size, self.shares)
        order = self._order()
        layout = self.layout(rank, size)
        numbers = layout.columns()
        return Columns(order[numbers], int(np.count_nonzero(numbers < self.head.size)), tuple(layout.own_blocks))

    def layout(self, rank: int, size: int) -> BlockCyclicLayout:
        """Return the layout of the columns, those in S first, over `size` ranks."""
        return column_blocks(self.n_columns, rank, size, self.head.size, self.shares)

    def _order(self) -> IntArray:
        """Return all columns, those in S first."""
        if np.array_equal(self.head, np.arange(self.head.size)):
            return np.arange(self.n_columns)
        rest = np.ones(self.n_columns, bool)
        rest[self.head] = False
        return np.concatenate([self.head, np.flatnonzero(rest)])

    def part(self, columns: Columns, rows: Array) -> "KernelPart":
        """Return the products with the given columns, whose points are `rows` (p_r, d)."""
        blocks = columns.blocks or None
        points = self.kernel.points(rows, self._placement(rows), blocks, precision=self.precision)
        return KernelPart(self.kernel, columns, points)

    def points(self, rows: Array) -> Points:
        """Prepare any rows as columns of this basis."""
        return self.kernel.points(rows, self._placement(rows), precision=self.precision)

    def points_of(self, rows: HostArray, ids: IntArray) -> HostArray:
        """Return the points of the columns `ids` (k,), given the training rows (k, d) that these are."""
        if not isinstance(self.kernel, TreeAverage):
            return rows
        return append_column(rows, ids // (self.n_columns // self.kernel.n_trees))

    def panel(self, Z: Array, block: slice) -> Array:
        """Return the columns `block` of K_ZZ from the diagonal down, for the centres `Z` (p, d)."""
        corner = Z[block]
        panel = self.kernel.block(Z[block.start :], self.points(corner))
        index = namespace_of(panel).arange(corner.shape[0])
        panel[index, index] = self.kernel.diagonal(corner)
        return panel

    def _placement(self, rows: Array) -> Placement:
        """Return the placement with its shift in the memory of `rows`."""
        return self.placement.on(module_of(rows))


def _whole_leaves(leaves: IntArray, rank: int, size: int, shares: Shares) -> Columns:
    """Return the columns of consecutive leaves, about as many on every rank, or as its share says."""
    order = np.argsort(leaves, kind="stable")
    ends = np.flatnonzero(np.diff(leaves[order], append=-1)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    edges = share_edges(2 * len(order), size, shares)  # in halves of a column
    own = np.flatnonzero((starts + ends >= edges[rank]) & (starts + ends < edges[rank + 1]))
    if not own.size:
        return Columns(order[:0].astype(np.int64), 0, ())
    first = int(starts[own[0]])
    blocks = tuple(slice(int(starts[k]) - first, int(ends[k]) - first) for k in own)
    return Columns(order[first : int(ends[own[-1]])].astype(np.int64), 0, blocks)


@dataclass(frozen=True)
class KernelPart:
    """One rank's columns, ready for products."""

    kernel: Kernel
    columns: Columns
    points: Points

    @property
    def namespace(self) -> ModuleType:
        """The array module of the columns, NumPy or CuPy."""
        points = self.points if self.points.wider is None else self.points.wider
        points = points.parts[0] if points.parts else points
        return np if points.side is None else module_of(points.side.rows)

    @property
    def is_coordinates(self) -> bool:
        """Whether the columns are features of the rows themselves."""
        return isinstance(self.kernel, Coordinate)

    def moved(self, rows: Array) -> "KernelPart":
        """Return the products with the columns' points replaced by others (p_r, d)."""
        like = self.points
        return replace(self, points=self.kernel.points(rows, like.placement, like.blocks, precision=like.precision))

    def rows(self, X: Array) -> Array:
        """Return the rank's own features of rows (m, p_r), dense or CSR: a view where that is possible."""
        if not isinstance(self.kernel, Coordinate):
            raise SpecError(f"the columns of a {self.kernel.name} basis are not features of the rows")
        return self.kernel.columns(X, self.points)

    def block(self, X: Array, out: Array | None = None) -> Array:
        """Return ``k(x_i, z_j)`` for the rank's columns, (m, p_r)."""
        return self.kernel.block(X, self.points, out)

    def scores(self, X: Array, a: Array, head: Array | None = None) -> Array:
        """Return the rank's share of the scores, (m, c) float64, in tiles; `head` (m, n_head) receives K_BS."""
        return self.kernel.matvec(X, self.points, a, head)

    def pullback(self, X: Array, g: Array) -> Array:
        """Return ``sum_i k(x_i, z_j) g_i`` for the rank's columns, (p_r, c), in tiles."""
        return self.kernel.rmatvec(X, self.points, g)
