"""Pegasos: subgradient descent with the step 1 / (alpha t), for support vector machines and other losses.

    w <- (1 - 1/t) w - 1 / (alpha t k) sum_(i in A_t) g_i phi(x_i) ,   optionally back to the ball of radius R

A_t are k rows. With all rows as centres that is kernelized Pegasos: for the hinge, a coefficient is y times how often
its row violated the margin, over alpha t. The rows of a batch are visited k at a time in order, and their inner
products computed once a batch: the iterates are those of the sequential method on any number of ranks.

Distributed by columns: one allreduce of (m, c + m) numbers a batch.

References
----------
Shalev-Shwartz, Singer, Srebro and Cotter, "Pegasos: primal estimated sub-gradient solver for SVM", Math. Programming
2011: figures 1 to 3, and corollary 1 for the ball.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import slices
from daskkern.errors import DataError, SpecError
from daskkern.losses import Hinge, Loss, Smooth
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.first_order.iterate import Averaging, Iterate, check_averaging
from daskkern.solvers.first_order.row_by_row import Sequence, applied, sequence_of, steps_ahead
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.snapshot import Snapshot


@dataclass(frozen=True)
class PegasosRun:
    """The state of a run.

    Attributes
    ----------
    iterate : Iterate
        One of its steps is a batch.
    t : int
        Steps so far.
    square : (c,) float64
        ``|w|^2`` of each output; with a joint loss, of all of them in each. Used by projections.
    """

    iterate: Iterate
    t: int
    square: FloatArray


@dataclass(frozen=True)
class Pegasos(Solver[PegasosRun]):
    """Pegasos. Needs alpha above 0.

    Parameters
    ----------
    rows : int
        Rows k of a step; a batch has as many steps as it has such groups.
    project : bool
        Whether iterates are projected onto the ball that contains the optimum: of radius ``1 / sqrt(alpha)`` for each
        output for the hinge, ``sqrt(2 loss(0) / alpha)`` for other losses of classification.
    ahead : int or "auto"
        The step is ``1 / (alpha (t + ahead))``. "auto" is 0 for losses with kinks, whose gradients are bounded, as in
        the paper; for smooth ones as many as make the first step ``1 / (L max |phi(x)|^2)`` on sampled rows, because
        the first steps of the paper overflow where gradients grow with the scores.
    averaging : float
        Share of the run, at its end, whose iterates at the ends of batches are averaged; 0 returns the last.
    average_weights : {"uniform", "linear"}
        Weights of the average: equal, or growing with the batch.
    """

    name: ClassVar[str] = "pegasos"
    descends: ClassVar[bool] = False
    bases: ClassVar[tuple[str, ...]] = ("all rows", "random features", "nystrom features", "linear", "locally linear")
    auto_batch: ClassVar[int | None] = 128
    row_products: ClassVar[bool] = True

    rows: int = 1
    project: bool = False
    ahead: int | str = "auto"
    averaging: float = 1 / 3
    average_weights: str = "uniform"

    def __post_init__(self) -> None:
        if not is_whole(self.rows, least=1):
            raise SpecError(f"got rows={self.rows!r} for Pegasos; give a positive whole number")
        if self.ahead != "auto" and not is_whole(self.ahead, least=0):
            raise SpecError(f"got ahead={self.ahead!r} for Pegasos; give a whole number of steps, or 'auto'")
        check_averaging(self.averaging, self.average_weights, "Pegasos")

    def init(self, problem: ColumnProblem, comm: Communicator) -> PegasosRun:
        del comm
        if not problem.alpha > 0:
            raise SpecError("got alpha=0 for solver pegasos, whose steps are 1 / (alpha t); give alpha above 0")
        if self.project:
            radius(problem.loss, problem.alpha, problem.n_outputs)
        averaging = Averaging.of_share(self.averaging, self.average_weights, problem.n_steps, problem.averaged_from)
        return PegasosRun(Iterate.zero(problem, averaging), 0, np.zeros(problem.n_outputs))

    def step(
        self, problem: ColumnProblem, state: PegasosRun, batch: Batch, comm: Communicator
    ) -> tuple[PegasosRun, float]:
        rows = sequence_of(problem, batch, state.iterate.v, comm, state.iterate.scale)
        loss, t, square, ahead = rows.loss(problem.loss), state.t, state.square, self.steps_ahead(problem)
        bounded = isinstance(problem.loss, Smooth) and isinstance(self.ahead, str)
        for group in slices(batch.size, self.rows):
            t += 1
            shrink, size = 1 - 1 / (t + ahead), group.stop - group.start
            eta = 1 / (problem.alpha * (t + ahead))
            eta = min(eta, rows.longest_step(problem.loss, group)) if bounded else eta
            delta = rows.gradient(problem.loss, group) * (-eta / size)
            if self.project:
                square = _square_after(rows, group, shrink, delta, square, joint=problem.loss.joint)
            rows.step(group, shrink, delta)
            if self.project:
                square = _project(rows, square, radius(problem.loss, problem.alpha, problem.n_outputs))
        iterate = applied(problem, batch, state.iterate, rows).passed()
        return PegasosRun(iterate.fold() if batch.last else iterate, t, square), loss

    def steps_ahead(self, problem: ColumnProblem) -> int:
        """Return how many steps of the schedule are skipped at its start."""
        if not isinstance(self.ahead, str):
            return int(self.ahead)
        return steps_ahead(problem)

    def finish(self, problem: ColumnProblem, state: PegasosRun, comm: Communicator) -> Array:
        del problem, comm
        return state.iterate.mean()

    def snapshot(self, problem: ColumnProblem, state: PegasosRun) -> Snapshot:
        iterate = state.iterate
        numbers = {**iterate.numbers(), "t": state.t}
        return Snapshot(iterate.shards(problem.part.columns.ids), {"square": state.square}, numbers)

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> PegasosRun:
        fresh = self.init(problem, SerialCommunicator())
        if "square" not in saved.whole or saved.whole["square"].shape != fresh.square.shape:
            raise DataError("a saved state does not fit this run of Pegasos: its outputs are others")
        iterate = fresh.iterate.restored(saved, problem.part.columns.ids, namespace_of(fresh.iterate.v))
        return PegasosRun(iterate, int(saved.numbers["t"]), np.array(saved.whole["square"], np.float64))


def radius(loss: Loss, alpha: float, n_outputs: int) -> float:
    """Return the radius of a ball that contains the optimum: of each output, or of all together for a joint loss.

    ``alpha/2 |f|^2`` is at most the objective of f = 0, and for the hinge half of that by duality. Raises SpecError
    where the loss of f = 0 depends on the targets.
    """
    if isinstance(loss, Hinge):
        return float(alpha**-0.5)
    if loss.tasks != {"classification"}:
        raise SpecError(
            f"got project=True for solver pegasos with the {loss.name} loss, whose value at 0 depends on the targets; "
            "give project=False"
        )
    y = np.eye(n_outputs) if loss.joint else np.array([[-1.0], [1.0]])
    return float(np.sqrt(2 * loss.value(np.zeros_like(y), y).max() / alpha))


def _square_after(
    rows: Sequence, group: slice, shrink: float, delta: FloatArray, square: FloatArray, *, joint: bool
) -> FloatArray:
    """Return ``|shrink w + Phi^T delta|^2`` for the scores and inner products of the rows."""
    cross = (rows.scores(group) * delta).sum(axis=0)
    own = (delta * (rows.gram[group, group] @ delta)).sum(axis=0)
    more = 2 * shrink * cross + own
    return np.maximum(shrink**2 * square + (more.sum() if joint else more), 0.0)


def _project(rows: Sequence, square: FloatArray, most: float) -> FloatArray:
    """Project outputs outside of the ball onto it, and return their squared norms."""
    if (square <= most**2).all():
        return square
    factors = np.minimum(1.0, most / np.sqrt(np.maximum(square, np.finfo(np.float64).tiny)))
    rows.project(factors)
    return square * factors**2
