"""Products with the rank's rows of a batch, piece by piece, for solvers that distribute rows over the ranks.

Each rank has all columns and its share of every batch. The pieces of a batch are the same for every number of ranks
that divides 12, and their sums are added in float64: the sum over the ranks does not depend on their number, except for
the rounding of float64.
"""

from collections.abc import Callable

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.basis import KernelPart
from daskkern.errors import SpecError
from daskkern.kernels.engines.block_products import multiply_blocks, multiply_transposed
from daskkern.solvers.batch_loss import loss_and_gradient
from daskkern.solvers.problem import AnyProblem, Batch

Between = Callable[[Array, slice], Array]
"""A function of scores (k, c) and of the batch rows that they belong to; returns an array of the same shape."""


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


def gradient_of_rows(
    problem: AnyProblem, part: KernelPart, batch: Batch, V: Array | None
) -> tuple[Array, float, Array]:
    """Return ``sum_i k(Z, x_i) loss'_i`` (p, c) float64 over the rank's rows, their summed loss, and their scores.

    `V` are the model's coefficients (p, c); None for the zero model, whose scores are not computed.
    """
    xp = namespace_of(batch.y)
    f = xp.zeros(batch.y.shape, problem.dtype)
    if V is None:
        loss, g = loss_and_gradient(problem, f, batch)
        return pullback(part, batch, g), loss, f

    def slope(scores: Array, rows: slice) -> Array:
        f[rows] = scores
        gradient = problem.loss.gradient(f[rows], batch.y[rows])
        return gradient if batch.weight is None else gradient * batch.weight[rows]

    pulled = double_product(part, batch, V, slope)
    loss, _ = loss_and_gradient(problem, f, batch)
    return pulled, loss, f


def reported_loss(loss: float, reported: float, seen: int, batch: Batch, *, ended: bool) -> tuple[float, int, float]:
    """Return the sum of losses reported in this epoch, its rows so far, and the sum to report for `batch`.

    The latter makes the mean of the epoch so far `loss`, the last known mean over all rows. `ended`: the epoch is over.
    """
    seen += batch.size
    amount = loss * seen - reported
    return (0.0, 0, amount) if ended else (reported + amount, seen, amount)


def _rows(batch: Batch) -> Array:
    if batch.X is None:
        raise SpecError("a product with a batch needs its rows, or their kernel values")
    return batch.X
