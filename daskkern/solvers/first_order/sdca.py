"""Stochastic dual coordinate ascent.

Each row has dual variables u_i (one an output), and the model follows from them, ``w = sum_i w_i u_i x_i / (alpha n)``.
A step maximises the dual in the variables of one row:

    u_i <- argmax_v  -loss*(-v) - <v - u_i, z_i> - (Q_i / 2) |v - u_i|^2,   z_i = f(x_i),  Q_i = w_i |x_i|^2 / (alpha n)

The duality gap is ``(1/n) sum_i w_i (loss(z_i) + loss*(-u_i) + <u_i, z_i>)``, a sum of terms that are 0 or more, and
bounds how far the objective is above its least value. It takes a pass over the rows, which needs only scores.

Distributed by columns and exact: the rows of a batch are treated one after the other on (m, c) numbers that every rank
has (see :mod:`daskkern.solvers.first_order.row_memory`), so the iterates do not depend on the number of ranks, and
there are no local subproblems to reconcile as in CoCoA. It costs an allreduce of m^2 + 2 m c numbers a batch.

References
----------
Shalev-Shwartz and Zhang, "Stochastic dual coordinate ascent methods for regularized loss minimization", JMLR 2013.
Hsieh et al., "A dual coordinate descent method for large-scale linear SVM", ICML 2008 (random orders).
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import to_host
from daskkern.backend.random import permutation
from daskkern.errors import SpecError
from daskkern.losses import Dual, Loss, Smooth
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.first_order.column_products import changes, partial_scores
from daskkern.solvers.first_order.iterate import Averaging, Iterate, check_averaging
from daskkern.solvers.first_order.row_memory import (
    batch_numbers,
    like,
    no_rows,
    targets_of,
    weight_of,
    weighted_loss,
)
from daskkern.solvers.problem import Batch, Certificate, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Snapshot

_STREAM = 71
_LEAST_Q = 1e-12  # zero rows, and rows of weight 0, still get the dual variables of their score


@dataclass(frozen=True)
class SDCARun:
    """The state of a run.

    `v` (p_r, c) are the coefficients, `u` (n_r, c) float64 the dual variables of the rank's rows, both written in place
    and averaged over the same steps. `measuring` is true in the pass that sums the gap in `total`; `gap` is that of
    the last epoch, or -1. `first` is the loss of the zero model. `model` is the mean of `v` during that pass.
    """

    v: Iterate
    u: Iterate
    epoch: int = 0
    measuring: bool = False
    first: float = 0.0
    total: float = 0.0
    gap: float = -1.0
    model: Array | None = None


@dataclass(frozen=True)
class SDCA(Solver[SDCARun]):
    """Stochastic dual coordinate ascent, for any loss whose conjugate is known, smooth or not; needs ``alpha > 0``.

    There is no step size. Over all rows it is kernel SDCA, over random and Nystrom features r-SDCA and n-SDCA.

    Parameters
    ----------
    tol : float
        The fit ends with a duality gap of at most `tol` times the loss of the zero model; 0 disables this.
    gap_every : int
        Epochs from one gap to the next. Each gap takes one more pass over the rows.
    averaging : float or "auto"
        Share of the run, at its end, whose iterates at the ends of batches are averaged, the dual variables with them,
        so that the gap is that of the mean; 0 returns the last. "auto" is a half for losses with kinks, for which the
        bound of the paper is that of a mean (theorem 2) and the error of the last iterate jumps (Fashion-MNIST, 10,000
        rows, Nystrom features: 16.3 to 21.4% over five epochs, the mean 14.9%); and 0 for smooth ones, where the last
        iterate converges linearly and a mean of many lags behind it.
    """

    name: ClassVar[str] = "sdca"
    bases: ClassVar[tuple[str, ...]] = ("all rows", "random features", "nystrom features", "linear", "locally linear")
    ability: ClassVar[tuple[type[Any], str] | None] = (Dual, "a known conjugate")
    auto_batch: ClassVar[int | None] = 128
    row_products: ClassVar[bool] = True
    each_row_once: ClassVar[bool] = True

    tol: float = 1e-4
    gap_every: int = 5
    averaging: float | str = "auto"

    @property
    def state_per_row(self) -> int:
        return 3 if self.averaging else 1

    def __post_init__(self) -> None:
        if not self.tol >= 0:
            raise SpecError(f"got tol={self.tol!r} for {type(self).__name__}; give a number of 0 or more")
        if not is_whole(self.gap_every, 1):
            raise SpecError(
                f"got gap_every={self.gap_every!r} for {type(self).__name__}; give a whole number of at least 1"
            )
        if not isinstance(self.averaging, str):
            check_averaging(self.averaging, "uniform", type(self).__name__)
        elif self.averaging != "auto":
            raise SpecError(
                f"got averaging={self.averaging!r} for {type(self).__name__}; give a share from 0 to 1, or 'auto'"
            )

    def averaged_share(self, loss: Loss) -> float:
        """Return the share of the run whose iterates are averaged."""
        if isinstance(self.averaging, str):
            return 0.0 if isinstance(loss, Smooth) else 0.5
        return self.averaging

    def sweeps(self, epoch: int, loss: Loss) -> int:
        del loss
        return 2 if epoch % self.gap_every == 0 else 1

    def init(self, problem: ColumnProblem, comm: Communicator) -> SDCARun:
        del comm
        if not problem.alpha > 0:
            raise SpecError(
                f"got alpha={problem.alpha} for solver {self.name}, whose dual needs a penalty; give alpha > 0"
            )
        averaging = Averaging.of_share(self.averaged_share(problem.loss), "uniform", problem.n_steps)
        return SDCARun(Iterate.zero(problem, averaging), Iterate(no_rows(problem), averaging))

    def step(self, problem: ColumnProblem, state: SDCARun, batch: Batch, comm: Communicator) -> tuple[SDCARun, float]:
        if state.measuring:
            return self._measure(problem, state, batch, comm)
        setup: ColumnSetup = problem.extra
        n, loss = setup.n_rows, problem.loss
        numbers = batch_numbers(problem, batch, comm, (state.v.v,), state.u.v)
        (z,), u, y, weight = numbers.scores, numbers.kept, numbers.y, numbers.weight
        before = weighted_loss(problem.loss, z, y, weight)
        first = state.first if state.epoch else state.first + weighted_loss(problem.loss, 0 * z, y, weight) / n
        scale = weight / (problem.alpha * n)
        Q = np.maximum(scale * numbers.gram.diagonal()[:, None], _LEAST_Q)
        rise = np.zeros_like(z)
        for i in permutation(batch.size, setup.seed, _STREAM, state.v.step):
            row = slice(i, i + 1)
            rise[row] = self.updated_dual(loss, z[row], u[row], y[row], Q[row]) - u[row]
            z += numbers.gram[i][:, None] * (rise[row] * scale[row])
        where, delta = changes(problem, batch, like(rise * scale, problem))
        local, here = setup.rows.find(batch.positions)
        v, duals = state.v.add(where, delta).passed(), state.u.add(local, rise[here]).passed()
        if batch.last:
            v, duals = v.fold(), duals.fold()
        run = replace(state, v=v, u=duals, first=first)
        if batch.last:
            measuring = self.sweeps(state.epoch + 1, problem.loss) > 1
            run = replace(run, measuring=measuring, total=0.0, gap=-1.0, epoch=state.epoch + (not measuring))
        return run, before

    def updated_dual(self, loss: Loss, z: FloatArray, u: FloatArray, y: FloatArray, Q: FloatArray) -> FloatArray:
        """Return the dual variables (1, c) of a row after its step, from its scores z and the previous ones u."""
        assert isinstance(loss, Dual)
        new: FloatArray = loss.dual_step(z, u, y, Q)
        return new

    def _measure(
        self, problem: ColumnProblem, state: SDCARun, batch: Batch, comm: Communicator
    ) -> tuple[SDCARun, float]:
        """Add a batch's terms of the gap of the model that :meth:`finish` returns; the model does not change."""
        setup: ColumnSetup = problem.extra
        loss = problem.loss
        assert isinstance(loss, Dual)
        kept = np.zeros((batch.size, problem.n_outputs))
        local, here = setup.rows.find(batch.positions)
        kept[here] = state.u.mean(local)
        model = state.v.mean() if state.model is None else state.model
        scores = partial_scores(problem, batch, model)
        both = to_host(comm.allreduce(problem.part.namespace.concatenate([scores, like(kept, problem)], axis=1)))
        z, u = both[:, : problem.n_outputs], both[:, problem.n_outputs :]
        y, weight = targets_of(batch), weight_of(batch)
        value = weighted_loss(problem.loss, z, y, weight)
        total = state.total + value + float(weight[:, 0] @ (loss.conjugate(-u, y) + (u * z).sum(axis=1)))
        run = replace(state, total=total, model=model)
        if batch.last:
            run = replace(run, model=None, measuring=False, gap=max(total / setup.n_rows, 0.0), epoch=state.epoch + 1)
        return run, value

    def certificate(self, problem: ColumnProblem, state: SDCARun) -> Certificate | None:
        del problem
        return None if state.gap < 0 else Certificate("duality gap", state.gap, self.tol * state.first)

    def finish(self, problem: ColumnProblem, state: SDCARun, comm: Communicator) -> Array:
        del problem, comm
        return state.v.mean()

    def snapshot(self, problem: ColumnProblem, state: SDCARun) -> Snapshot:
        setup: ColumnSetup = problem.extra
        shards = {**state.v.shards(problem.part.columns.ids), **state.u.shards(setup.rows.ids, "dual_")}
        numbers = {
            **state.v.numbers(),
            "epoch": state.epoch,
            "measuring": float(state.measuring),
            "first": state.first,
            "total": state.total,
            "gap": state.gap,
        }
        return Snapshot(shards, numbers=numbers)

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> SDCARun:
        setup: ColumnSetup = problem.extra
        fresh, numbers = self.init(problem, SerialCommunicator()), saved.numbers
        return SDCARun(
            fresh.v.restored(saved, problem.part.columns.ids, problem.part.namespace),
            fresh.u.restored(saved, setup.rows.ids, np, "dual_"),
            int(numbers["epoch"]),
            bool(numbers["measuring"]),
            numbers["first"],
            numbers["total"],
            numbers["gap"],
        )
