"""NORMA: online kernel learning. Each row adds one term and shrinks all older ones.

    f <- (1 - eta_t alpha) f - eta_t g_t k(x_t, .)

All rows are centres, so that the terms of a row share a coefficient. Terms shrink geometrically, and `truncation` drops
those that are older than that many steps: the error is a sum of terms, each below
``(1 - eta alpha)^truncation`` of what it was. Terms are dropped between batches.

The rows of a batch are visited one at a time, and their inner products computed once a batch: the iterates are those of
the sequential method on any number of ranks. Distributed by columns: one allreduce of (m, c + m) numbers a batch.

References
----------
Kivinen, Smola and Williamson, "Online learning with kernels", IEEE Trans. Signal Processing 2004, equations 8 to 12,
and proposition 1 for the truncation. The offset b and the adaptive margin of their section 3 are left out.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.solvers.base import Solver, is_whole, smoothness_of
from daskkern.solvers.first_order.row_by_row import sequence_of
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot
from daskkern.solvers.tail_average import TailAverage


@dataclass(frozen=True)
class NormaRun:
    """The state of a run; arrays by column, which are the training rows.

    Attributes
    ----------
    young : (n_r, c) array
        Coefficients of the terms of this epoch; without truncation, of all.
    old : (n_r, c) array or None
        Those of the previous epoch that are not dropped. None without truncation.
    born, born_before : (n_r,) float64 arrays or None
        The steps that created the terms of either.
    t, batches : int
        Steps and batches so far.
    average : TailAverage
        Of the iterates at the ends of batches.
    """

    young: Array
    old: Array | None
    born: FloatArray | None
    born_before: FloatArray | None
    t: int
    batches: int
    average: TailAverage

    @property
    def coef(self) -> Array:
        """The coefficients of all terms."""
        return self.young if self.old is None else self.young + self.old


@dataclass(frozen=True)
class Norma(Solver[NormaRun]):
    """NORMA, one row a step.

    Parameters
    ----------
    schedule : {"inverse_root", "constant"}
        Step t is ``eta / t^(1/2)``, or eta; ``eta = theta / (L max k(x, x) + alpha)``, L = 1 for losses with kinks.
    theta : float
        From 0 to 1.
    truncation : int or None
        Steps after which a term is dropped, at most as many as there are rows; None drops nothing.
    averaging : float
        Share of the run, at its end, whose iterates at the ends of batches are averaged; 0 returns the last one.
    """

    name: ClassVar[str] = "norma"
    bases: ClassVar[tuple[str, ...]] = ("all rows",)
    auto_batch: ClassVar[int | None] = 128
    row_products: ClassVar[bool] = True

    schedule: str = "inverse_root"
    theta: float = 1.0
    truncation: int | None = None
    averaging: float = 0.0

    @property
    def state_per_row(self) -> int:
        return 2

    def __post_init__(self) -> None:
        if self.schedule not in ("inverse_root", "constant"):
            raise SpecError(f"got schedule={self.schedule!r} for NORMA; choose 'inverse_root' or 'constant'")
        if not 0 < self.theta <= 1:
            raise SpecError(f"got theta={self.theta!r} for NORMA; give a number above 0, at most 1")
        if self.truncation is not None and not is_whole(self.truncation, least=1):
            raise SpecError(f"got truncation={self.truncation!r} for NORMA; give a whole number of steps, or None")
        if not 0 <= self.averaging <= 1:
            raise SpecError(f"got averaging={self.averaging!r} for NORMA; give a share between 0 and 1")

    def init(self, problem: ColumnProblem, comm: Communicator) -> NormaRun:
        del comm
        setup: ColumnSetup = problem.extra
        if self.truncation is not None and self.truncation > setup.n_rows:
            raise SpecError(
                f"got truncation={self.truncation} for NORMA, but there are {setup.n_rows} training rows; give at most "
                "that many steps, or None"
            )
        zero = problem.part.namespace.zeros((problem.part.columns.ids.size, problem.n_outputs), problem.dtype)
        start = problem.averaging_start(self.averaging) if self.averaging else problem.n_steps + 1
        average = TailAverage(max(start, 1))
        if self.truncation is None:
            return NormaRun(zero, None, None, None, 0, 0, average)
        born = np.zeros(problem.part.columns.ids.size)
        return NormaRun(zero, zero, born, born, 0, 0, average)

    def step(self, problem: ColumnProblem, state: NormaRun, batch: Batch, comm: Communicator) -> tuple[NormaRun, float]:
        state = self._truncated(state)
        rows = sequence_of(problem, batch, state.coef, comm)
        loss, t = rows.loss(problem.loss), state.t
        for i in range(batch.size):
            row = slice(i, i + 1)
            eta = min(self.step_size(problem, t + i), rows.longest_step(problem.loss, row))
            rows.step(row, 1 - eta * problem.alpha, rows.gradient(problem.loss, row) * -eta)
        local, here = problem.extra.rows.find(batch.positions)
        young, xp = state.young * rows.shrunk, namespace_of(state.young)
        young[xp.asarray(local)] += xp.asarray(rows.change[here].astype(problem.dtype))
        state = replace(state, young=young, t=t + batch.size, batches=state.batches + 1)
        if state.old is not None and state.born is not None:
            born = state.born.copy()
            born[local] = t + 1 + here
            state = replace(state, old=state.old * rows.shrunk, born=born)
            if batch.last:  # a whole epoch is no younger than the truncation: nothing of `old` outlives it
                state = replace(state, young=young * 0, old=young, born=born * 0, born_before=born)
        return replace(state, average=state.average.add(state.batches, state.coef)), loss

    def step_size(self, problem: ColumnProblem, t: int) -> float:
        """Return the step after `t` others."""
        setup: ColumnSetup = problem.extra
        eta = self.theta * setup.statistics.step_size(1, smoothness_of(problem.loss), problem.alpha)
        return eta if self.schedule == "constant" else float(eta * (t + 1) ** -0.5)

    def _truncated(self, state: NormaRun) -> NormaRun:
        """Return the state without the terms that are too old for its next step."""
        if self.truncation is None or state.old is None or state.born is None or state.born_before is None:
            return state
        last = state.t - self.truncation  # the last step whose term is dropped
        if last <= 0:
            return state
        xp = namespace_of(state.young)
        young = state.young * xp.asarray((state.born > last)[:, None])
        return replace(state, young=young, old=state.old * xp.asarray((state.born_before > last)[:, None]))

    def finish(self, problem: ColumnProblem, state: NormaRun, comm: Communicator) -> Array:
        del problem, comm
        return state.average.value(self._truncated(state).coef)

    def snapshot(self, problem: ColumnProblem, state: NormaRun) -> Snapshot:
        ids = problem.part.columns.ids
        names = ("young", "old", "born", "born_before")
        shards = {name: Shard(ids, value) for name in names if (value := getattr(state, name)) is not None}
        numbers = {**state.average.numbers(), "t": state.t, "batches": state.batches}
        return Snapshot({**shards, **state.average.shards(ids)}, numbers=numbers)

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> NormaRun:
        fresh = self.init(problem, SerialCommunicator())
        xp, ids = namespace_of(fresh.young), problem.part.columns.ids
        fresh = replace(
            fresh,
            young=xp.asarray(saved.rows("young", ids)),
            t=int(saved.numbers["t"]),
            batches=int(saved.numbers["batches"]),
            average=fresh.average.restored(saved, ids, xp),
        )
        if self.truncation is None:
            return fresh
        born, before = (np.asarray(saved.rows(name, ids)) for name in ("born", "born_before"))
        return replace(fresh, old=xp.asarray(saved.rows("old", ids)), born=born, born_before=before)
