"""SVRG whose steps are preconditioned by the leading eigendirections of the features' covariance.

    w <- w - eta P (mu + (1/m) Phi_B^T (g_B(w) - g_B(w~)) + alpha w) ,   P = I - E diag(1 - l_{k+1} / l_i) E^T

The eigenpairs are those of a subsample, as in EigenPro over explicit features, in place of the sketch of the paper: P
takes from the condition of the problem what the first k eigenvalues are above the next one, and the noise of the steps
vanishes near the optimum, as in SVRG. In addition to SVRG, one allreduce of (k, c) numbers a step.

References
----------
Gonen, Orabona and Shalev-Shwartz, "Solving ridge regression using sketched preconditioned SVRG", ICML 2016, algorithm 1
(which multiplies with ``(H_k + (l_{k+1} + alpha) (I - E E^T))^(-1)``: P, but for a factor, where alpha is small).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.errors import SpecError
from daskkern.events import SpectrumFound
from daskkern.losses import Loss
from daskkern.preconditioners import CovariancePart, CovarianceState, StableSteps, StepStatistics
from daskkern.solvers.base import is_whole, smoothness_of
from daskkern.solvers.eigenpro.spectrum import covariance_rows, found, most_directions
from daskkern.solvers.first_order.column_products import pull
from daskkern.solvers.preparation import SpectrumRequest
from daskkern.solvers.problem import ColumnProblem
from daskkern.solvers.setup import ColumnSetup, RankInputs, RowShare
from daskkern.solvers.variance_reduced.full_gradients import FullGradientRun, InnerStep
from daskkern.solvers.variance_reduced.svrg import SVRG


@dataclass(frozen=True)
class PreconditionedSetup(ColumnSetup):
    """The set-up of a rank, whose statistics are those of preconditioned rows, and its part of the preconditioner."""

    part: CovariancePart


@dataclass(frozen=True)
class PreconditionedSVRG(SVRG):
    """SVRG with EigenPro's preconditioner, over explicit features and for smooth losses.

    Parameters
    ----------
    n_directions : int or "auto"
        Damped directions; "auto" is at most 160, and 0 is SVRG.
    subsample : int or "auto"
        Rows that their covariance is taken of; "auto" is 4,800, at most 4 in 5 of the rows.
    """

    name: ClassVar[str] = "preconditioned_svrg"
    bases: ClassVar[tuple[str, ...]] = ("random features", "nystrom features", "linear", "locally linear")
    preparation: ClassVar[str] = "spectrum"

    n_directions: int | str = "auto"
    subsample: int | str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("n_directions", 0), ("subsample", 1)):
            value = getattr(self, name)
            if value != "auto" and not is_whole(value, least):
                raise SpecError(f"got {name}={value!r} for {self.name}; expected {least} or more, or 'auto'")

    def spectrum(self, p: int, n: int, explicit: bool) -> SpectrumRequest:
        s = covariance_rows(self.subsample, n)
        directions = None if self.n_directions == "auto" else int(self.n_directions)
        return SpectrumRequest(s, most_directions(self.n_directions, p, s, explicit), directions, 1.0, 1.0)

    def spectrum_found(
        self, state: StableSteps, n: int, explicit: bool, batch: int, loss: Loss, alpha: float
    ) -> SpectrumFound | None:
        assert isinstance(state, CovarianceState)
        step = self.theta * state.step_size(batch, smoothness_of(loss), alpha)
        return found(state, covariance_rows(self.subsample, n), batch, step)

    def rank_setup(self, inputs: RankInputs) -> ColumnSetup:
        state, comm, n = inputs.state, inputs.comm, inputs.n_rows
        assert isinstance(state, CovarianceState)
        sizes = StepStatistics(state.beta, state.beta, state.top)
        part = state.part(inputs.columns.ids, inputs.dtype, inputs.xp)
        rows = RowShare.equal(n, comm.rank, comm.size)
        return PreconditionedSetup(n, sizes, rows, False, inputs.seed, part)

    def moved(self, problem: ColumnProblem, state: FullGradientRun, step: InnerStep) -> FullGradientRun:
        if not state.left:
            return state
        setup, blocks = problem.extra, problem.part.columns.blocks
        assert isinstance(setup, PreconditionedSetup)
        direction = state.gradient + problem.alpha * state.w + pull(problem, step.batch, step.difference)
        projected = step.comm.allreduce(setup.part.project(direction, blocks)).astype(problem.dtype)
        w = state.w - step.eta * setup.part.apply(direction, projected, blocks)
        return replace(state, w=w, left=max(state.left - 1, -1))
