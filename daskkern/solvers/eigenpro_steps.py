"""The steps of EigenPro over kernel columns, and the state that they change; see :mod:`daskkern.solvers.eigenpro`."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import multiply_blocks, multiply_transposed
from daskkern.errors import SpecError
from daskkern.kernels import Points
from daskkern.preconditioners import EigenProPart, EigenProState
from daskkern.solvers.base import (
    Batch,
    Problem,
    TailAverage,
    loss_and_gradient,
)

_STRIPES = 12  # pieces of a batch over which sums are taken, the same for 1, 2, 3, 4, 6 and 12 ranks


class Projector(Protocol):
    """Solves ``K_ZZ t = h`` over columns sharded like the model."""

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of the solution from its part of `h`."""
        ...


@dataclass(frozen=True)
class EigenProSetup:
    """What a rank needs beside its columns.

    Attributes
    ----------
    state : EigenProState
    part : EigenProPart
        Its rows of the preconditioner.
    damped : (p_r, q) array, or (s_r, q) with all rows as centres
        ``K(Z_r, S) V D``; with all rows as centres only the rows of S are needed.
    projector : Projector or None
        None when all rows are centres.
    window : int
        Batches T between projections.
    head_blocks : tuple of slices
        The blocks of the rank's members of S; see :class:`daskkern.basis.Columns`.
    local, rows : (p_r,) arrays of int or None
        With all rows as centres: the rank's columns in the order of their rows, and those rows, ascending.
    """

    state: EigenProState
    part: EigenProPart
    damped: Array
    projector: Projector | None
    window: int
    head_blocks: tuple[slice, ...]
    local: HostArray | None = None
    rows: HostArray | None = None


@dataclass(frozen=True)
class Temporary:
    """One stripe of each of the window's batches as temporary centres, with their coefficients."""

    points: Points
    coefficients: Array

    def join(self, later: "Temporary") -> "Temporary":
        """Return these centres followed by later ones of the same window."""
        xp = namespace_of(self.coefficients)
        joined = self.points.join(later.points)
        return Temporary(joined, xp.concatenate([self.coefficients, later.coefficients]))


@dataclass(frozen=True)
class Iterate:
    """With momentum: the last iterate (p_r, c), the model, and its values at the rank's members of S (s_r, c)."""

    a: Array
    at_S: Array


@dataclass(frozen=True)
class EigenProRun:
    """The state of a run on one rank.

    `a` (p_r, c) as of the last projection and `scale`, by which the ridge penalty shrank it since; `working` is that a
    plus what S gained since (both by column); `pending` h (p_r, c); `at_S` the model's values at the rank's members
    of S (s_r, c), kept for the ridge penalty; `temporary` the window's own centres. All rows as centres: only
    `working` and `at_S` are used; explicit features: only `working`, which is w. With momentum these are of the point
    that gradients are taken at, and `slow` is the model.
    """

    a: Array
    scale: float
    working: Array
    pending: Array
    at_S: Array
    temporary: tuple[Temporary, ...]
    in_window: int
    step: int
    average: TailAverage
    slow: Iterate | None = None


def push(after: EigenProRun, before: EigenProRun, gamma: float, compensation: float) -> EigenProRun:
    """Return the run whose next gradient is taken beyond the new iterate.

    A plain step is ``w' = u - eta P grad(u)``, so that ``eta_2 P grad(u)`` is a share of ``u - w'``.
    """
    slow = before.slow
    assert slow is not None
    back = (1 + gamma) / 2 * compensation
    beyond = (1 + gamma) * after.working - gamma * slow.a + back * (before.working - after.working)
    at_S = (1 + gamma) * after.at_S - gamma * slow.at_S + back * (before.at_S - after.at_S)
    return replace(after, a=beyond, working=beyond, at_S=at_S, slow=Iterate(after.working, after.at_S))


