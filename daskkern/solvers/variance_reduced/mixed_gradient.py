"""Epoch mixed gradient descent: variance-reduced steps within a ball, whose mean begins the next epoch.

    g = F'(w~) + f_B'(w) - f_B'(w~)                              a full gradient mixed with those of a batch
    w <- P( w - eta g ) ,   P onto the ball of radius Delta around w~
    w~ <- (1 / (T + 1)) sum_(t = 1)^(T + 1) w_t

with the batch's mean gradient in place of one row's, and the penalty in F and f. The ball holds the optimum. As printed
its radius falls by ``2^(1/2)`` in every epoch from one that is given; by default it is ``|F'(w~)| / alpha``, which
strong convexity proves to reach the optimum from any w~ and which falls as fast as the gradient does.

Distributed by columns: the sums of SVRG, and one more of a single number for the distance from w~.

References
----------
Zhang, Mahdavi and Jin, "Linear convergence with condition number independent access of full gradients", NeurIPS 2013,
algorithm 1 (EMGD).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.solvers.first_order.column_products import descend
from daskkern.solvers.first_order.row_memory import restored, squared_norm, zeros
from daskkern.solvers.problem import ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot
from daskkern.solvers.variance_reduced.full_gradients import FullGradientRun, FullGradients, InnerStep


@dataclass(frozen=True)
class MixedRun(FullGradientRun):
    """The state of a run: also the sum of the iterates of this epoch, their number, and the radius of its ball.

    `total` (p_r, c) is None before the first epoch's steps.
    """

    total: Array | None = None
    count: int = 0
    radius: float = 0.0


@dataclass(frozen=True)
class MixedGradient(FullGradients):
    """Epoch mixed gradient descent, for smooth losses over explicit features; linear convergence with ``alpha > 0``.

    Parameters
    ----------
    radius : "auto" or float
        The radius of the first epoch's ball, at least the norm of the optimum; each epoch's is shorter by
        ``2^(1/2)``. "auto" is ``|F'(w~)| / alpha`` in every epoch, and needs alpha above 0.

    Raises
    ------
    SpecError
        For a radius that is not positive, and for "auto" without a penalty, when the run begins.
    """

    name: ClassVar[str] = "mixed_gradient"
    bases: ClassVar[tuple[str, ...]] = ("random features", "nystrom features", "linear", "locally linear")

    radius: float | str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.radius, int | float) and not isinstance(self.radius, bool)
        if self.radius != "auto" and not (number and 0 < float(self.radius) < np.inf):
            raise SpecError(f"got radius={self.radius!r} for {self.name}; give a positive number, or 'auto'")

    def init(self, problem: ColumnProblem, comm: Communicator) -> MixedRun:
        del comm
        if self.radius == "auto" and not problem.alpha > 0:
            raise SpecError(
                f"got alpha=0 for solver {self.name} with radius='auto', which alpha bounds; give alpha above 0, or a "
                "radius"
            )
        return MixedRun(zeros(problem), zeros(problem), zeros(problem))

    def begun(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> MixedRun:
        assert isinstance(state, MixedRun)
        if self.radius == "auto":
            setup: ColumnSetup = problem.extra
            radius = state.norm * math.sqrt(setup.statistics.beta) / problem.alpha
        else:
            radius = float(self.radius) * 2 ** (-state.begun / 2)
        return replace(state, other=state.w, begun=state.begun + 1, total=state.w, count=1, radius=radius)

    def moved(self, problem: ColumnProblem, state: FullGradientRun, step: InnerStep) -> MixedRun:
        assert isinstance(state, MixedRun)
        assert state.total is not None
        shrunk = state.w * (1 - step.eta * problem.alpha) - state.gradient * step.eta
        away = descend(problem, step.batch, shrunk, step.difference * -step.eta) - state.other
        distance = math.sqrt(squared_norm(problem, away, step.comm))
        if distance > state.radius:
            away = away * (state.radius / distance)
        w = (state.other + away).astype(problem.dtype)
        total, count = state.total + w, state.count + 1
        if step.batch.last and state.sweep == self.inner:
            w = (total * (1 / count)).astype(problem.dtype)
        return replace(state, w=w, total=total, count=count)

    def snapshot(self, problem: ColumnProblem, state: FullGradientRun) -> Snapshot:
        assert isinstance(state, MixedRun)
        saved = super().snapshot(problem, state)
        ids = problem.part.columns.ids
        total = state.w if state.total is None else state.total
        shards = {**saved.shards, "total": Shard(ids, total)}
        return replace(saved, shards=shards, numbers={**saved.numbers, "count": state.count, "radius": state.radius})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> MixedRun:
        run, ids = super().restore(problem, saved), problem.part.columns.ids
        xp = namespace_of(run.w)
        total = restored(saved.rows("total", ids), xp.zeros_like(run.w))
        count, radius = int(saved.numbers["count"]), float(saved.numbers["radius"])
        return MixedRun(
            run.w, run.other, run.gradient, run.sweep, run.norm, run.excess, run.begun, run.left, total, count, radius
        )
