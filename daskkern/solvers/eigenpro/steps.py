"""The steps of EigenPro over kernel columns, and the state that they change; see
:mod:`daskkern.solvers.eigenpro.solver`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.kernels.engines.block_products import add_multiple, multiply, multiply_blocks, multiply_transposed
from daskkern.preconditioners import EigenProPart, EigenProState
from daskkern.solvers.batch_loss import pending_loss_and_gradient
from daskkern.solvers.eigenpro.projectors import IterativeProjector, Projection
from daskkern.solvers.eigenpro.temporary import Temporary
from daskkern.solvers.groups import rows_of_all_groups, sum_over_groups
from daskkern.solvers.problem import AnyProblem, Batch
from daskkern.solvers.setup import RankSetup
from daskkern.solvers.tail_average import TailAverage


class Projector(Protocol):
    """Solves ``K_ZZ t = h`` over columns sharded like the model."""

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of the solution from its part of `h`."""
        ...


@dataclass(frozen=True)
class EigenProSetup(RankSetup):
    """The set-up of a rank in addition to its columns.

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
    owners : tuple of int
        The ranks of consecutive units of temporary centres, again and again; () is rank after rank.
    """

    state: EigenProState
    part: EigenProPart
    damped: Array
    projector: Projector | None
    window: int
    head_blocks: tuple[slice, ...]
    local: HostArray | None = None
    rows: HostArray | None = None
    owners: tuple[int, ...] = ()


@dataclass(frozen=True)
class MomentumIterate:
    """With momentum: the last iterate (p_r, c), the model, and its values at the rank's members of S (s_r, c)."""

    a: Array
    at_S: Array


@dataclass(frozen=True)
class Projected:
    """The projections of an epoch that iterate: how many, their iterations, and the largest of their residuals."""

    count: int = 0
    iterations: int = 0
    residual: float = 0.0

    def with_one(self, found: Projection) -> "Projected":
        """Return these and one more."""
        return Projected(self.count + 1, self.iterations + found.iterations, max(self.residual, found.residual))


@dataclass(frozen=True)
class EigenProRun:
    """The state of a run on one rank.

    `a` (p_r, c) as of the last projection and `scale`, by which the ridge penalty shrank it since; `working` is that a
    plus what S gained since (both by column); `pending` h (p_r, c); `at_S` the model's values at the rank's members
    of S (s_r, c), kept for the ridge penalty; `temporary` the rank's centres of the window. All rows as centres: only
    `working` and `at_S` are used; explicit features: only `working`, which is w. With momentum these are of the point
    that gradients are taken at, and `slow` is the model. `projected` are the projections since the last epoch's end.
    """

    a: Array
    scale: float
    working: Array
    pending: Array
    at_S: Array
    temporary: Temporary
    in_window: int
    step: int
    average: TailAverage
    slow: MomentumIterate | None = None
    projected: Projected = Projected()


def push(after: EigenProRun, before: EigenProRun, gamma: float, compensation: float) -> EigenProRun:
    """Return the run whose next gradient is taken beyond the new iterate.

    A plain step is ``w' = u - eta P grad(u)``, so that ``eta_2 P grad(u)`` is a share of ``u - w'``.
    """
    slow = before.slow
    assert slow is not None
    back = (1 + gamma) / 2 * compensation
    beyond = (1 + gamma) * after.working - gamma * slow.a + back * (before.working - after.working)
    at_S = (1 + gamma) * after.at_S - gamma * slow.at_S + back * (before.at_S - after.at_S)
    return replace(after, a=beyond, working=beyond, at_S=at_S, slow=MomentumIterate(after.working, after.at_S))


def step_all_rows(
    problem: AnyProblem, setup: EigenProSetup, state: EigenProRun, batch: Batch, eta: float, comm: Communicator
) -> tuple[EigenProRun, float | Array]:
    xp = namespace_of(state.working)
    m, n_head = batch.size, problem.part.columns.n_head
    if batch.phi is not None:
        head = batch.phi[:, :n_head]
        partial = multiply_blocks(batch.phi, state.working, problem.part.columns.blocks, xp)
    else:
        head = xp.empty((batch.y.shape[0], n_head), problem.dtype)
        partial = problem.part.scores(batch.X, state.working, head)
    loss, g = pending_loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    shrink = 1 - eta * problem.alpha
    pulled = sum_over_groups(problem, multiply_transposed(head, g, xp, setup.head_blocks, 1 / m))
    residual = pulled + problem.alpha * state.at_S  # u, own rows of S
    projected = comm.allreduce(setup.part.project(residual, setup.head_blocks)).astype(problem.dtype)  # r
    working = state.working * shrink if problem.alpha else state.working.copy()
    here, rows = _own_rows(setup, batch)
    change = rows_of_all_groups(problem, g)
    change = change if rows.size == len(change) else change[xp.asarray(rows)]
    working[xp.asarray(here)] -= (eta / m) * change  # the rows of a batch are distinct
    setup.part.add_to(working[:n_head], projected, eta, setup.head_blocks)
    at_S = state.at_S
    if problem.alpha:
        at_S = at_S - eta * (residual - multiply(setup.damped, projected, xp, setup.head_blocks))
    return replace(state, working=working, at_S=at_S, step=state.step + 1), loss


