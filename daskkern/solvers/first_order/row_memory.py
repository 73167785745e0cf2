"""Helpers of methods that store numbers for every row and process the rows of a batch sequentially.

One allreduce a batch gives the inner products of its rows, their scores and the numbers stored for them. The steps for
its rows are then plain recursions on (m, c) arrays, the same on all ranks, without communication. So the iterates
are those of the sequential method on any number of ranks, and no local subproblems (CoCoA) have to be reconciled.
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.losses import Loss
from daskkern.solvers.first_order.column_products import partial_gram, partial_scores
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup


@dataclass(frozen=True, eq=False)
class BatchNumbers:
    """The numbers of a batch, float64 in host memory.

    Attributes
    ----------
    gram : (m, m)
        Inner products of the rows.
    scores : tuple of (m, c)
        Of each of the given coefficients.
    kept : (m, c)
        The numbers stored for the rows.
    y : (m, c)
    weight : (m, 1)
    """

    gram: FloatArray
    scores: tuple[FloatArray, ...]
    kept: FloatArray
    y: FloatArray
    weight: FloatArray


def batch_numbers(
    problem: ColumnProblem, batch: Batch, comm: Communicator, coefficients: tuple[Array, ...], kept: HostArray
) -> BatchNumbers:
    """Return the numbers of `batch`: one allreduce.

    `kept` (n_r, c) float64 holds this rank's rows, as `problem.extra.rows` assigns them.
    """
    setup: ColumnSetup = problem.extra
    c = problem.n_outputs
    parts = [
        partial_gram(problem, batch, comm),
        *(partial_scores(problem, batch, v) for v in coefficients),
        like(setup.rows.read(kept, batch.positions), problem),
    ]
    whole = to_host(comm.allreduce(problem.part.namespace.concatenate(parts, axis=1)))
    gram, rest = whole[:, : batch.size], whole[:, batch.size :]
    columns = [np.ascontiguousarray(rest[:, k : k + c]) for k in range(0, rest.shape[1], c)]
    return BatchNumbers(
        np.ascontiguousarray(gram.T), tuple(columns[:-1]), columns[-1], targets_of(batch), weight_of(batch)
    )


def targets_of(batch: Batch) -> FloatArray:
    """Return the encoded targets (m, c) in float64 in host memory."""
    return to_host(batch.y).astype(np.float64)


def weight_of(batch: Batch) -> FloatArray:
    """Return the weights (m, 1) in float64 in host memory, ones where all rows have the same weight."""
    return np.ones((batch.size, 1)) if batch.weight is None else to_host(batch.weight).astype(np.float64)


def weighted_loss(loss: Loss, f: FloatArray, y: FloatArray, weight: FloatArray) -> float:
    """Return ``sum_i w_i loss(f_i, y_i)``."""
    return float(weight[:, 0] @ loss.value(f, y))


def like(change: HostArray, problem: ColumnProblem) -> Array:
    """Return `change` in the memory of the columns: on the host or on the device."""
    return problem.part.namespace.asarray(change)


def squared_norm(problem: ColumnProblem, h: Array, comm: Communicator) -> float:
    """Return ``|h|^2`` of a function with the coefficients `h` (p_r, c); one allreduce of a number.

    With all rows as centres, where that would take a pass over the kernel, it is ``lambda_max |coefficients|^2``, an
    upper bound as good as the estimate of the kernel's largest eigenvalue.
    """
    setup: ColumnSetup = problem.extra
    own = sum(float((to_host(h[block]).astype(np.float64) ** 2).sum()) for block in problem.part.columns.blocks)
    total = float(comm.allreduce(np.array([own]))[0])
    return total * setup.n_rows * setup.statistics.top if setup.all_rows else total


def zeros(problem: ColumnProblem) -> Array:
    """Return the coefficients (p_r, c) of the zero model."""
    xp = problem.part.namespace
    return xp.zeros((problem.part.columns.ids.size, problem.n_outputs), problem.dtype)


def no_rows(problem: ColumnProblem) -> HostArray:
    """Return zeros (n_r, c) in float64 for the rows whose numbers this rank stores."""
    setup: ColumnSetup = problem.extra
    return np.zeros((setup.rows.ids.size, problem.n_outputs))


def restored(values: HostArray, like: Array) -> Array:
    """Return `values` of a snapshot in the library of `like`."""
    return namespace_of(like).asarray(values)
