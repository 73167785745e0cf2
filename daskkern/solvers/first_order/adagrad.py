"""AdaGrad: a separate step size for every coefficient, with an optional L1 penalty for sparse models.

Over explicit features, with g the gradient of a batch and of the ridge penalty in the coefficients,

    G_j <- G_j + g_j^2 ,   h_j = theta eta r / (G_j)^(1/2) ,   w_j <- soft(w_j - h_j g_j, h_j l1) ,

``soft(x, t) = sign(x) max(|x| - t, 0)``. It minimises ``(1/n) sum w loss + (alpha/2) |w|^2 + l1 sum_j |w_j|``. Features
that are seldom nonzero keep long steps, and steps shrink like 1 / t^(1/2). eta is the constant step of SGD
(:mod:`daskkern.solvers.first_order.sgd`) and r the root mean square of the first gradient where it is not 0, so that
the first change is as long as SGD's whatever the scale of features and targets.

Distributed by columns: one allreduce of (m, c) numbers a step, and one number once.

References
----------
Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", JMLR 2011,
diagonal matrices with composite mirror descent, section 5.1. Where we differ: the scale of the steps, as above.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.solvers.base import Solver, smoothness_of
from daskkern.solvers.batch_loss import loss_and_gradient
from daskkern.solvers.first_order.column_products import partial_scores, pull
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot
from daskkern.solvers.tail_average import TailAverage

_NEVER = 2**53


@dataclass(frozen=True)
class AdaGradRun:
    """The state of a run.

    Attributes
    ----------
    w, squares : (p_r, c) arrays
        Coefficients, and G, the sums of their squared gradients.
    average : TailAverage
    length : float
        ``theta eta r``; 0 before the first gradient that is not 0.
    steps : int
        Steps so far.
    """

    w: Array
    squares: Array
    average: TailAverage
    length: float = 0.0
    steps: int = 0


@dataclass(frozen=True)
class AdaGrad(Solver[AdaGradRun]):
    """AdaGrad over explicit features.

    Parameters
    ----------
    theta : float
        Multiplies the steps.
    l1 : float
        Penalty on the absolute values of all coefficients, that of a constant feature included: many become exactly 0.
    averaging : float
        Share of the run, at its end, whose iterates are averaged; 0 returns the last, which has more zeros.
    """

    name: ClassVar[str] = "adagrad"
    divides_batches: ClassVar[bool] = True
    bases: ClassVar[tuple[str, ...]] = ("random features", "nystrom features", "linear", "locally linear")
    auto_batch: ClassVar[int | None] = 64

    theta: float = 1.0
    l1: float = 0.0
    averaging: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.theta < np.inf:
            raise SpecError(f"got theta={self.theta!r} for AdaGrad; give a positive number")
        if not 0 <= self.l1 < np.inf:
            raise SpecError(f"got l1={self.l1!r} for AdaGrad; give a penalty of 0 or more")
        if not 0 <= self.averaging <= 1:
            raise SpecError(f"got averaging={self.averaging!r} for AdaGrad; give a share between 0 and 1")

    @property
    def l1_penalty(self) -> float:
        return self.l1

    def init(self, problem: ColumnProblem, comm: Communicator) -> AdaGradRun:
        del comm
        zero = problem.part.namespace.zeros((problem.part.columns.ids.size, problem.n_outputs), problem.dtype)
        start = max(problem.averaging_start(self.averaging), 1) if self.averaging else _NEVER
        return AdaGradRun(zero, zero, TailAverage(start))

    def step(
        self, problem: ColumnProblem, state: AdaGradRun, batch: Batch, comm: Communicator
    ) -> tuple[AdaGradRun, float]:
        scores = comm.allreduce(partial_scores(problem, batch, state.w))
        loss, slope = loss_and_gradient(problem, scores.astype(problem.dtype), batch)
        setup: ColumnSetup = problem.extra
        # Unusually large rows of one batch would shorten all later steps, too.
        share = setup.statistics.share(batch.size, smoothness_of(problem.loss), problem.alpha, batch.excess)
        g = pull(problem, batch, slope) * (share / batch.size)
        if problem.alpha:
            g += float(problem.alpha) * state.w
        length = state.length or self._length(problem, batch, g, comm)
        squares, steps = g * g, state.steps + 1
        squares += state.squares
        xp = namespace_of(g)
        h = xp.sqrt(squares)  # in place from here on: a wide model is as large as a rank's memory allows
        h[h == 0] = np.inf
        xp.divide(length, h, out=h)
        g *= h
        w = state.w - g
        if self.l1:
            h *= float(self.l1)
            size = xp.abs(w)
            size -= h
            w = xp.where(w < 0, -1, 1).astype(problem.dtype) * xp.maximum(size, 0)
        return AdaGradRun(w, squares, state.average.add(steps, w), length, steps), loss

    def _length(self, problem: ColumnProblem, batch: Batch, g: Array, comm: Communicator) -> float:
        """Return ``theta eta r`` for the first gradient that is not 0, the same on every rank."""
        setup: ColumnSetup = problem.extra
        xp = namespace_of(g)
        own = [float((g.astype(np.float64) ** 2).sum()), float((g != 0).sum())]
        square, count = (float(total) for total in comm.allreduce(xp.asarray(own)))
        eta = setup.statistics.step_size(batch.size, smoothness_of(problem.loss), problem.alpha)
        return float(self.theta * eta * np.sqrt(square / count)) if count else 0.0

    def finish(self, problem: ColumnProblem, state: AdaGradRun, comm: Communicator) -> Array:
        del problem, comm
        return state.average.value(state.w)

    def snapshot(self, problem: ColumnProblem, state: AdaGradRun) -> Snapshot:
        ids = problem.part.columns.ids
        shards = {"w": Shard(ids, state.w), "squares": Shard(ids, state.squares), **state.average.shards(ids)}
        return Snapshot(shards, numbers={"length": state.length, "steps": state.steps, **state.average.numbers()})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> AdaGradRun:
        fresh = self.init(problem, SerialCommunicator())
        xp, ids = namespace_of(fresh.w), problem.part.columns.ids
        w, squares = (xp.asarray(saved.rows(name, ids)) for name in ("w", "squares"))
        average = fresh.average.restored(saved, ids, xp)
        return replace(
            fresh, w=w, squares=squares, average=average, length=float(saved.numbers["length"]),
            steps=int(saved.numbers["steps"]),
        )  # fmt: skip
