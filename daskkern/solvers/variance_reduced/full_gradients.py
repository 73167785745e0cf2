"""The base class of SVRG and SARAH: passes for the full gradient alternate with passes of steps.

Distributed by columns: one allreduce of (m, c) numbers a batch in the gradient's pass, of (m, 2 c) in the others.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.losses import Loss, Smooth
from daskkern.solvers.base import Solver, is_whole, smoothness_of
from daskkern.solvers.batch_loss import loss_and_gradient
from daskkern.solvers.first_order.column_products import descend, partial_scores
from daskkern.solvers.first_order.row_memory import restored, squared_norm, zeros
from daskkern.solvers.problem import Batch, Certificate, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot


@dataclass(frozen=True)
class FullGradientRun:
    """The state of a run.

    `w` (p_r, c) are the coefficients. `other` are those that gradients are compared with, and `gradient` the estimate
    there; the pass for the full gradient accumulates it. `sweep` passes of this epoch are finished. `norm` is that of
    the last full gradient, or -1. `excess` is the largest of a batch so far. `begun` epochs have had their full
    gradient, and `left` steps of this one still move `w`, -1 all.
    """

    w: Array
    other: Array
    gradient: Array
    sweep: int = 0
    norm: float = -1.0
    excess: float = 0.0
    begun: int = 0
    left: int = -1


@dataclass(frozen=True)
class InnerStep:
    """What a step of an inner pass is made from.

    `difference` (m, c) are the slopes of the batch's rows at `w` minus those at `other`, over m; `eta` is its length.
    """

    batch: Batch
    difference: Array
    eta: float
    comm: Communicator


@dataclass(frozen=True)
class FullGradients(Solver[FullGradientRun]):
    """Parameters of SVRG and SARAH.

    Parameters
    ----------
    inner : int
        Passes of steps after each pass for the full gradient: an epoch is ``inner + 1`` passes over the rows.
    theta : float
        Multiplies the step, ``m / (L (beta + (m - 1) top) + m alpha)`` for batches of m rows. The theory of both
        methods requires less than 1.
    tol : float
        The fit ends when a full gradient has a norm of at most `tol`, in units of the largest ``w^(1/2) |x|``: it is
        then a slope of the loss. 0 disables this.
    """

    bases: ClassVar[tuple[str, ...]] = ("all rows", "random features", "nystrom features", "linear", "locally linear")
    ability: ClassVar[tuple[type[Any], str] | None] = (Smooth, "a smooth gradient")
    auto_batch: ClassVar[int | None] = 32
    each_row_once: ClassVar[bool] = True
    divides_batches: ClassVar[bool] = True

    inner: int = 2
    theta: float = 0.5
    tol: float = 1e-5

    def __post_init__(self) -> None:
        if not is_whole(self.inner, 1):
            raise SpecError(f"got inner={self.inner!r} for {self.name}; give a whole number of at least 1")
        if not self.theta > 0:
            raise SpecError(f"got theta={self.theta!r} for {self.name}; give a positive number")
        if not self.tol >= 0:
            raise SpecError(f"got tol={self.tol!r} for {self.name}; give a number of 0 or more")

    @abstractmethod
    def begun(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> FullGradientRun:
        """Return the state before the first step, once ``gradient`` (without the penalty's) is that at `w`."""

    @abstractmethod
    def moved(self, problem: ColumnProblem, state: FullGradientRun, step: InnerStep) -> FullGradientRun:
        """Return the state after a step of an inner pass."""

    def sweeps(self, epoch: int, loss: Loss) -> int:
        del epoch, loss
        return self.inner + 1

    def init(self, problem: ColumnProblem, comm: Communicator) -> FullGradientRun:
        del comm
        return FullGradientRun(zeros(problem), zeros(problem), zeros(problem))

    def step(
        self, problem: ColumnProblem, state: FullGradientRun, batch: Batch, comm: Communicator
    ) -> tuple[FullGradientRun, float]:
        setup: ColumnSetup = problem.extra
        # A step along the full gradient affects the rows of every batch, so that all are as long as each allows.
        state = replace(state, excess=max(state.excess, batch.excess))
        smoothness = smoothness_of(problem.loss)
        eta = self.theta * setup.statistics.step_size(batch.size, smoothness, problem.alpha, state.excess)
        if state.sweep:
            run, loss = self._inner_step(problem, state, batch, eta, comm)
        else:
            run, loss = self._add(problem, state, batch, eta, comm)
        if batch.last:
            run = replace(run, sweep=(state.sweep + 1) % (self.inner + 1))
        return run, loss

    def _add(
        self, problem: ColumnProblem, state: FullGradientRun, batch: Batch, eta: float, comm: Communicator
    ) -> tuple[FullGradientRun, float]:
        """Add the batch's share of the full gradient; the model does not change."""
        setup: ColumnSetup = problem.extra
        scores = comm.allreduce(partial_scores(problem, batch, state.w)).astype(problem.dtype)
        loss, g = loss_and_gradient(problem, scores, batch)
        run = replace(state, gradient=descend(problem, batch, state.gradient, g * (1 / setup.n_rows)))
        if batch.last:
            square = squared_norm(problem, run.gradient + problem.alpha * run.w, comm)
            run = self.begun(problem, replace(run, norm=math.sqrt(square / setup.statistics.beta)), eta)
        return run, loss

    def _inner_step(
        self, problem: ColumnProblem, state: FullGradientRun, batch: Batch, eta: float, comm: Communicator
    ) -> tuple[FullGradientRun, float]:
        """Take a step."""
        xp, c = namespace_of(state.w), problem.n_outputs
        both = partial_scores(problem, batch, xp.concatenate([state.w, state.other], axis=1))
        scores = comm.allreduce(both).astype(problem.dtype)
        loss, here = loss_and_gradient(problem, scores[:, :c], batch)
        _, there = loss_and_gradient(problem, scores[:, c:], batch)
        run = self.moved(problem, state, InnerStep(batch, (here - there) * (1 / batch.size), eta, comm))
        if batch.last and state.sweep == self.inner:
            run = replace(run, gradient=zeros(problem))
        return run, loss

    def certificate(self, problem: ColumnProblem, state: FullGradientRun) -> Certificate | None:
        del problem
        return None if state.norm < 0 else Certificate("gradient where the epoch began", state.norm, self.tol)

    def finish(self, problem: ColumnProblem, state: FullGradientRun, comm: Communicator) -> Array:
        del problem, comm
        return state.w

    def snapshot(self, problem: ColumnProblem, state: FullGradientRun) -> Snapshot:
        ids = problem.part.columns.ids
        shards = {name: Shard(ids, getattr(state, name)) for name in ("w", "other", "gradient")}
        counts = {"begun": state.begun, "left": state.left}
        return Snapshot(shards, numbers={"sweep": state.sweep, "norm": state.norm, "excess": state.excess, **counts})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> FullGradientRun:
        fresh, ids = self.init(problem, SerialCommunicator()), problem.part.columns.ids
        w, other, gradient = (restored(saved.rows(name, ids), fresh.w) for name in ("w", "other", "gradient"))
        numbers = saved.numbers
        return FullGradientRun(
            w,
            other,
            gradient,
            int(numbers["sweep"]),
            numbers["norm"],
            float(numbers.get("excess", 0.0)),
            int(numbers.get("begun", 0)),
            int(numbers.get("left", -1)),  # what older versions saved lacks them
        )