def step_all_rows(
    problem: Problem, setup: EigenProSetup, state: EigenProRun, batch: Batch, eta: float, comm: Communicator
) -> tuple[EigenProRun, float]:
    xp = namespace_of(state.working)
    m, n_head = batch.size, problem.part.columns.n_head
    if batch.phi is not None:
        head = batch.phi[:, :n_head]
        partial = multiply_blocks(batch.phi, state.working, problem.part.columns.blocks, xp)
    else:
        head = xp.empty((m, n_head), problem.dtype)
        partial = problem.part.scores(batch.X, state.working, head)
    loss, g = loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    shrink = 1 - eta * problem.alpha
    residual = multiply_transposed(head, g, xp) * (1 / m) + problem.alpha * state.at_S  # u, own rows of S
    projected = comm.allreduce(setup.part.project(residual, setup.head_blocks)).astype(problem.dtype)  # r
    working = state.working * shrink if problem.alpha else state.working.copy()
    here, rows = (xp.asarray(numbers) for numbers in _own_rows(setup, batch))
    working[here] -= (eta / m) * g[rows]  # the rows of a batch are distinct
    working[:n_head] += eta * setup.part.apply(projected)
    at_S = state.at_S - eta * (residual - setup.damped @ projected) if problem.alpha else state.at_S
    return replace(state, working=working, at_S=at_S, step=state.step + 1), loss


def _own_rows(setup: EigenProSetup, batch: Batch) -> tuple[HostArray, HostArray]:
    """Return local columns and batch rows of the batch's rows that this rank holds as centres."""
    if setup.local is None or setup.rows is None:
        raise SpecError("all rows are centres, but the rank has no table of its rows")
    at = np.minimum(np.searchsorted(setup.rows, batch.positions), max(setup.rows.size - 1, 0))
    here = setup.rows[at] == batch.positions if setup.rows.size else np.zeros(batch.size, bool)
    found = here.nonzero()[0]
    return setup.local[at[found]], found


def step_window(
    problem: Problem, setup: EigenProSetup, state: EigenProRun, batch: Batch, eta: float, comm: Communicator
) -> tuple[EigenProRun, float]:
    xp = namespace_of(state.working)
    m, n_head = batch.size, problem.part.columns.n_head
    rows = batch.X if batch.X is None else problem.part.kernel.left(batch.X, problem.part.points)
    phi = problem.part.block(rows) if batch.phi is None else batch.phi
    partial = multiply_blocks(phi, state.working, problem.part.columns.blocks, xp)
    for stripe in state.temporary:
        partial += problem.part.kernel.matvec(rows, stripe.points, stripe.coefficients)
    loss, g = loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    shrink = 1 - eta * problem.alpha
    pulled = multiply_transposed(phi, g, xp) * (1 / m)  # K_ZB g / m
    residual = pulled[:n_head] + problem.alpha * state.at_S if problem.alpha else pulled[:n_head]
    projected = comm.allreduce(setup.part.project(residual, setup.head_blocks)).astype(problem.dtype)  # r
    working = state.working * shrink
    working[:n_head] += eta * setup.part.apply(projected)
    correction = setup.damped @ projected
    pending = state.pending * shrink + eta * (pulled - correction)
    at_S = state.at_S - eta * (residual - correction[:n_head]) if problem.alpha else state.at_S
    in_window = state.in_window + 1
    temporary = state.temporary
    if problem.alpha:
        temporary = tuple(Temporary(stripe.points, stripe.coefficients * shrink) for stripe in temporary)
    if not batch.last and in_window < setup.window:
        fresh = _stripes(problem, batch, g * (-eta / m), comm)
        temporary = tuple(a.join(b) for a, b in zip(temporary, fresh, strict=True)) if temporary else fresh
    run = EigenProRun(
        state.a,
        state.scale * shrink,
        working,
        pending,
        at_S,
        temporary,
        in_window,
        state.step + 1,
        state.average,
        state.slow,
    )
    return run, loss


def _stripes(problem: Problem, batch: Batch, coefficients: Array, comm: Communicator) -> tuple[Temporary, ...]:
    """Return this rank's stripes of the batch's rows as temporary centres: the same stripes for up to 12 ranks."""
    if batch.X is None:
        raise SpecError("a window of more than one batch needs the rows of its batches")
    count = max(_STRIPES, comm.size)
    edges = [batch.size * k // count for k in range(count + 1)]
    own = range(count * comm.rank // comm.size, count * (comm.rank + 1) // comm.size)
    parts = [slice(edges[k], edges[k + 1]) for k in own]
    like = problem.part.points
    fresh = (problem.part.kernel.points(batch.X[rows], like.shift, precision=like.precision) for rows in parts)
    return tuple(Temporary(points, coefficients[rows]) for points, rows in zip(fresh, parts, strict=True))


def project(projector: Projector, state: EigenProRun, comm: Communicator) -> EigenProRun:
    """End the window: put its gradient on the centres and drop the temporary ones."""
    a = state.a * state.scale - projector.solve(state.pending, comm)
    return replace(state, a=a, scale=1.0, working=a, pending=state.pending * 0, temporary=(), in_window=0)
