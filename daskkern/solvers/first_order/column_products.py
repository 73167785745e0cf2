"""Scores, pullbacks and inner products of batches for first-order methods, for all kinds of columns.

The columns of the model are distributed over the ranks, and every rank visits every row: scores take one allreduce of
(m, c) numbers, the gradient in the columns needs no communication. A method that treats the rows of a batch one after
the other computes their inner products once, with one allreduce of (m, m) numbers, and its steps on them need none: its
iterates are those of the sequential method, on any number of ranks.
"""

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import SpecError
from daskkern.kernels.engines.block_products import multiply_blocks, multiply_transposed
from daskkern.solvers.groups import rows_of_all_groups, sum_over_groups
from daskkern.solvers.problem import AnyProblem, Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup


def partial_scores(problem: AnyProblem, batch: Batch, w: Array) -> Array:
    """Return this rank's share (m, c) float64 of ``Phi_B w``; its own columns' coefficients are `w` (p_r, c)."""
    if batch.phi is not None:
        return multiply_blocks(batch.phi, w, problem.part.columns.blocks, namespace_of(w))
    entries = _entries(problem, batch)
    if entries is not None:
        where, values = entries
        return values.astype(np.float64) @ w[where].astype(np.float64)
    return problem.part.scores(batch.X, w)


def pull(problem: AnyProblem, batch: Batch, g: Array) -> Array:
    """Return ``Phi_B^T g`` (p_r, c) for the rank's own columns, from g (m, c) of its rows. A collective with groups."""
    g = g.astype(problem.dtype)
    if batch.phi is not None:
        return sum_over_groups(problem, multiply_transposed(batch.phi, g, namespace_of(g)))
    return sum_over_groups(problem, problem.part.pullback(batch.X, g))


def descend(problem: ColumnProblem, batch: Batch, v: Array, change: Array) -> Array:
    """Return coefficients (p_r, c) after ``f += sum_i k(x_i, .) change_i`` over the batch's rows, change (m, c).

    In explicit features that is ``v + Phi_B^T change``; with all rows as centres the rows' own coefficients change.
    """
    where, delta = changes(problem, batch, change)
    if isinstance(where, slice):
        return v + delta
    v = v.copy()
    v[where] += delta
    return v


def changes(problem: ColumnProblem, batch: Batch, change: Array) -> tuple[IntArray | slice, Array]:
    """Return which of the rank's columns :func:`descend` changes, each once, and their changes (k, c).

    All of them for dense columns; the batch's rows with all rows as centres; the features that sparse rows have.
    """
    setup: ColumnSetup = problem.extra
    if setup.all_rows:
        xp = namespace_of(change)
        local, here = (xp.asarray(numbers) for numbers in setup.rows.find(batch.all_positions))
        every = rows_of_all_groups(problem, change)
        return local, every[here].astype(problem.dtype)  # the rows of a batch are distinct
    entries = _entries(problem, batch) if problem.groups is None else None  # other rows have other entries
    if entries is not None:
        where, values = entries
        return where, values.T @ change.astype(problem.dtype)
    return slice(None), pull(problem, batch, change)


def _entries(problem: AnyProblem, batch: Batch) -> tuple[IntArray, Array] | None:
    """Return the rank's columns in which sparse rows have entries, and the rows in these; None for dense rows."""
    if batch.phi is not None or batch.X is None or not problem.part.is_coordinates or not is_sparse(batch.X):
        return None
    values, xp = problem.part.rows(batch.X), problem.part.namespace
    where, numbers = xp.unique(values.indices, return_inverse=True)
    shape = (values.shape[0], int(where.size))
    return where, type(values)((values.data, numbers.reshape(-1), values.indptr), shape=shape)


def partial_gram(problem: ColumnProblem, batch: Batch, comm: Communicator) -> Array:
    """Return this rank's share (m, m) float64 of the rows' inner products; they sum to ``K_BB`` or ``Phi_B Phi_B^T``.

    With all rows as centres only rank 0 has any.
    """
    setup: ColumnSetup = problem.extra
    xp = namespace_of(batch.y)
    if setup.all_rows:
        if comm.rank:
            return xp.zeros((batch.size, batch.size))
        like = problem.part.points
        points = problem.part.kernel.points(batch.X, like.placement, precision=like.precision)
        gram = problem.part.kernel.block(batch.X, points).astype(np.float64)
        index = xp.arange(batch.size)
        gram[index, index] = problem.part.kernel.diagonal(batch.X)
        return gram
    if batch.phi is None and problem.part.is_coordinates:
        return _products(problem, batch)
    phi = problem.part.block(batch.X) if batch.phi is None else batch.phi
    total = xp.zeros((batch.size, batch.size))
    for block in problem.part.columns.blocks:
        total += phi[:, block] @ phi[:, block].T
    return total


def _products(problem: ColumnProblem, batch: Batch) -> Array:
    """Return the inner products of rows in the rank's own features."""
    values = problem.part.rows(batch.X)
    if is_sparse(values):
        return (values @ values.T).toarray().astype(np.float64)
    total = namespace_of(batch.y).zeros((batch.size, batch.size))
    for block in problem.part.columns.blocks:
        total += values[:, block] @ values[:, block].T
    return total


def needed_rows(batch: Batch) -> Array:
    """Return the rows of a batch. Raises SpecError where the batch has none."""
    if batch.X is None:
        raise SpecError("a step needs the rows of its batch")
    return batch.X
