"""Stochastic gradient descent without a preconditioner.

    w <- (1 - eta_t alpha) w - (eta_t / m) Phi_B^T g

over explicit features, and with all rows as centres ``a <- (1 - eta_t alpha) a``, ``a_B <- a_B - (eta_t / m) g``, the
same step in the space of the kernel. The shrinkage is one number and the mean of the iterates is updated lazily, so
that a step costs what its batch changes: on sparse rows of a linear model, their entries.

Distributed by columns: one allreduce of (m, c) numbers a step.

References
----------
Robbins and Monro, Ann. Math. Statist. 1951; Polyak and Juditsky, SIAM J. Control Optim. 1992 (averaging);
Lacoste-Julien, Schmidt and Bach, 2012 (weighted averaging); Friedlander and Schmidt, "Hybrid deterministic-stochastic
methods for data fitting", SIAM J. Sci. Comput. 2012 (growing batches); Bottou, "Stochastic gradient descent tricks",
2012 (theta / (1 + theta alpha t), and w = scale * v). Nesterov, "Primal-dual subgradient methods for convex problems",
Math. Program. 2009, and Xiao, "Dual averaging methods for regularized stochastic learning", JMLR 2010 (averages of
gradients).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.losses import Smooth
from daskkern.solvers.base import Solver, smoothness_of
from daskkern.solvers.batch_loss import loss_and_gradient
from daskkern.solvers.first_order.column_products import changes, descend, partial_scores
from daskkern.solvers.first_order.iterate import Averaging, Iterate, check_averaging
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot

SCHEDULES = ("auto", "constant", "inverse_root", "inverse", "bottou", "dual_averaging")


@dataclass(frozen=True)
class SGDRun:
    """The state of a run.

    Attributes
    ----------
    iterate : Iterate
    batches : int
        Batches so far: with growing batches, more than steps.
    gradient : (p_r, c) array or None
        With growing batches, the sum of the gradients since the last step, in coefficients.
    rows : int
        The number of rows of that sum.
    excess : float
        Of these rows: see :class:`daskkern.solvers.Batch`.
    """

    iterate: Iterate
    batches: int = 0
    gradient: Array | None = None
    rows: int = 0
    excess: float = 0.0


@dataclass(frozen=True)
class SGD(Solver[SGDRun]):
    """Stochastic gradient descent.

    Parameters
    ----------
    schedule : str
        Of the step. "constant": the largest that is stable, from sampled rows. "inverse_root": that over
        ``(1 + t / T)^(1/2)`` after t steps, T of them in the first epoch. "inverse": ``theta / (alpha (t + 1))``, no
        longer than "constant". "bottou": ``theta / (1 + theta alpha t)`` with the constant step as theta.
        "dual_averaging" averages gradients: after t steps ``w = -(alpha + (t^(1/2) eta)^-1)^-1`` times the mean of all
        gradients of the loss so far, eta the constant step, so that each counts as much as any other. "auto": constant
        for smooth losses, inverse_root for others.
    theta : float
        Multiplies the step.
    averaging : float
        Share of the run, at its end, whose iterates are averaged: 1 averages all, 0 returns the last.
    average_weights : {"uniform", "linear"}
        Weights of the average: equal, or growing with the step.
    growth : float
        In each epoch, steps use this many times the rows of those of the previous epoch, in whole batches and at most
        all rows; 1 for constant batches. With a constant step and a smooth loss the error falls geometrically.
    """

    name: ClassVar[str] = "sgd"
    divides_batches: ClassVar[bool] = True
    bases: ClassVar[tuple[str, ...]] = ("all rows", "random features", "nystrom features", "linear", "locally linear")
    # From a few rows on steps no longer grow, where one large eigenvalue dominates. More rows take hardly more time and
    # leave far less noise: adult, 20 epochs with 64 rows 15.3% in 14 s, one epoch with 2 rows 40% in 30 s.
    auto_batch: ClassVar[int | None] = 64

    schedule: str = "auto"
    theta: float = 1.0
    averaging: float = 1 / 3
    average_weights: str = "uniform"
    growth: float = 1.0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise SpecError(f"got schedule={self.schedule!r} for SGD; choose one of {', '.join(SCHEDULES)}")
        if not self.theta > 0:
            raise SpecError(f"got theta={self.theta!r} for SGD; give a positive number")
        if not 1 <= self.growth < np.inf:
            raise SpecError(f"got growth={self.growth!r} for SGD; give a number of at least 1")
        check_averaging(self.averaging, self.average_weights, "SGD")

    def init(self, problem: ColumnProblem, comm: Communicator) -> SGDRun:
        del comm
        if self.schedule == "inverse" and not problem.alpha > 0:
            raise SpecError("got alpha=0 for schedule='inverse' of SGD, with steps 1 / (alpha t); give alpha > 0")
        steps = sum(self.steps_of(problem, epoch) for epoch in range(problem.max_epochs))
        averaging = Averaging.of_share(self.averaging, self.average_weights, steps, problem.averaged_from)
        return SGDRun(Iterate.zero(problem, averaging))

    def span(self, epoch: int) -> int:
        """Return how many batches make a step of epoch number `epoch`, from 0, except for the epoch's last step."""
        return int(min(self.growth**epoch, 2.0**31)) if epoch * np.log2(self.growth) < 31 else 2**31

    def steps_of(self, problem: ColumnProblem, epoch: int) -> int:
        """Return the steps of epoch number `epoch`, from 0."""
        return -(-problem.batches_per_epoch // self.span(epoch))

    def step(self, problem: ColumnProblem, state: SGDRun, batch: Batch, comm: Communicator) -> tuple[SGDRun, float]:
        run = state.iterate
        scores = comm.allreduce(partial_scores(problem, batch, run.v)) * run.scale
        loss, g = loss_and_gradient(problem, scores.astype(problem.dtype), batch)
        epoch, number = divmod(state.batches, problem.batches_per_epoch)
        span, batches = self.span(epoch), state.batches + 1
        if span == 1:
            kept, eta = self.factors(problem, batch.size, run.step, batch.excess)
            run = run.shrink(kept).add(*changes(problem, batch, g * (-eta / batch.size))).passed()
            return SGDRun(run.fold() if batch.last else run, batches), loss
        gradient = run.v * 0 if state.gradient is None else state.gradient
        gradient, rows = descend(problem, batch, gradient, g), state.rows + batch.size
        excess = state.excess + batch.excess
        if (number + 1) % span and not batch.last:
            return SGDRun(run, batches, gradient, rows, excess), loss
        kept, eta = self.factors(problem, rows, run.step, excess)
        run = run.shrink(kept).add(slice(None), gradient * (-eta / rows)).passed()
        return SGDRun(run.fold() if batch.last else run, batches), loss

    def factors(self, problem: ColumnProblem, m: int, t: int, excess: float) -> tuple[float, float]:
        """Return the factor of the coefficients in the step after t steps, and that of the mean gradient of m rows."""
        eta = self.step_size(problem, m, t, excess)
        if self.schedule != "dual_averaging":
            return 1 - eta * problem.alpha, eta
        # Earlier gradients get the factor of this step, in place of that of the one before.
        return self.step_size(problem, m, t) / self.step_size(problem, m, t - 1) if t else 1.0, eta

    def step_size(self, problem: ColumnProblem, m: int, t: int, excess: float = 0.0) -> float:
        """Return the step after `t` others for `m` rows with this excess."""
        scheduled = self._scheduled(problem, m, t)
        if not excess:
            return scheduled
        setup: ColumnSetup = problem.extra
        allowed = setup.statistics.step_size(m, smoothness_of(problem.loss), problem.alpha, excess)
        return min(scheduled, self.theta * allowed)

    def _scheduled(self, problem: ColumnProblem, m: int, t: int) -> float:
        setup: ColumnSetup = problem.extra
        smoothness, alpha = smoothness_of(problem.loss), problem.alpha
        longest = self.theta * setup.statistics.step_size(m, smoothness, alpha)
        schedule = self.schedule
        if schedule == "auto":
            schedule = "constant" if isinstance(problem.loss, Smooth) else "inverse_root"
        if schedule == "inverse_root":
            return longest * (1 + t / problem.batches_per_epoch) ** -0.5
        if schedule == "inverse":
            return min(longest, self.theta / (alpha * (t + 1)))
        if schedule == "dual_averaging":
            return 1 / (alpha * (t + 1) + (t + 1) ** 0.5 / longest)
        if schedule == "bottou":
            return longest / (1 + longest * alpha * t)
        return longest

    def finish(self, problem: ColumnProblem, state: SGDRun, comm: Communicator) -> Array:
        del problem, comm
        return state.iterate.mean()

    def snapshot(self, problem: ColumnProblem, state: SGDRun) -> Snapshot:
        ids = problem.part.columns.ids
        shards = state.iterate.shards(ids)
        if state.gradient is not None:
            shards["gradient"] = Shard(ids, state.gradient)
        return Snapshot(shards, numbers={**state.iterate.numbers(), **_counts(state)})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> SGDRun:
        fresh = self.init(problem, SerialCommunicator())
        xp, ids = namespace_of(fresh.iterate.v), problem.part.columns.ids
        state = SGDRun(fresh.iterate.restored(saved, ids, xp), int(saved.numbers["batches"]))
        if "gradient" not in saved.shards:
            return state
        rows, excess = int(saved.numbers["rows"]), float(saved.numbers.get("excess", 0.0))
        return replace(state, gradient=xp.asarray(saved.rows("gradient", ids)), rows=rows, excess=excess)


def _counts(state: SGDRun) -> dict[str, float]:
    return {"batches": state.batches, "rows": state.rows, "excess": state.excess}
