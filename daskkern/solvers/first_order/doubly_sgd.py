"""Doubly stochastic functional gradients: random rows, and new random features at every step.

    f <- (1 - gamma_t alpha) f - (gamma_t / m) sum_i g_i phi_t(x_i)^T phi_t(.) ,      gamma_t = theta / (alpha (t0 + t))

over the batch of step t, phi_t its own block of random features: ``phi_t(x)^T phi_t(z)`` is an unbiased estimate of the
kernel, so that the gradient is one too. Only the coefficients of block t are new; the shrinkage of all others is one
number. The objective converges like 1 / t, and the model is not limited to features chosen beforehand.

Distributed by columns: one allreduce of (m, c) numbers a step. Coefficients that are still 0 cost nothing: step t uses
t blocks.

With a preconditioner, the coefficients of block t are

    a_t = -gamma_t (C_t + mu I)^-1 (1/m) Phi_t^T g ,      C_t = (1/m) Phi_t^T W Phi_t ,

``gamma_t = 1 / (L (1 + t / 10)^(1/2))``, with the covariance of the block's features on the rows of the batch: ridge
regression of the gradient. Every rank computes whole blocks, and keeps its columns of them: no more traffic.

References
----------
Dai, Xie, He, Liang, Raj, Balcan and Song, "Scalable kernel methods via doubly stochastic gradients", NIPS 2014,
algorithms 1 and 2, theorems 4 and 5; the preconditioner at the end of section 4, and in the authors' program with mu of
1e-7 and batches of four times as many rows as features.

Where we differ: t0 keeps the first steps below ``1 / (L max k(x, x))``; the paper's ``theta / t`` overflows within 20
steps on real data. mu is a share of the largest squared norm of a row.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Drawn
from daskkern.losses import Loss
from daskkern.preconditioners import longest_step
from daskkern.solvers.base import Solver, smoothness_of
from daskkern.solvers.batch_loss import loss_and_gradient
from daskkern.solvers.costs.columns import ColumnCosts
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.first_order.column_products import needed_rows, partial_scores
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot
from daskkern.solvers.stored_settings import SINCE_LATER

_LEAST_SCALE = 1e-6
_SLOWER = 10  # steps, after which preconditioned ones become shorter


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
    preconditioner : {"none", "covariance"}
        "covariance" multiplies the gradient in the features of a step by their inverse covariance. It needs far fewer
        steps, of larger batches with more features, 256 or more of each. `theta` has no meaning then, and the penalty
        only shrinks earlier coefficients: the limit is not the minimum of the objective, and `ridge` and the number of
        steps regularise, too.
    ridge : float
        mu, in units of the largest ``w k(x, x)``, where there is a preconditioner.

    Raises
    ------
    SpecError
        For other values.
    """

    name: ClassVar[str] = "doubly_sgd"
    bases: ClassVar[tuple[str, ...]] = ("doubly stochastic",)
    auto_batch: ClassVar[int | None] = 256
    needs_rows: ClassVar[bool] = True

    theta: float = 1.5
    preconditioner: str = field(default="none", metadata=SINCE_LATER)
    ridge: float = field(default=1e-3, metadata=SINCE_LATER)

    def __post_init__(self) -> None:
        if self.preconditioner not in ("none", "covariance"):
            raise SpecError(
                f"got preconditioner={self.preconditioner!r} for DoublySGD; expected 'none' or 'covariance'"
            )
        if not 0 < self.ridge < np.inf:
            raise SpecError(f"got ridge={self.ridge!r} for DoublySGD; give a positive number")
        if not (1 <= self.theta <= 2 or (self.theta > 2 and float(self.theta).is_integer())):
            raise SpecError(
                f"got theta={self.theta!r} for DoublySGD; give a number from 1 to 2, or a whole number above 2"
            )

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        del n_rows, loss
        return ColumnCosts(block_covariance=self.preconditioner == "covariance")

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
        if batch.excess and self.preconditioner == "none":  # solutions of the batch's own equations are bounded
            squares = batch.size * setup.statistics.beta + batch.excess
            gamma = min(gamma, longest_step(batch.size, squares, smoothness_of(problem.loss)))
        own, run = self._fresh(problem, state.step), state.shrunk(1 - gamma * problem.alpha)
        if own.size:
            places = namespace_of(run.v).asarray(own)
            change = g * (-gamma / batch.size / run.scale)
            if self.preconditioner == "none":
                run.v[places] = self._pullback(problem, own, batch, change)
            else:
                run.v[places] = self._solved(problem, state.step, own, batch, change)
        return replace(run, step=state.step + 1), loss

    def step_size(self, problem: ColumnProblem, t: int) -> float:
        """Return the step number t, from 1: ``theta / (alpha (t0 + t))``, or that of preconditioned gradients."""
        setup: ColumnSetup = problem.extra
        if self.preconditioner == "covariance":
            return float((1 + (t - 1) / _SLOWER) ** -0.5 / max(smoothness_of(problem.loss), problem.alpha))
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

    def _solved(self, problem: ColumnProblem, step: int, own: Array, batch: Batch, change: Array) -> Array:
        """Return the rows `own` of ``(C + mu I)^-1 Phi^T change`` for the block of a step."""
        setup: ColumnSetup = problem.extra
        kernel, like, xp = _drawn(problem), problem.part.points, problem.part.namespace
        numbers = np.arange(step * kernel.width, (step + 1) * kernel.width)[:, None]
        points = kernel.points(xp.asarray(numbers.astype(problem.dtype)), precision=like.precision)
        phi = kernel.block(needed_rows(batch), points)
        solved = preconditioned(phi, change, batch.weight, self.ridge * setup.statistics.beta)
        return solved[xp.asarray(problem.part.columns.ids[own] % kernel.width)].astype(problem.dtype)

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


def preconditioned(phi: Array, change: Array, weight: Array | None, mu: float) -> Array:
    """Return ``((1/m) Phi^T W Phi + mu I)^-1 Phi^T change`` (b, c) float64, of features (m, b) and rows (m, c).

    `change` is 0 where the weight (m, 1) of a row is. The equations are those of the rows where these are fewer:
    ``Phi^T R ((1/m) R Phi Phi^T R + mu I)^-1 R^-1 change``, R the root of W.
    """
    xp = namespace_of(phi)
    m, b = phi.shape
    root = xp.ones((m, 1)) if weight is None else xp.sqrt(weight.astype(np.float64))
    rooted, change = phi.astype(np.float64) * root, change.astype(np.float64) / xp.where(root > 0, root, 1)
    if b <= m:
        return xp.linalg.solve(rooted.T @ rooted / m + mu * xp.eye(b), rooted.T @ change)
    return rooted.T @ xp.linalg.solve(rooted @ rooted.T / m + mu * xp.eye(m), change)


def _drawn(problem: ColumnProblem) -> Drawn:
    kernel = problem.part.kernel
    if not isinstance(kernel, Drawn):
        raise SpecError(f"got columns of {kernel.name} for DoublySGD; give basis=DoublyStochastic()")
    return kernel
