"""Doubly stochastic functional gradients: random rows, and new random features at every step.

    f <- (1 - gamma_t alpha) f - (gamma_t / m) sum_i g_i phi_t(x_i)^T phi_t(.) ,      gamma_t = theta / (alpha (t0 + t))

over the batch of step t, phi_t its own block of random features: ``phi_t(x)^T phi_t(z)`` is an unbiased estimate of the
kernel, so that the gradient is one too. Only the coefficients of block t are new; the shrinkage of all others is one
number. The objective converges like 1 / t, and the model is not limited to features chosen beforehand.

Distributed by columns: one allreduce of (m, c) numbers a step. Coefficients that are still 0 cost nothing: step t uses
t blocks.

References
----------
Dai, Xie, He, Liang, Raj, Balcan and Song, "Scalable kernel methods via doubly stochastic gradients", NIPS 2014,
algorithms 1 and 2, theorems 4 and 5.

Where we differ: t0 keeps the first steps below ``1 / (L max k(x, x))``; the paper's ``theta / t`` overflows within 20
steps on real data.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Drawn
from daskkern.preconditioners import longest_step
from daskkern.solvers.base import Solver, smoothness_of
from daskkern.solvers.batch_loss import loss_and_gradient
from daskkern.solvers.first_order.column_products import needed_rows, partial_scores
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot

_LEAST_SCALE = 1e-6


@dataclass(frozen=True)
class DoublyRun:
    """The state of a run: the rank's coefficients are ``scale * v`` (p_r, c), 0 in the blocks of later steps."""

    v: Array
    scale: float
    step: int

    def shrunk(self, factor: float, least: float = _LEAST_SCALE) -> "DoublyRun":
        """Return a run whose coefficients are those of this one times `factor`, with a `v` of its own.

        A scale below `least` is multiplied into `v`, so that it never underflows.
        """
        scale = self.scale * factor
        if scale < least:
            return replace(self, v=self.v * scale, scale=1.0)
        return replace(self, v=self.v.copy(), scale=scale)


@dataclass(frozen=True)
class DoublySGD(Solver[DoublyRun]):
    """Doubly stochastic gradients, for every loss; alpha must be positive.

    Parameters
    ----------
    theta : float
        Steps are ``theta / (alpha (t0 + t))``: the paper's theta nu, nu being alpha. From 1 to 2, or a whole number
        above 2. Theorem 4, the rate 1 / t in expectation, needs a number between 1 and 2 or a positive whole number;
        theorem 5, that rate up to ``ln(t)^2 ln(t / delta)`` with high probability, a positive whole number.
    """

    name: ClassVar[str] = "doubly_sgd"
    bases: ClassVar[tuple[str, ...]] = ("doubly stochastic",)
    auto_batch: ClassVar[int | None] = 256
    needs_rows: ClassVar[bool] = True

    theta: float = 1.5

    def __post_init__(self) -> None:
        if not (1 <= self.theta <= 2 or (self.theta > 2 and float(self.theta).is_integer())):
            raise SpecError(
                f"got theta={self.theta!r} for DoublySGD; give a number between 1 and 2, or a whole number above 2"
            )

    def init(self, problem: ColumnProblem, comm: Communicator) -> DoublyRun:
        del comm
        if not problem.alpha > 0:
            raise SpecError("got alpha=0 for DoublySGD, whose steps are theta / (alpha t); give a positive alpha")
        shape = (problem.part.columns.ids.size, problem.n_outputs)
        return DoublyRun(problem.part.namespace.zeros(shape, problem.dtype), 1.0, 0)

    def step(
        self, problem: ColumnProblem, state: DoublyRun, batch: Batch, comm: Communicator
    ) -> tuple[DoublyRun, float]:
        setup: ColumnSetup = problem.extra
        scores = comm.allreduce(partial_scores(problem, batch, state.v)) * state.scale
        loss, g = loss_and_gradient(problem, scores.astype(problem.dtype), batch)
        gamma = self.step_size(problem, state.step + 1)
        if batch.excess:
            squares = batch.size * setup.statistics.beta + batch.excess
            gamma = min(gamma, longest_step(batch.size, squares, smoothness_of(problem.loss)))
        own, run = self._fresh(problem, state.step), state.shrunk(1 - gamma * problem.alpha)
        if own.size:
            places = namespace_of(run.v).asarray(own)
            run.v[places] = self._pullback(problem, own, batch, g * (-gamma / batch.size / run.scale))
        return replace(run, step=state.step + 1), loss

    def step_size(self, problem: ColumnProblem, t: int) -> float:
        """Return ``theta / (alpha (t0 + t))`` for step t, from 1."""
        setup: ColumnSetup = problem.extra
        theta = self.theta / problem.alpha
        start = max(theta * smoothness_of(problem.loss) * setup.statistics.beta, self.theta)
        return theta / (start + t)

    def _fresh(self, problem: ColumnProblem, step: int) -> Array:
        """Return which of the rank's columns are features of a step, counted from 0."""
        return (problem.part.columns.ids // _drawn(problem).width == step).nonzero()[0]

    def _pullback(self, problem: ColumnProblem, own: Array, batch: Batch, g: Array) -> Array:
        """Return ``Phi^T g`` for the rank's columns numbered `own`."""
        kernel, like = _drawn(problem), problem.part.points
        numbers = problem.part.columns.ids[own, None].astype(problem.dtype)
        points = kernel.points(problem.part.namespace.asarray(numbers), precision=like.precision)
        return kernel.rmatvec(needed_rows(batch), points, g)

    def finish(self, problem: ColumnProblem, state: DoublyRun, comm: Communicator) -> Array:
        del problem, comm
        return state.v * state.scale

    def snapshot(self, problem: ColumnProblem, state: DoublyRun) -> Snapshot:
        ids = problem.part.columns.ids
        return Snapshot({"v": Shard(ids, state.v)}, numbers={"step": state.step, "scale": state.scale})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> DoublyRun:
        fresh = self.init(problem, SerialCommunicator())
        step = int(saved.numbers["step"])
        if step > problem.n_steps:
            raise DataError(
                f"a run of {problem.n_steps} steps cannot continue a checkpoint of {step}: it lacks their features; "
                "give at least as many epochs as the checkpoint has"
            )
        # A longer run than the one that was saved has more columns; none of them has been used yet.
        ids = problem.part.columns.ids
        known = np.flatnonzero(ids < len(saved.shards["v"].ids)) if "v" in saved.shards else np.arange(ids.size)
        v = to_host(fresh.v).copy()
        v[known] = saved.rows("v", ids[known])
        return DoublyRun(namespace_of(fresh.v).asarray(v), saved.numbers["scale"], step)


def _drawn(problem: ColumnProblem) -> Drawn:
    kernel = problem.part.kernel
    if not isinstance(kernel, Drawn):
        raise SpecError(f"got columns of {kernel.name} for DoublySGD; give basis=DoublyStochastic()")
    return kernel
