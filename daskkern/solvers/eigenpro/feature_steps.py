"""The step of EigenPro over explicit features: linear EigenPro and EigenPro with random features.

    r = (1/m) Phi_B^T g + alpha w ,      w <- w - eta (r - E diag(1 - (tau l_{k+1} / l_i)^rho) E^T r)

Every rank has its features' rows of w, r and E: in addition to the scores, one allreduce of (k, c) numbers a step.

References
----------
Ma and Belkin, "Diving into the shallows", NeurIPS 2017, algorithm 1.
"""

from dataclasses import dataclass

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.preconditioners import CovariancePart, CovarianceState
from daskkern.solvers.batch_loss import pending_loss_and_gradient
from daskkern.solvers.first_order.column_products import partial_scores, pull
from daskkern.solvers.problem import AnyProblem, Batch
from daskkern.solvers.setup import RankSetup


@dataclass(frozen=True)
class FeatureSetup(RankSetup):
    """The set-up of a rank in addition to its features: the state, and its rows of the preconditioner."""

    state: CovarianceState
    part: CovariancePart


def feature_direction(
    problem: AnyProblem, setup: FeatureSetup, w: Array, batch: Batch, comm: Communicator
) -> tuple[Array, float | Array]:
    """Return the rank's part (p_r, c) of the preconditioned gradient at `w`, and the summed loss there."""
    scores = comm.allreduce(partial_scores(problem, batch, w)).astype(problem.dtype)
    loss, g = pending_loss_and_gradient(problem, scores, batch)
    gradient = pull(problem, batch, g) * (1 / batch.size)
    if problem.alpha:
        gradient = gradient + problem.alpha * w
    shares = setup.part.project(gradient, problem.part.columns.blocks)
    projected = comm.allreduce(shares).astype(problem.dtype)
    return setup.part.apply(gradient, projected, problem.part.columns.blocks), loss
