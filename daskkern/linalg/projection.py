"""The solver of ``K_ZZ t = h`` that exact projections need: a Cholesky factor, inverted, sharded by columns.

The centres are dealt to the ranks in blocks (:func:`column_blocks`). One right-looking sweep factors
``K_ZZ + jitter = L L^T`` and inverts L on the way: at step k the owner of block k factors its panel and
broadcasts it, and every rank updates its later columns of the matrix and its earlier columns of the inverse,
which overwrite the columns of the factor that nobody needs any more. Rank r ends with the columns r of L^-1, and

    t_r = (L^-1)_r^T  sum over ranks of (L^-1)_r h_r

costs one allreduce of (p, c) numbers. Memory is p^2 / (2 W) numbers a rank, work 2 p^3 / (3 W).
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.tiles import balanced, for_each, multiply, multiply_transposed, within
from daskkern.errors import DaskkernError
from daskkern.linalg.blas import subtract_product

_MAX_BLOCK = 1024
_MIN_BLOCKS = 24
_ROWS = 512  # of a panel that one thread takes at once
_PANEL = 32  # columns that the widest registers take at once: other edges waste a part of a panel


Item = TypeVar("Item")


@dataclass(frozen=True)
class Deal:
    """How p columns are dealt to ranks: consecutive `blocks`, block k to rank ``k % size``."""

    p: int
    blocks: tuple[slice, ...]
    rank: int
    size: int

    @property
    def own(self) -> list[int]:
        """Numbers of this rank's blocks, ascending."""
        return list(range(self.rank, len(self.blocks), self.size))

    @property
    def own_blocks(self) -> list[slice]:
        """This rank's blocks, as slices of its own columns."""
        edges = np.cumsum([0, *(self.blocks[k].stop - self.blocks[k].start for k in self.own)]).tolist()
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    def columns(self) -> HostArray:
        """Global numbers of this rank's columns, ascending, int64."""
        parts = [np.arange(self.blocks[k].start, self.blocks[k].stop) for k in self.own]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def column_blocks(p: int, rank: int, size: int, n_head: int = 0) -> Deal:
    """Return the deal of `p` columns, whose first `n_head` make blocks of their own.

    At least 24 blocks of at most 1024 columns; narrower only for more ranks than that. So the blocks, and with them
    every partial sum, are the same for up to 24 ranks.
    """
    width = max(1, min(_MAX_BLOCK, -(-p // _MIN_BLOCKS), -(-p // size)))
    rest = [slice(n_head + part.start, n_head + part.stop) for part in _even(p - n_head, width)]
    return Deal(p, (*_even(n_head, width), *rest), rank, size)


def _even(n: int, width: int) -> list[slice]:
    """Cut ``range(n)`` into nearly equal slices of at most `width`, of whole vector registers where they are wide."""
    parts = balanced(n, width - width % _PANEL if width >= 2 * _PANEL else width)
    if width < 2 * _PANEL:
        return parts
    edges = [0, *(-(-part.stop // _PANEL) * _PANEL for part in parts[:-1]), n]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]


@dataclass(frozen=True)
class InverseFactor:
    """This rank's columns of L^-1: one (p - k0, width) panel for each own block, starting at its diagonal."""

    deal: Deal
    panels: tuple[Array, ...]
    jitter: float

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part of ``(K_ZZ + jitter)^-1 h`` from its part `h` (p_r, c); one (p, c) allreduce."""
        xp = namespace_of(h)
        total = xp.zeros((self.deal.p, h.shape[1]), np.float64)
        for panel, start, block in zip(self.panels, self._starts(), self.deal.own_blocks, strict=True):
            total[start:] += multiply(panel, h[block], xp)
        total = comm.allreduce(total).astype(h.dtype)
        parts = [
            multiply_transposed(panel, total[start:], xp)
            for panel, start in zip(self.panels, self._starts(), strict=True)
        ]
        return xp.concatenate(parts) if parts else xp.zeros_like(h)

    def _starts(self) -> list[int]:
        return [self.deal.blocks[k].start for k in self.deal.own]


class NotPositiveDefiniteError(DaskkernError):
    """A pivot of the factorisation was not positive: more jitter is needed."""


def inverse_factor(
    panels: list[Array], deal: Deal, jitter: float, comm: Communicator, dtype: str = "float32"
) -> InverseFactor:
    """Factor and invert.

    Parameters
    ----------
    panels : list of arrays
        For each own block k the panel ``K_ZZ[k0:, block k]``, shape (p - k0, width). Overwritten.
    deal : Deal
        The deal of the columns.
    jitter : float
        Added to the diagonal.
    dtype : str
        Of the panels: a rank without any must know what it receives.

    Raises
    ------
    NotPositiveDefiniteError
        On every rank alike, when the matrix with this jitter is not numerically positive definite.
    """
    xp = namespace_of(*panels)
    own = dict(zip(deal.own, panels, strict=True))
    blocks = deal.blocks
    for k, block in enumerate(blocks):
        panel = comm.broadcast(xp.asarray(factored_panel(own.get(k), deal, block, jitter, dtype)), k % deal.size)
        width = block.stop - block.start
        if not bool(xp.isfinite(panel[:width]).all()):
            raise NotPositiveDefiniteError(
                f"K_ZZ with a jitter of {jitter:.1e} is not positive definite at column {block.start}"
            )
        top, rest = panel[:width], panel[width:]

        def update(j: int, k: int = k, block: slice = block, top: Array = top, rest: Array = rest) -> None:
            if j > k:
                downdate(own[j], blocks[j], block, rest)
            elif j < k:
                _substitute(own[j], blocks[j], block, top, rest)
            else:
                _start_inverse(own[j], top, rest)

        each_panel(deal.own, update, xp)
    return InverseFactor(deal, tuple(panels), jitter)


def factored_panel(mine: Array | None, deal: Deal, block: slice, jitter: float, dtype: str) -> Array:
    """Return the panel of this block where it lives: inv(L_kk) on top (its width rows), L below; else a buffer."""
    width = block.stop - block.start
    if mine is None:
        return np.empty((deal.p - block.start, width), dtype)
    return _factor(mine, width, jitter)


def _factor(panel: Array, width: int, jitter: float) -> Array:
    xp = namespace_of(panel)
    corner = to_host(panel[:width]).astype(np.float64)
    corner[np.arange(width), np.arange(width)] += jitter
    out = xp.empty_like(panel)
    # SciPy's LAPACK: NumPy's own calls take ten times as long on blocks of this size.
    lower, failed = scipy.linalg.lapack.dpotrf(corner, lower=1, clean=1, overwrite_a=1)
    if failed:
        out[...] = np.nan
        return out
    out[:width] = xp.asarray(lower_inverse(lower).astype(panel.dtype))
    top = xp.ascontiguousarray(out[:width].T)

    def rows(part: slice) -> None:
        xp.matmul(panel[part], top, out=out[part])

    each_panel(within(slice(width, panel.shape[0]), _ROWS if xp is np else panel.shape[0]), rows, xp)
    return out


def each_panel(items: Sequence[Item], work: Callable[[Item], None], xp: ModuleType) -> None:
    """Call `work` on every item, on the tile pool where there is one: single-threaded BLAS beside itself.

    BLAS's own threads wait for each other in every call, which costs a multiple when other programs compute, too.
    """
    if xp is np:
        for_each(items, work)
        return
    for item in items:
        work(item)


def lower_inverse(lower: HostArray) -> HostArray:
    """Return the inverse of a lower triangular matrix (w, w) with a diagonal that is not 0, float64."""
    inverse, _ = scipy.linalg.lapack.dtrtri(lower, lower=1)
    return np.tril(inverse)


def downdate(panel: Array, own: slice, block: slice, rest: Array) -> None:
    """Subtract the outer product of L's panel from a later own panel of the matrix."""
    offset = own.start - block.stop
    subtract_product(panel, rest[offset:], rest[offset : offset + own.stop - own.start].T)


def _start_inverse(panel: Array, top: Array, rest: Array) -> None:
    """Turn the own panel of L into the first two blocks' worth of its inverse's columns."""
    width = top.shape[0]
    panel[:width] = top
    panel[width:] = -(rest @ top)


def _substitute(panel: Array, own: slice, block: slice, top: Array, rest: Array) -> None:
    """One step of forward substitution in an earlier own panel of the inverse."""
    at, end = block.start - own.start, block.stop - own.start
    solved = top @ panel[at:end]
    panel[at:end] = solved
    subtract_product(panel[end:], rest, solved)