def _own_rows(setup: EigenProSetup, batch: Batch) -> tuple[HostArray, HostArray]:
    """Return local columns and batch rows of the batch's rows that this rank holds as centres."""
    if setup.local is None or setup.rows is None:
        raise SpecError("all rows are centres, but the rank has no table of its rows")
    positions = batch.all_positions
    at = np.minimum(np.searchsorted(setup.rows, positions), max(setup.rows.size - 1, 0))
    here = setup.rows[at] == positions if setup.rows.size else np.zeros(batch.size, bool)
    found = here.nonzero()[0]
    return setup.local[at[found]], found


def step_window(
    problem: AnyProblem, setup: EigenProSetup, state: EigenProRun, batch: Batch, eta: float, comm: Communicator
) -> tuple[EigenProRun, float | Array]:
    xp = namespace_of(state.working)
    m, n_head = batch.size, problem.part.columns.n_head
    rows = batch.left
    if rows is None and batch.X is not None:
        rows = problem.part.kernel.left(batch.X, problem.part.points)
    phi = problem.part.block(rows) if batch.phi is None else batch.phi
    partial = multiply_blocks(phi, state.working, problem.part.columns.blocks, xp)
    partial = state.temporary.add_scores(partial, problem.part.kernel, rows)
    loss, g = pending_loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    shrink = 1 - eta * problem.alpha
    own_blocks = problem.part.columns.blocks
    # K_ZB g / m; where there is something to send, of S first: its sum is under way while the rest is computed.
    unit = 1.0 if xp is np else eta  # of gradients: sums are then updated without a product
    first = n_head if comm.size > 1 and xp is np and problem.groups is None else phi.shape[1]
    pulled = multiply_transposed(
        phi[:, :first], g, xp, own_blocks[: len(own_blocks) - len(_after(own_blocks, first))], unit / m
    )
    pulled = sum_over_groups(problem, pulled)
    residual = pulled[:n_head] + problem.alpha * unit * state.at_S if problem.alpha else pulled[:n_head]
    finish = comm.begin_allreduce(setup.part.project(residual, setup.head_blocks))
    if first < phi.shape[1]:
        rest = multiply_transposed(phi[:, first:], g, xp, _after(own_blocks, first), unit / m)
        pulled = xp.concatenate([pulled, rest])
    projected = finish().astype(problem.dtype)  # r
    working = state.working * shrink
    setup.part.add_to(working[:n_head], projected, eta / unit, setup.head_blocks)
    at_S = state.at_S
    if xp is np:
        correction = multiply(setup.damped, projected, xp, own_blocks)
        pending = state.pending * shrink + eta * (pulled - correction)
        if problem.alpha:
            at_S = at_S - eta * (residual - correction[:n_head])
    else:  # fewer launches, and other roundings
        pending = state.pending * shrink if problem.alpha else state.pending
        pending = pending + pulled
        add_multiple(pending, -1.0, setup.damped, projected, xp)
        if problem.alpha:
            at_S = at_S - residual
            add_multiple(at_S, 1.0, setup.damped[:n_head], projected, xp)
    in_window = state.in_window + 1
    temporary = state.temporary
    if problem.alpha:
        temporary = temporary.shrunk(shrink)
    if not batch.last and in_window < setup.window:
        owners = setup.owners or tuple(range(comm.size))
        coefficients = rows_of_all_groups(problem, g * (-eta / m))
        temporary = temporary.with_batch(problem, batch, coefficients, owners, comm.rank, setup.window)
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
        state.projected,
    )
    return run, loss


def _after(blocks: Sequence[slice], edge: int) -> list[slice]:
    """Return the blocks from `edge` on, counted from there."""
    return [slice(block.start - edge, block.stop - edge) for block in blocks if block.start >= edge]


def project(projector: Projector, state: EigenProRun, comm: Communicator) -> EigenProRun:
    """End the window: put its gradient on the centres and drop the temporary ones."""
    if isinstance(projector, IterativeProjector):
        found = projector.iterate(state.pending, comm)
    else:
        found = Projection(projector.solve(state.pending, comm), 0, 0.0)
    a = state.a * state.scale - found.t
    run = replace(state, a=a, scale=1.0, working=a, pending=state.pending * 0, temporary=Temporary(), in_window=0)
    return replace(run, projected=state.projected.with_one(found))
