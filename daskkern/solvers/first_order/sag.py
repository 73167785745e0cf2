"""Stochastic averaged gradients: SAG and SAGA.

The last slope of each row's loss is stored, ``g_i = w_i loss'(f(x_i))`` (c numbers), and ``D = sum_i g_i x_i``. A
step for row i with the new slope g, ``delta = g - g_i``, is

    w <- (1 - eta alpha) w - eta (kappa delta x_i + D / n),   D <- D + delta x_i,   g_i <- g

with ``kappa = 1 / n`` for SAG and, without bias, ``kappa = 1 / (n p_i)`` for SAGA, where p_i is the probability of the
row. No slope includes the penalty: its gradient is exact. In the first epoch SAG divides by the rows seen so far.

The papers draw each row from all n of them. Here all rows of a batch are read together, in the order of the batches,
and rows are drawn, with replacement, within the batch: one drawn from all n would be a read of its own. So a row is
visited once an epoch on average, and steps are those of the papers' theorems, or shorter.

Distributed by columns and exact: the rows of a batch are treated one after the other on (m, c) numbers that every rank
has (see :mod:`daskkern.solvers.first_order.row_memory`): within a batch w is a combination of the w and D at its
start and of the batch's rows, so its scores follow from theirs. It costs an allreduce of m^2 + 3 m c numbers a batch.

References
----------
Schmidt, Le Roux and Bach, "Minimizing finite sums with the stochastic average gradient", Math. Programming 2017.
Defazio, Bach and Lacoste-Julien, "SAGA", NeurIPS 2014.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.random import generator
from daskkern.errors import SpecError
from daskkern.losses import Loss, Smooth
from daskkern.solvers.base import Solver, smoothness_of
from daskkern.solvers.first_order.column_products import descend
from daskkern.solvers.first_order.row_memory import (
    BatchNumbers,
    batch_numbers,
    like,
    no_rows,
    restored,
    shuffled,
    squared_norm,
    weighted_loss,
    zeros,
)
from daskkern.solvers.problem import Batch, Certificate, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot

METHODS = ("sag", "saga")
STEPS = ("auto", "line_search")
ORDERS = ("auto", "uniform", "shuffled", "lipschitz")
_UNEQUAL = 4.0
"""Least ratio of the largest ``w |x|^2`` to the mean for rows to be drawn by it: steps are then twice as long."""
_STREAM, _DRAWS = 72, 73
_MOST_DOUBLINGS = 60


@dataclass(frozen=True)
class SAGRun:
    """The state of a run.

    `v` and `d` (p_r, c) are the coefficients and D, `g` (n_r, c) float64 the slopes of the rank's rows, written in
    place. `seen` rows of the first epoch were visited. `largest` is the largest ``w |x|^2`` seen, `searched` the line
    search's estimate of the smoothness of a row, `norm` that of the averaged gradient after an epoch, or -1.
    """

    v: Array
    d: Array
    g: HostArray
    step: int
    seen: int
    largest: float
    searched: float
    norm: float = -1.0


@dataclass(frozen=True)
class SAG(Solver[SAGRun]):
    """SAG or SAGA, for smooth losses; linear convergence with ``alpha > 0``.

    Parameters
    ----------
    method : {"saga", "sag"}
    steps : str
        "auto": ``1 / (3 L)`` for SAGA and ``1 / (16 L)`` for SAG, as in the papers' theorems, with
        ``L = smoothness * max w |x|^2 + alpha``; the maximum is that of the rows seen so far. The step of 1 / L that is
        often used for SAG diverges here: rows are drawn batch by batch. "line_search" estimates L during the run: it is
        doubled until a row's own step decreases its loss enough, and halved in the course of an epoch.
    order : str
        Which rows of a batch are visited. "uniform" and "lipschitz" draw as many as it has, with replacement,
        "lipschitz" half of them in proportion to their own smoothness, for longer steps; "shuffled" visits each once,
        and is for SAGA. "auto" is "lipschitz" where ``w |x|^2`` of some row is more than 4 times the mean,
        as with few heavy weights, else "uniform". All rows are visited in the first epoch.
    tol : float
        The fit ends when the averaged gradient has a norm of at most `tol`, in units of the largest ``w^(1/2) |x|``: it
        is then a slope of the loss. 0 disables this.
    """

    name: ClassVar[str] = "sag"
    bases: ClassVar[tuple[str, ...]] = ("all rows", "random features", "nystrom features", "linear")
    ability: ClassVar[tuple[type[Any], str] | None] = (Smooth, "a smooth gradient")
    auto_batch: ClassVar[int | None] = 128
    row_products: ClassVar[bool] = True
    each_row_once: ClassVar[bool] = True

    method: str = "saga"
    steps: str = "auto"
    order: str = "auto"
    tol: float = 1e-5

    @property
    def state_per_row(self) -> int:
        return 1

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, METHODS),
            ("steps", self.steps, STEPS),
            ("order", self.order, ORDERS),
        ):
            if value not in known:
                raise SpecError(f"got {name}={value!r} for SAG; choose one of {', '.join(known)}")
        if self.method == "sag" and self.order == "shuffled":
            raise SpecError(
                "got order='shuffled' for SAG with method 'sag', whose bias then does not average out and the "
                "iteration can diverge; choose 'uniform' or 'lipschitz', or method 'saga'"
            )
        if not self.tol >= 0:
            raise SpecError(f"got tol={self.tol!r} for SAG; give a number of 0 or more")

    def init(self, problem: ColumnProblem, comm: Communicator) -> SAGRun:
        del comm
        setup: ColumnSetup = problem.extra
        searched = smoothness_of(problem.loss) * setup.statistics.mean_square
        return SAGRun(zeros(problem), zeros(problem), no_rows(problem), 0, 0, setup.statistics.beta, searched)

    def step(self, problem: ColumnProblem, state: SAGRun, batch: Batch, comm: Communicator) -> tuple[SAGRun, float]:
        setup: ColumnSetup = problem.extra
        numbers = batch_numbers(problem, batch, comm, (state.v, state.d), state.g)
        before = weighted_loss(problem.loss, numbers.scores[0], numbers.y, numbers.weight)
        squares = numbers.weight[:, 0] * numbers.gram.diagonal()
        state = replace(state, largest=max(state.largest, float(squares.max())))
        rows, kappa = self._rows(state, squares, setup)
        mean = max(setup.statistics.mean_square, float(squares.mean()))
        sweep = _Sweep.over(numbers, problem.loss, problem.alpha, setup.n_rows, state)
        for i in rows:
            sweep.visit(i, kappa[i], self._eta(problem, sweep, i, mean))
        local, here = setup.rows.find(batch.positions)
        state.g[local] = numbers.kept[here]
        xp, c = namespace_of(state.v), problem.n_outputs
        both = xp.concatenate([state.v * sweep.scale - state.d * sweep.shift, state.d], axis=1).astype(problem.dtype)
        both = descend(problem, batch, both, like(np.concatenate([sweep.r, sweep.e], axis=1), problem))
        v, d = (xp.ascontiguousarray(part) for part in (both[:, :c], both[:, c:]))
        run = replace(state, v=v, d=d, step=state.step + 1, seen=sweep.seen, searched=sweep.searched, norm=-1.0)
        if batch.last:
            norm = math.sqrt(squared_norm(problem, problem.alpha * v + d * (1 / setup.n_rows), comm) / run.largest)
            run = replace(run, norm=norm)
        return run, before

    def _rows(self, state: SAGRun, squares: FloatArray, setup: ColumnSetup) -> tuple[IntArray, FloatArray]:
        """Return which rows of the batch to visit, and kappa (m,), 0 for ``1 / n``."""
        m = squares.size
        kappa = np.full(m, float(self.method == "saga"))
        if self.order == "shuffled" or state.seen < setup.n_rows:
            return shuffled(m, setup.seed, _STREAM, state.step), kappa
        share = np.full(m, 1 / m)
        if self._by_size(state.largest, setup) and squares.sum() > 0:
            share = (share + squares / squares.sum()) / 2
        ends = np.cumsum(share)
        drawn = generator(setup.seed, _DRAWS, state.step).bit_generator.random_raw(m) / 2.0**64
        return np.minimum(np.searchsorted(ends, drawn * ends[-1], side="right"), m - 1), kappa / (m * share)

    def _by_size(self, largest: float, setup: ColumnSetup) -> bool:
        """Return whether rows are drawn in proportion to ``w |x|^2``, whose maximum is `largest`."""
        unequal = largest > _UNEQUAL * setup.statistics.mean_square
        return self.order == "lipschitz" or (self.order == "auto" and unequal)

    def _eta(self, problem: ColumnProblem, sweep: "_Sweep", i: int, mean: float) -> float:
        """Return the step for row `i` of a batch; `mean` is that of ``w |x|^2``, of the batch if it has more."""
        setup: ColumnSetup = problem.extra
        if self.steps == "line_search":
            smoothness = sweep.search(i)
        else:
            smoothness = smoothness_of(problem.loss) * sweep.largest
            if self._by_size(sweep.largest, setup) and sweep.seen >= setup.n_rows:
                # No row is drawn with less than half its share, so that L / (n p) is at most twice the mean.
                # A row is visited once an epoch on average, and n steps use its old slope meanwhile: eta w |x|^2 <= 1.
                smoothness = max(smoothness / 3, min(smoothness, 2 * smoothness_of(problem.loss) * mean))
        L = smoothness + problem.alpha
        return 1 / (3 * L) if self.method == "saga" else 1 / (16 * L)

    def certificate(self, problem: ColumnProblem, state: SAGRun) -> Certificate | None:
        del problem
        return None if state.norm < 0 else Certificate("averaged gradient", state.norm, self.tol)

    def finish(self, problem: ColumnProblem, state: SAGRun, comm: Communicator) -> Array:
        del problem, comm
        return state.v

    def snapshot(self, problem: ColumnProblem, state: SAGRun) -> Snapshot:
        setup: ColumnSetup = problem.extra
        ids = problem.part.columns.ids
        shards = {"v": Shard(ids, state.v), "d": Shard(ids, state.d), "g": Shard(setup.rows.ids, state.g)}
        names = ("step", "seen", "largest", "searched", "norm")
        return Snapshot(shards, numbers={name: getattr(state, name) for name in names})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> SAGRun:
        setup: ColumnSetup = problem.extra
        fresh, ids, numbers = self.init(problem, SerialCommunicator()), problem.part.columns.ids, saved.numbers
        return SAGRun(
            restored(saved.rows("v", ids), fresh.v),
            restored(saved.rows("d", ids), fresh.d),
            saved.rows("g", setup.rows.ids),
            int(numbers["step"]),
            int(numbers["seen"]),
            numbers["largest"],
            numbers["searched"],
            numbers["norm"],
        )


@dataclass
class _Sweep:
    """The rows of a batch, one after the other.

    After some of them ``w = scale w_0 - shift D_0 + sum_i r_i x_i`` and ``D = D_0 + sum_i e_i x_i``; `z` and `zd`
    (m, c) are the scores of w and D on the batch's rows.
    """

    numbers: BatchNumbers
    loss: Loss
    alpha: float
    n: int
    z: FloatArray
    zd: FloatArray
    r: FloatArray
    e: FloatArray
    seen: int
    largest: float
    searched: float
    scale: float = 1.0
    shift: float = 0.0

    @classmethod
    def over(cls, numbers: BatchNumbers, loss: Loss, alpha: float, n: int, state: SAGRun) -> "_Sweep":
        """Return the recursion before its first row."""
        z, zd = numbers.scores
        r, e = np.zeros_like(z), np.zeros_like(z)
        return cls(numbers, loss, alpha, n, z, zd, r, e, state.seen, state.largest, state.searched)

    def slope(self, i: int) -> FloatArray:
        """Return ``w_i loss'(f(x_i))`` (1, c)."""
        row = slice(i, i + 1)
        result: FloatArray = self.numbers.weight[row] * self.loss.gradient(self.z[row], self.numbers.y[row])
        return result

    def visit(self, i: int, kappa: float, eta: float) -> None:
        """Take the step of row `i`; `kappa` 0 means ``1 / n``, with n the rows seen so far."""
        row, column = slice(i, i + 1), self.numbers.gram[i][:, None]
        slope = self.slope(i)
        delta = slope - self.numbers.kept[row]
        self.numbers.kept[row] = slope
        self.seen = min(self.seen + 1, self.n)
        n = self.n if kappa else self.seen
        kappa, shrink = kappa or 1 / n, 1 - eta * self.alpha
        for iterate, mean, own in ((self.z, self.zd, column * delta), (self.r, self.e, None)):
            iterate *= shrink
            iterate -= (eta / n) * mean
            if own is None:
                iterate[row] -= (eta * kappa) * delta
                mean[row] += delta
            else:
                iterate -= (eta * kappa) * own
                mean += own
        self.scale, self.shift = self.scale * shrink, self.shift * shrink + eta / n

    def search(self, i: int) -> float:
        """Return the smoothness for row `i`: its loss must fall by ``|g|^2 |x|^2 / (2 L)`` with a step of ``1 / L``."""
        row, slope, square = slice(i, i + 1), self.slope(i), self.numbers.gram[i, i]
        y, weight, z = self.numbers.y[row], self.numbers.weight[row], self.z[row]
        size = float((slope**2).sum()) * square
        if size > 1e-8 * self.largest:
            value = weighted_loss(self.loss, z, y, weight)
            for _ in range(_MOST_DOUBLINGS):
                after = weighted_loss(self.loss, z - slope * (square / self.searched), y, weight)
                if after <= value - size / (2 * self.searched):
                    break
                self.searched *= 2
        result = self.searched
        self.searched *= 2 ** (-1 / self.n)
        return result
