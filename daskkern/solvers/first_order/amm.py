"""AMM: multi-hyperplane machines; hyperplanes are added and pruned during the fit, and the largest gives the score.

    g_k(x) = max_j w_kj . x ,   z = argmax_j w_yj . x ,   loss = max(0, max_(k != y) (delta(y, k) + g_k(x)) - w_yz . x)

Each row takes a Pegasos step: all weights shrink by ``1 - 1 / t``, and where the loss is not 0, ``w_yz`` gains and the
best other weight loses ``x / (alpha t)``. A weight that is 0 competes with the others, with a score of 0, and becomes
one more hyperplane when it wins. At the end of an epoch the smallest weights are set to 0 as long as their norms
together stay below ``prune / (alpha t)``.

Distributed by columns: the rows of a batch are treated one after the other on their scores and inner products, the
same on all ranks (see :mod:`daskkern.solvers.first_order.row_by_row`); an epoch ends with one allreduce of a number a
hyperplane.

References
----------
Wang, Djuric, Crammer and Vucetic, "Trading representability for scalability: adaptive multi-hyperplane machine for
nonlinear classification", KDD 2011, algorithm 1 and section 4.3. Where we differ: there are at most `hyperplanes`
weights a class; z is chosen again at every visit of a row (their online form); a row's weight multiplies its step;
errors may have costs delta(y, k), which are 1 there.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.errors import SpecError
from daskkern.losses import MulticlassHinge
from daskkern.losses.targets import best_of
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.first_order.iterate import Averaging, Iterate, check_averaging
from daskkern.solvers.first_order.row_by_row import Sequence, applied, sequence_of
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.snapshot import Snapshot


@dataclass(frozen=True)
class AMMRun:
    """The state of a run: coefficients (p_r, c b), class by class, and the steps so far."""

    iterate: Iterate
    t: int


@dataclass(frozen=True)
class AMM(Solver[AMMRun]):
    """The adaptive multi-hyperplane machine, for the multi-class hinge. Needs alpha above 0.

    The model is not linear in its coefficients: it has `hyperplanes` of them for each class and column.

    Parameters
    ----------
    hyperplanes : int
        Most weights b of a class.
    prune : float
        Amount of pruning: the pruned weights have a norm of at most ``prune / (alpha t)`` together.
    averaging : float
        Share of the run, at its end, whose iterates at the ends of batches are averaged, weight by weight; 0 returns
        the last one, as the paper does.
    """

    name: ClassVar[str] = "amm"
    descends: ClassVar[bool] = False
    bases: ClassVar[tuple[str, ...]] = ("linear", "random features", "nystrom features", "locally linear")
    ability: ClassVar[tuple[type[MulticlassHinge], str] | None] = (
        MulticlassHinge,
        "one margin over all classes (loss 'multiclass_hinge')",
    )
    auto_batch: ClassVar[int | None] = 128
    row_products: ClassVar[bool] = True

    hyperplanes: int = 10
    prune: float = 10.0
    averaging: float = 0.0

    def __post_init__(self) -> None:
        if not is_whole(self.hyperplanes, least=1):
            raise SpecError(f"got hyperplanes={self.hyperplanes!r} for AMM; give a positive whole number")
        if not self.prune >= 0:
            raise SpecError(f"got prune={self.prune!r} for AMM; give a number of 0 or more")
        check_averaging(self.averaging, "uniform", "AMM")

    @property
    def scores_each(self) -> int:
        return int(self.hyperplanes)

    def init(self, problem: ColumnProblem, comm: Communicator) -> AMMRun:
        del comm
        if not problem.alpha > 0:
            raise SpecError("got alpha=0 for solver amm, whose steps are 1 / (alpha t); give alpha above 0")
        shape = (problem.part.columns.ids.size, problem.n_outputs * self.hyperplanes)
        v = problem.part.namespace.zeros(shape, problem.dtype)
        return AMMRun(
            Iterate(v, Averaging.of_share(self.averaging, "uniform", problem.n_steps, problem.averaged_from)), 0
        )

    def step(self, problem: ColumnProblem, state: AMMRun, batch: Batch, comm: Communicator) -> tuple[AMMRun, float]:
        rows = sequence_of(problem, batch, state.iterate.v, comm, state.iterate.scale)
        f = best_of(rows.scores(slice(None)), self.hyperplanes)
        value = problem.loss.value(f, rows.y)
        loss = float((value if rows.weight is None else value * rows.weight[:, 0]).sum())
        assert isinstance(problem.loss, MulticlassHinge)
        margins = problem.loss.margins(rows.y)
        t = state.t
        for i in range(batch.size):
            t += 1
            self._visit(rows, i, margins[i], 1 / (problem.alpha * t), 1 - 1 / t)
        iterate = applied(problem, batch, state.iterate, rows).passed()
        if batch.last:
            iterate = self._pruned(problem, iterate.fold(), t, comm)
        return AMMRun(iterate, t), loss

    def _visit(self, rows: Sequence, i: int, margins: Array, eta: float, shrink: float) -> None:
        """Take the step of row `i` of the batch, `margins` (n_classes,) being what its wrong classes cost."""
        b = self.hyperplanes
        row = slice(i, i + 1)
        scores, y = rows.scores(row).reshape(-1, b), int(rows.y[i].argmax())
        own = int(scores[y].argmax())
        most = float(scores[y, own])
        scores[y] = -np.inf
        scores += margins[:, None]
        other = int(scores.argmax())
        weight = 1.0 if rows.weight is None else float(rows.weight[i, 0])
        size = eta * weight if scores.flat[other] > most else 0.0
        rows.step(row, shrink, np.array([[size, -size]]), [y * b + own, other])

    def _pruned(self, problem: ColumnProblem, iterate: Iterate, t: int, comm: Communicator) -> Iterate:
        """Return the iterate without its smallest weights."""
        norms = comm.allreduce(_squares(problem, iterate.v))
        order = np.argsort(norms, kind="stable")
        within = np.cumsum(norms[order]) <= (self.prune / (problem.alpha * max(t - 1, 1))) ** 2
        gone = order[within]
        if gone.size < norms.size:
            iterate.v[:, gone] = 0
        return iterate

    def finish(self, problem: ColumnProblem, state: AMMRun, comm: Communicator) -> Array:
        del problem, comm
        return state.iterate.mean()

    def snapshot(self, problem: ColumnProblem, state: AMMRun) -> Snapshot:
        iterate = state.iterate
        return Snapshot(iterate.shards(problem.part.columns.ids), numbers={**iterate.numbers(), "t": state.t})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> AMMRun:
        fresh = self.init(problem, SerialCommunicator()).iterate
        iterate = fresh.restored(saved, problem.part.columns.ids, namespace_of(fresh.v))
        return AMMRun(iterate, int(saved.numbers["t"]))


def _squares(problem: ColumnProblem, v: Array) -> FloatArray:
    """Return the squared norms of this rank's share of each weight, summed block by block."""
    total = np.zeros(v.shape[1])
    for block in problem.part.columns.blocks:
        total += to_host((v[block].astype(np.float64) ** 2).sum(axis=0))
    return total
