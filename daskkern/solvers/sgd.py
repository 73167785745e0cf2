"""Stochastic gradient descent without a preconditioner.

    w <- (1 - eta_t alpha) w - (eta_t / m) Phi_B^T g

over explicit features, and with all rows as centres ``a <- (1 - eta_t alpha) a``, ``a_B <- a_B - (eta_t / m) g``, the
same step in the space of the kernel. The shrinkage is one number, so that a step costs what its batch touches.

Distributed by columns: one allreduce of (m, c) numbers a step.

References
----------
Robbins and Monro, Ann. Math. Statist. 1951; Polyak and Juditsky, SIAM J. Control Optim. 1992 (averaging);
Shalev-Shwartz et al., "Pegasos", Math. Programming 2011 (the step 1 / (alpha t)); Bottou, "Stochastic gradient descent
tricks", 2012 (theta / (1 + theta alpha t), and w = scale * v).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.losses import Smooth
from daskkern.solvers.base import Batch, Problem, Solver, TailAverage, loss_and_gradient, smoothness_of
from daskkern.solvers.columns import ColumnSetup, descend, partial_scores
from daskkern.solvers.snapshot import Shard, Snapshot

SCHEDULES = ("auto", "constant", "inverse_root", "inverse", "bottou")
_LEAST_SCALE = 1e-6


@dataclass(frozen=True)
class SGDRun:
    """The state of a run: the rank's coefficients are ``scale * v`` (p_r, c)."""

    v: Array
    scale: float
    step: int
    average: TailAverage

    @property
    def w(self) -> Array:
        """The coefficients."""
        return self.v if self.scale == 1.0 else self.v * self.scale


@dataclass(frozen=True)
class SGD(Solver[SGDRun]):
    """Stochastic gradient descent.

    Parameters
    ----------
    schedule : str
        Of the step. "constant": the largest that is stable, from sampled rows. "inverse_root": that over
        ``(1 + t / batches)^(1/2)`` in batches t. "inverse": ``1 / (alpha (t + t0))``, no longer than "constant".
        "bottou": ``theta / (1 + theta alpha t)``. "auto": constant for smooth losses, inverse_root for others.
    theta : float
        Multiplies the step.
    averaging : float
        Share of the run, at its end, whose iterates are averaged.
    """

    name: ClassVar[str] = "sgd"
    bases: ClassVar[tuple[str, ...]] = ("all rows", "random features", "nystrom features", "linear")

    schedule: str = "auto"
    theta: float = 1.0
    averaging: float = 1 / 3

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise SpecError(f"schedule={self.schedule!r} was asked of SGD; choose one of {', '.join(SCHEDULES)}")
        if not self.theta > 0:
            raise SpecError(f"theta={self.theta!r} was asked of SGD; give a positive number")
        if not 0 <= self.averaging <= 1:
            raise SpecError(f"averaging={self.averaging!r} was asked; give a share between 0 and 1")

    def init(self, problem: Problem, comm: Communicator) -> SGDRun:
        del comm
        if self.schedule == "inverse" and not problem.alpha > 0:
            raise SpecError("SGD was asked with schedule='inverse', whose steps are 1 / (alpha t), and alpha=0")
        xp = problem.part.namespace
        start = round(problem.n_steps * (1 - self.averaging))
        v = xp.zeros((problem.part.columns.ids.size, problem.n_outputs), problem.dtype)
        return SGDRun(v, 1.0, 0, TailAverage(max(start, 1)))

    def step(self, problem: Problem, state: SGDRun, batch: Batch, comm: Communicator) -> tuple[SGDRun, float]:
        eta = self.step_size(problem, batch.size, state.step)
        scores = comm.allreduce(partial_scores(problem, batch, state.v)) * state.scale
        loss, g = loss_and_gradient(problem, scores.astype(problem.dtype), batch)
        scale = state.scale * (1 - eta * problem.alpha)
        v = state.v
        if scale < _LEAST_SCALE:
            v, scale = v * scale, 1.0
        v = descend(problem, batch, v, g * (-eta / batch.size / scale))
        step = state.step + 1
        run = SGDRun(v, scale, step, state.average)
        if step >= state.average.start:
            run = replace(run, average=state.average.add(step, run.w))
        return run, loss

    def step_size(self, problem: Problem, m: int, t: int) -> float:
        """Return the step after `t` others for a batch of `m` rows."""
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
        if schedule == "bottou":
            return longest / (1 + longest * alpha * t)
        return longest

    def finish(self, problem: Problem, state: SGDRun, comm: Communicator) -> Array:
        del problem, comm
        return state.average.value(state.w)

    def snapshot(self, problem: Problem, state: SGDRun) -> Snapshot:
        ids = problem.part.columns.ids
        shards = {"v": Shard(ids, state.v), **state.average.shards(ids)}
        return Snapshot(shards, numbers={"step": state.step, "scale": state.scale, **state.average.numbers()})

    def restore(self, problem: Problem, saved: Snapshot) -> SGDRun:
        fresh = self.init(problem, SerialCommunicator())
        xp, ids = namespace_of(fresh.v), problem.part.columns.ids
        average = fresh.average.restored(saved, ids, xp)
        return SGDRun(xp.asarray(saved.rows("v", ids)), saved.numbers["scale"], int(saved.numbers["step"]), average)
