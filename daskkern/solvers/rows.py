"""What solvers share whose rows are dealt to the ranks: products with the rank's rows of a batch, piece by piece.

Each rank has all columns and its share of every batch. The pieces of a batch are the same for every number of ranks
that divides 12, and their sums are added in float64: the ranks' sum does not depend on how many they are, but for the
rounding of float64.
"""

from collections.abc import Callable

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.basis import KernelPart
from daskkern.errors import SpecError
from daskkern.kernels.products import multiply_blocks, multiply_transposed
from daskkern.solvers.base import Batch

Between = Callable[[Array, slice], Array]
"""From scores (k, c) and the rows of the batch that they belong to, to an array of the same shape."""


def double_product(part: KernelPart, batch: Batch, V: Array, between: Between) -> Array:
    """Return ``sum_i k(Z, x_i) op(k(x_i, Z) V)`` over the rank's rows, (p, c) float64, in one pass over them.

    `between` is `op`; it is called from several threads at once. With ``batch.phi`` no kernel value is computed.
    """
    xp = namespace_of(V)
    total = xp.zeros(V.shape, np.float64)
    V = V.astype(part.points.dtype)
    for rows in batch.parts:
        if batch.phi is not None:
            values = batch.phi[rows]
            g = between(multiply_blocks(values, V, part.columns.blocks, xp), rows)
            total += multiply_transposed(values, g.astype(V.dtype), xp)
        else:

            def piece(scores: Array, within: slice, first: int = rows.start) -> Array:
                return between(scores, slice(first + within.start, first + within.stop))

            total += part.kernel.double_product(_rows(batch)[rows], part.points, V, piece)
    return total


def pullback(part: KernelPart, batch: Batch, g: Array) -> Array:
    """Return ``sum_i k(Z, x_i) g_i`` over the rank's rows, (p, c) float64."""
    xp = namespace_of(g)
    total = xp.zeros((part.points.size, g.shape[1]), np.float64)
    g = g.astype(part.points.dtype)
    for rows in batch.parts:
        if batch.phi is not None:
            total += multiply_transposed(batch.phi[rows], g[rows], xp)
        else:
            total += part.pullback(_rows(batch)[rows], g[rows])
    return total


def _rows(batch: Batch) -> Array:
    if batch.X is None:
        raise SpecError("a product with a batch needs its rows, or their kernel values")
    return batch.X
