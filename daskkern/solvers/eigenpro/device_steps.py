"""The array operations of an EigenPro step over landmarks on a GPU, in as few launches as possible."""

from dataclasses import dataclass

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.kernels.engines.block_products import add_multiple, multiply_blocks, multiply_transposed
from daskkern.solvers.batch_loss import pending_loss_and_gradient
from daskkern.solvers.eigenpro.state import EigenProSetup
from daskkern.solvers.eigenpro.temporary_centres import Temporary
from daskkern.solvers.groups import sum_over_groups
from daskkern.solvers.problem import AnyProblem, Batch


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of a step, each a float or an array () on the GPU.

    Attributes
    ----------
    rate : float or array
        ``eta / m``.
    shrink : float or array
        ``1 - eta alpha``.
    pull : float or array
        ``eta alpha``.
    """

    rate: float | Array
    shrink: float | Array
    pull: float | Array

    @classmethod
    def of(cls, eta: float, alpha: float, m: int) -> "StepNumbers":
        """Return those of a step of length `eta` over `m` rows."""
        return cls(eta / m, 1 - eta * alpha, eta * alpha)


@dataclass(frozen=True)
class WindowIterate:
    """What a step changes; see :class:`daskkern.solvers.eigenpro.state.EigenProRun`.

    Attributes
    ----------
    working, pending : (p_r, c) arrays
    at_S : (s_r, c) array
    """

    working: Array
    pending: Array
    at_S: Array


def step_on_device(
    problem: AnyProblem,
    setup: EigenProSetup,
    before: WindowIterate,
    temporary: Temporary,
    batch: Batch,
    numbers: StepNumbers,
    comm: Communicator,
) -> tuple[WindowIterate, Array, float | Array]:
    """Return the iterate after a batch, ``eta g / m`` (m, c), and the sum of the losses before the step.

    Nothing waits for the GPU, and no argument is changed.
    """
    xp, alpha, columns = namespace_of(before.working), problem.alpha, problem.part.columns
    rows = batch.left
    if rows is None and (batch.phi is None or not temporary.is_empty):
        rows = problem.part.kernel.left(batch.X, problem.part.points)
    phi = problem.part.block(rows) if batch.phi is None else batch.phi
    partial = multiply_blocks(phi, before.working, columns.blocks, xp)
    partial = temporary.add_scores(partial, problem.part.kernel, rows)
    loss, gradient = pending_loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    g = gradient * numbers.rate
    pulled = sum_over_groups(problem, multiply_transposed(phi, g, xp, columns.blocks))  # eta K_ZB g / m
    residual = pulled[: columns.n_head]
    if alpha:
        residual = residual + numbers.pull * before.at_S
    projected = comm.allreduce(setup.part.project(residual, setup.head_blocks)).astype(problem.dtype)  # eta r
    working = before.working * numbers.shrink if alpha else before.working.copy()
    setup.part.add_to(working[: columns.n_head], projected, 1.0, setup.head_blocks)
    pending, at_S = before.pending * numbers.shrink if alpha else before.pending, before.at_S
    pending = pending + pulled
    add_multiple(pending, -1.0, setup.damped, projected, xp)
    if alpha:
        at_S = at_S - residual
        add_multiple(at_S, 1.0, setup.damped[: columns.n_head], projected, xp)
    return WindowIterate(working, pending, at_S), g, loss
