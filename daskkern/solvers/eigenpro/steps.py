"""The steps of EigenPro over kernel columns; see :mod:`daskkern.solvers.eigenpro.solver`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.kernels.engines.block_products import multiply, multiply_blocks, multiply_transposed
from daskkern.solvers.batch_loss import pending_loss_and_gradient
from daskkern.solvers.eigenpro.device_steps import StepNumbers, WindowIterate, step_on_device
from daskkern.solvers.eigenpro.projectors import IterativeProjector, Projection
from daskkern.solvers.eigenpro.state import EigenProRun, EigenProSetup, MomentumIterate, Projector
from daskkern.solvers.eigenpro.temporary_centres import Temporary
from daskkern.solvers.groups import rows_of_all_groups, sum_over_groups
from daskkern.solvers.problem import AnyProblem, Batch


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
    before = WindowIterate(state.working, state.pending, state.at_S)
    shrink = 1 - eta * problem.alpha
    if namespace_of(state.working) is np:
        after, g, loss = _step_on_host(problem, setup, before, state.temporary, batch, eta, comm)
        change = -eta / batch.size
    else:
        numbers = StepNumbers.of(eta, problem.alpha, batch.size)
        after, g, loss = step_on_device(problem, setup, before, state.temporary, batch, numbers, comm)
        change = -1.0
    in_window = state.in_window + 1
    temporary = state.temporary
    if problem.alpha:
        temporary = temporary.shrunk(shrink)
    if not batch.last and in_window < setup.window:
        owners = setup.owners or tuple(range(comm.size))
        coefficients = rows_of_all_groups(problem, g * change)
        temporary = temporary.with_batch(problem, batch, coefficients, owners, comm.rank, setup.window)
    run = EigenProRun(
        state.a,
        state.scale * shrink,
        after.working,
        after.pending,
        after.at_S,
        temporary,
        in_window,
        state.step + 1,
        state.average,
        state.slow,
        state.projected,
    )
    return run, loss


def _step_on_host(
    problem: AnyProblem,
    setup: EigenProSetup,
    before: WindowIterate,
    temporary: Temporary,
    batch: Batch,
    eta: float,
    comm: Communicator,
) -> tuple[WindowIterate, Array, float | Array]:
    """Return the iterate after a batch, g (m, c), and the sum of the losses before the step."""
    m, n_head, blocks = batch.size, problem.part.columns.n_head, problem.part.columns.blocks
    rows = batch.left
    if rows is None and batch.X is not None:
        rows = problem.part.kernel.left(batch.X, problem.part.points)
    phi = problem.part.block(rows) if batch.phi is None else batch.phi
    partial = multiply_blocks(phi, before.working, blocks, np)
    partial = temporary.add_scores(partial, problem.part.kernel, rows)
    loss, g = pending_loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    shrink = 1 - eta * problem.alpha
    # K_ZB g / m; where there is something to send, of S first: its sum is under way while the rest is computed.
    first = n_head if comm.size > 1 and problem.groups is None else phi.shape[1]
    pulled = multiply_transposed(phi[:, :first], g, np, blocks[: len(blocks) - len(_after(blocks, first))], 1 / m)
    pulled = sum_over_groups(problem, pulled)
    residual = pulled[:n_head] + problem.alpha * before.at_S if problem.alpha else pulled[:n_head]
    finish = comm.begin_allreduce(setup.part.project(residual, setup.head_blocks))
    if first < phi.shape[1]:
        rest = multiply_transposed(phi[:, first:], g, np, _after(blocks, first), 1 / m)
        pulled = np.concatenate([pulled, rest])
    projected = finish().astype(problem.dtype)  # r
    working = before.working * shrink
    setup.part.add_to(working[:n_head], projected, eta, setup.head_blocks)
    at_S = before.at_S
    correction = multiply(setup.damped, projected, np, blocks)
    pending = before.pending * shrink + eta * (pulled - correction)
    if problem.alpha:
        at_S = at_S - eta * (residual - correction[:n_head])
    return WindowIterate(working, pending, at_S), g, loss


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
