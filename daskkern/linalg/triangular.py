"""A Cholesky factor computed by all ranks together and stored whole by each, so that solves need no communication.

The columns are distributed in blocks (:func:`daskkern.linalg.column_blocks`). One right-looking sweep factors
``K = L L^T``: at step k the owner of block k factors its panel and broadcasts it, every rank stores it and updates
its own later columns. Work is p^3 / (3 W); each rank ends with p^2 / 2 numbers, the same bits for up to 24 ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.kernels.engines.block_products import multiply, multiply_transposed
from daskkern.linalg.block_cyclic import BlockCyclicLayout
from daskkern.linalg.panels import (
    FactoredPanels,
    downdate,
    each_panel,
    lower_inverse,
)


@dataclass(frozen=True)
class LowerFactor:
    """The lower triangular L (p, p) of ``L L^T``.

    Attributes
    ----------
    blocks : tuple of slices
        Of the columns.
    panels : tuple of (p - k0, width) arrays
        Columns of L from the diagonal down; on top, in place of the diagonal block L_kk, its inverse.
    corners : tuple of (width, width) arrays
        The blocks L_kk.
    jitter : float
        The number added to the diagonal.
    """

    blocks: tuple[slice, ...]
    panels: tuple[Array, ...]
    corners: tuple[Array, ...]
    jitter: float

    def solve(self, b: Array) -> Array:
        """Return ``L^-1 b`` for `b` (p, c), in the dtype of `b`; products are taken in the dtype of L."""
        xp = namespace_of(b)
        x = b.copy()
        for block, panel, width in self._steps():
            solved = multiply(panel[:width], x[block].astype(panel.dtype), xp)
            x[block] = solved
            x[block.stop :] -= multiply(panel[width:], solved, xp)
        return x

    def solve_transposed(self, b: Array) -> Array:
        """Return ``L^-T b`` for `b` (p, c)."""
        xp = namespace_of(b)
        x = b.copy()
        for block, panel, width in reversed(list(self._steps())):
            rest = x[block] - multiply_transposed(panel[width:], x[block.stop :].astype(panel.dtype), xp)
            x[block] = multiply_transposed(panel[:width], rest.astype(panel.dtype), xp)
        return x

    def times(self, u: Array) -> Array:
        """Return ``L u`` for `u` (p, c)."""
        xp = namespace_of(u)
        out = xp.zeros_like(u)
        for (block, panel, width), corner in zip(self._steps(), self.corners, strict=True):
            part = u[block].astype(panel.dtype)
            out[block] += multiply(corner, part, xp)
            out[block.stop :] += multiply(panel[width:], part, xp)
        return out

    def transposed_times(self, u: Array) -> Array:
        """Return ``L^T u`` for `u` (p, c)."""
        xp = namespace_of(u)
        out = xp.empty_like(u)
        for (block, panel, width), corner in zip(self._steps(), self.corners, strict=True):
            out[block] = multiply_transposed(corner, u[block].astype(panel.dtype), xp)
            out[block] += multiply_transposed(panel[width:], u[block.stop :].astype(panel.dtype), xp)
        return out

    def gram_panels(self, layout: BlockCyclicLayout, scale: Array) -> list[Array]:
        """Return this rank's panels ``(L^T D L)[j0:, block j]``, D the diagonal `scale` (p, 1).

        L is lower triangular: row block i of column block j needs its rows from block i on, and all panels of all
        ranks together take p^3 / 3 multiplications.
        """
        made: dict[int, Array] = {}

        def one(j: int) -> None:
            made[j] = self._gram_panel(j, scale)

        each_panel(layout.own, one, namespace_of(scale))
        return [made[j] for j in layout.own]

    def _gram_panel(self, j: int, scale: Array) -> Array:
        xp, start = namespace_of(scale), self.blocks[j].start
        width = self.corners[j].shape[0]
        columns = self.panels[j] * scale[start:]
        columns[:width] = self.corners[j] * scale[start : start + width]
        out = xp.empty_like(columns)
        for i in range(j, len(self.blocks)):
            top, middle = self.blocks[i].start - start, self.blocks[i].stop - start
            out[top:middle] = self.corners[i].T @ columns[top:middle]
            out[top:middle] += self.panels[i][middle - top :].T @ columns[middle:]
        return out

    def astype(self, dtype: str) -> "LowerFactor":
        """Return the factor in another dtype: itself if it already has it."""
        if all(array.dtype == dtype for array in (*self.panels, *self.corners)):
            return self
        panels, corners = (tuple(array.astype(dtype) for array in part) for part in (self.panels, self.corners))
        return replace(self, panels=panels, corners=corners)

    def diagonal(self) -> Array:
        """Return the diagonal of L (p,), whose squares are what is left of K's given the previous columns."""
        xp = namespace_of(self.corners[0])
        return xp.concatenate([corner.diagonal() for corner in self.corners])

    def _steps(self) -> Iterator[tuple[slice, Array, int]]:
        for block, panel in zip(self.blocks, self.panels, strict=True):
            yield block, panel, block.stop - block.start


def cholesky(
    panels: list[Array], layout: BlockCyclicLayout, jitter: float, comm: Communicator, dtype: str, xp: ModuleType = np
) -> LowerFactor:
    """Factor a symmetric matrix from this rank's panels ``K[k0:, block k]``, one for each own block.

    Parameters
    ----------
    panels : list of (p - k0, width) arrays
        Overwritten; the factor takes ownership.
    layout : BlockCyclicLayout
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
    panels.clear()
    whole, corners, factored = [], [], FactoredPanels(own, layout, jitter, comm, dtype, xp)
    for k, block in enumerate(layout.blocks):
        panel, width = factored.take(k), block.stop - block.start
        whole.append(panel)
        own.pop(k, None)
        if (ahead := factored.lead(k, panel[width:])) is not None:
            del own[ahead]
        corner = lower_inverse(to_host(panel[:width]).astype(np.float64))
        corners.append(xp.asarray(corner.astype(dtype)))

        def update(j: int, block: slice = block, rest: Array = panel[width:]) -> None:
            downdate(own[j], layout.blocks[j], block, rest)

        each_panel(list(own), update, xp)  # the later ones
    return LowerFactor(layout.blocks, tuple(whole), tuple(corners), jitter)
