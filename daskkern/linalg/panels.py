"""Panels of a distributed Cholesky factorisation: factored by their owners, broadcast, subtracted by all."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.reductions import all_finite
from daskkern.backend.tiles import for_each, slices, within
from daskkern.errors import DaskkernError
from daskkern.linalg.blas import ROWS, subtract_product
from daskkern.linalg.block_cyclic import BlockCyclicLayout

Item = TypeVar("Item")


class NotPositiveDefiniteError(DaskkernError):
    """A pivot of the factorisation was not positive: more jitter is needed."""


class FactoredPanels:
    """The factored panels of all ranks one after the other: inv(L_kk) on top (its width rows), L below.

    If a root need not wait for the others, a rank factors and sends its panel before it finishes the previous step.

    Parameters
    ----------
    own : dict
        Maps block numbers to this rank's unfactored panels ``K[k0:, block k]``.
    """

    def __init__(
        self,
        own: dict[int, Array],
        layout: BlockCyclicLayout,
        jitter: float,
        comm: Communicator,
        dtype: str,
        xp: ModuleType,
    ) -> None:
        self._own, self._layout, self._jitter = own, layout, jitter
        self._comm, self._dtype, self._xp = comm, dtype, xp
        self._ahead: Array | None = None

    def take(self, k: int) -> Array:
        """Return panel k. Every rank takes all panels, in order, and updates its own with each."""
        panel, self._ahead = self._share(k) if self._ahead is None else self._ahead, None
        block = self._layout.blocks[k]
        if not all_finite(panel[: block.stop - block.start]):
            raise NotPositiveDefiniteError(
                f"the matrix with a jitter of {self._jitter:.1e} is not positive definite at column {block.start}"
            )
        return panel

    def lead(self, k: int, rest: Array) -> int | None:
        """Update panel k + 1 with `rest`, L of panel k, and send it; return k + 1 if it is this rank's panel."""
        j = k + 1
        if not self._comm.sends_ahead or j not in self._own:
            return None
        panel, width = self._own[j], self._layout.blocks[j].stop - self._layout.blocks[j].start
        square = rest[:width].T  # the blocks are adjacent: rest begins where panel k + 1 does

        def rows(part: slice) -> None:
            subtract_product(panel[part], rest[part], square)

        each_panel(slices(panel.shape[0], ROWS if self._xp is np else panel.shape[0]), rows, self._xp)
        self._ahead = self._share(j)
        return j

    def _share(self, k: int) -> Array:
        block, mine = self._layout.blocks[k], self._own.get(k)
        width = block.stop - block.start
        made = np.empty((self._layout.p - block.start, width), self._dtype) if mine is None else None
        panel = self._xp.asarray(_factor(mine, width, self._jitter) if made is None else made)
        return self._comm.broadcast(panel, self._layout.owners[k])


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

    each_panel(within(slice(width, panel.shape[0]), ROWS if xp is np else panel.shape[0]), rows, xp)
    return out


def each_panel(items: Sequence[Item], work: Callable[[Item], None], xp: ModuleType) -> None:
    """Call `work` on every item, on the tile pool if there is one: parallel calls of single-threaded BLAS.

    BLAS's own threads wait for each other in every call, which is several times slower when other programs compute.
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
