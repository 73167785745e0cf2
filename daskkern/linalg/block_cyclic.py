"""Block-cyclic layout of the columns of a square matrix over ranks, and groups of its blocks."""

import itertools
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.shares import Shares, owners_of
from daskkern.backend.tiles import balanced

_MAX_BLOCK = 1024
_MIN_BLOCKS, _FEW_BLOCKS = 24, 8
_PANEL = 32  # columns that fill the widest registers: other edges waste part of a panel
_ONE_GROUP = 2048
_UNEVEN_BLOCKS = 4  # of a rank on average, where ranks have different shares


@dataclass(frozen=True)
class BlockCyclicLayout:
    """The layout of p columns over ranks: consecutive `blocks`, block k on rank ``owners[k]``.

    `n_groups` groups of consecutive blocks have their diagonal blocks inverted; see :func:`group_count`.
    """

    p: int
    blocks: tuple[slice, ...]
    rank: int
    size: int
    n_groups: int
    owners: tuple[int, ...]

    @property
    def own(self) -> list[int]:
        """Numbers of this rank's blocks, ascending."""
        return [k for k, owner in enumerate(self.owners) if owner == self.rank]

    @property
    def own_blocks(self) -> list[slice]:
        """This rank's blocks, as slices of its own columns."""
        edges = np.cumsum([0, *(self.blocks[k].stop - self.blocks[k].start for k in self.own)]).tolist()
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    @property
    def groups(self) -> list[slice]:
        """Groups of consecutive blocks, as slices of their numbers: the same on every rank."""
        return balanced(len(self.blocks), max(1, -(-len(self.blocks) // self.n_groups)))

    def columns(self) -> HostArray:
        """Global numbers of this rank's columns, ascending, int64."""
        parts = [np.arange(self.blocks[k].start, self.blocks[k].stop) for k in self.own]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def column_blocks(p: int, rank: int, size: int, n_head: int = 0, shares: Shares = ()) -> BlockCyclicLayout:
    """Return the layout of `p` columns, whose first `n_head` form separate blocks.

    The blocks, and with them every partial sum, are the same for up to 24 ranks, with `shares` for up to 6: see
    :func:`block_width`.
    """
    width = block_width(p, size, even=not shares)
    rest = [slice(n_head + part.start, n_head + part.stop) for part in even_slices(p - n_head, width)]
    blocks = (*even_slices(n_head, width), *rest)
    return BlockCyclicLayout(p, blocks, rank, size, group_count(p), owners_of(len(blocks), size, shares))


def group_count(p: int) -> int:
    """Return the number of groups whose diagonal blocks are inverted, for `p` columns: one up to 2048, or two.

    With g groups, the inversion costs 1 / g^2 of the factor itself, and a solve takes 4 g - 3 collectives; on landmarks
    of Fashion-MNIST its errors were the same for 1, 2 and 4.
    """
    return 1 if p <= _ONE_GROUP else 2


def block_width(p: int, size: int, *, even: bool = True) -> int:
    """Return the most columns of a block, for `p` columns over `size` ranks.

    At most 1024, and such that there are 24 blocks, or one for each of more ranks, or four where their shares are not
    `even`. But not below 64 while there are 8 blocks: with narrower ones a step is dominated by calls, and with 8 or
    more ranks by messages. With fewer blocks than ranks, the last ranks have no columns.
    """
    size = size if even else _UNEVEN_BLOCKS * size
    least = min(2 * _PANEL, -(-p // _FEW_BLOCKS))
    return max(1, least, min(_MAX_BLOCK, -(-p // _MIN_BLOCKS), -(-p // size)))


def even_slices(n: int, width: int) -> list[slice]:
    """Cut ``range(n)`` into nearly equal slices of at most `width`, of whole vector registers if they are wide."""
    parts = balanced(n, width - width % _PANEL if width >= 2 * _PANEL else width)
    if width < 2 * _PANEL:
        return parts
    edges = [0, *(-(-part.stop // _PANEL) * _PANEL for part in parts[:-1]), n]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]
