"""The steps of Nystrom-SGD: on kernel blocks, or on stored eigenfeatures."""

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.reductions import sum_products
from daskkern.backend.tiles import multiply, multiply_transposed
from daskkern.errors import SpecError
from daskkern.kernels.engines.block_products import multiply_blocks, multiply_transposed_blocks
from daskkern.solvers.base import smoothness_of
from daskkern.solvers.batch_loss import pending_loss_and_gradient
from daskkern.solvers.groups import sum_over_groups
from daskkern.solvers.nystrom_sgd.setup import NystromSetup
from daskkern.solvers.nystrom_sgd.state import NystromRun
from daskkern.solvers.problem import Batch, Problem


def streamed_step(
    problem: Problem[NystromSetup],
    setup: NystromSetup,
    state: NystromRun,
    batch: Batch,
    eta: float,
    comm: Communicator,
    checked: bool,
) -> tuple[Array, Array, float | Array]:
    xp = namespace_of(state.A)
    phi = problem.part.block(batch.X) if batch.phi is None else batch.phi
    blocks = problem.part.columns.blocks
    scores = comm.allreduce(multiply_blocks(phi, state.A, blocks, xp)).astype(problem.dtype)
    loss, g = pending_loss_and_gradient(problem, scores, batch)
    pulled = sum_over_groups(problem, multiply_transposed(phi, g, xp))
    u = comm.allreduce(multiply_transposed_blocks(setup.part.M, pulled, blocks, xp)).astype(problem.dtype)
    u = _penalised(problem, batch, u, state.w)
    change = setup.part.preconditioner * u
    moved = multiply(setup.part.M, change, xp)
    length: float | Array = eta / batch.size
    if checked:
        ahead = comm.allreduce(multiply_blocks(phi, moved, blocks, xp))
        penalty = sum_products(change, change, problem.alpha * batch.size) if problem.alpha else 0.0
        length = _safe_length(problem, batch, length, ahead, sum_products(u, change), penalty)
    return state.w - change * length, state.A - moved * length, loss


def stored_step(
    problem: Problem[NystromSetup],
    setup: NystromSetup,
    state: NystromRun,
    batch: Batch,
    eta: float,
    comm: Communicator,
    checked: bool,
) -> tuple[Array, Array, float | Array]:
    """As streamed, on this rank's columns of psi, which the trainer hands over as `phi`."""
    if batch.phi is None or setup.features is None:
        raise SpecError("stored Nystrom-SGD needs the eigenfeatures of its batches")
    xp = namespace_of(state.w)
    scores = comm.allreduce(multiply_blocks(batch.phi, state.w, setup.blocks, xp)).astype(problem.dtype)
    loss, g = pending_loss_and_gradient(problem, scores, batch)
    u = _penalised(problem, batch, sum_over_groups(problem, multiply_transposed(batch.phi, g, xp)), state.w)
    change = setup.part.preconditioner[setup.features] * u
    length: float | Array = eta / batch.size
    if checked:
        own = xp.stack([(u * change).sum(axis=0), (change * change).sum(axis=0)])
        whole = comm.allreduce(xp.concatenate([multiply_blocks(batch.phi, change, setup.blocks, xp), own]))
        penalty = (problem.alpha * batch.size) * whole[-1].sum()
        length = _safe_length(problem, batch, length, whole[:-2], whole[-2].sum(), penalty)
    return state.w - change * length, state.A, loss


def _penalised(problem: Problem[NystromSetup], batch: Batch, pulled: Array, w: Array) -> Array:
    """Return the gradient of the batch's objective by w, times the rows of the batch: `pulled` is that of the loss."""
    return pulled + (problem.alpha * batch.size) * w if problem.alpha else pulled


def _safe_length(
    problem: Problem[NystromSetup], batch: Batch, length: float, moved: Array, descent: Array, penalty: float | Array
) -> Array:
    """Return by what the change of a step is multiplied: `length`, or less where that would raise the batch's loss.

    m times the batch's objective falls by at least ``t descent - t^2 / 2 Q`` with a length t, where
    ``Q = L sum_i w_i |moved_i|^2 + penalty``. Where ``descent < length Q / 2`` it could rise with `length`, and
    ``t = descent / Q`` is what surely lowers it most.

    Parameters
    ----------
    moved : (m, c) array
        What the change takes from the scores of the batch.
    descent, penalty : arrays without dimensions
        ``sum u change``, u being m times the gradient, and ``alpha m |change|^2``, 0 without a penalty.
    """
    xp = namespace_of(moved)
    weighted = moved if batch.weight is None else moved * batch.weight.astype(moved.dtype, copy=False)
    curvature = sum_over_groups(problem, sum_products(weighted, moved, smoothness_of(problem.loss)).reshape(1))[0, ...]
    if problem.alpha:
        curvature = curvature + penalty
    safe = descent / xp.maximum(curvature, np.finfo(np.float64).tiny)
    return xp.where(safe < length / 2, safe, length).astype(problem.dtype)
