"""Stochastic averaged gradients: SAG and SAGA.

The last slope of each row's loss is stored, ``g_i = w_i loss'(f(x_i))`` (c numbers), and ``D = sum_i g_i x_i``. A
step for row i with the new slope g, ``delta = g - g_i``, is

    w <- (1 - eta alpha) w - eta (kappa delta x_i + D / n),   D <- D + delta x_i,   g_i <- g

with ``kappa = 1 / n`` for SAG and, without bias, ``kappa = 1 / (n p_i)`` for SAGA, where p_i is the probability of the
row. No slope includes the penalty: its gradient is exact.

The papers draw each row from all n of them, as the order "independent" does: the batches themselves are then drawn so,
and SAG divides by n from the first step on, as the lecture prints it. By default all rows of a batch are read together,
in the order of the batches, and rows are drawn, with replacement, within the batch: batches keep their rows, so that
what is known of these can be cached. There all rows are visited once in the first epoch, in which SAG divides by the
rows seen so far instead: D is a sum of their slopes alone, which n would make small. Either way a row is visited once
an epoch on average, and steps are those of the papers' theorems, or shorter.

Distributed by columns and exact: the rows of a batch are treated one after the other on (m, c) numbers that every rank
has (see :mod:`daskkern.solvers.first_order.row_memory`): within a batch w is a combination of the w and D at its
start and of the batch's rows, so its scores follow from theirs. It costs an allreduce of m^2 + 3 m c numbers a batch.

References
----------
Schmidt, Le Roux and Bach, "Minimizing finite sums with the stochastic average gradient", Math. Programming 2017.
Defazio, Bach and Lacoste-Julien, "SAGA", NeurIPS 2014.
Schmidt, "Stochastic average gradient and kernels", lecture of CPSC 540, 2016: "SAG algorithm".
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.random import generator, permutation
from daskkern.errors import SpecError
from daskkern.losses import Smooth
from daskkern.solvers.base import Solver, smoothness_of
from daskkern.solvers.first_order.column_products import descend
from daskkern.solvers.first_order.row_memory import (
    batch_numbers,
    like,
    no_rows,
    restored,
    squared_norm,
    weighted_loss,
    zeros,
)
from daskkern.solvers.first_order.sag_sweep import SlopeSweep
from daskkern.solvers.problem import Batch, Certificate, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.snapshot import Shard, Snapshot

METHODS = ("sag", "saga")
STEPS = ("auto", "line_search")
ORDERS = ("auto", "uniform", "shuffled", "lipschitz", "independent")
_UNEQUAL = 4.0
"""Least ratio of the largest ``w |x|^2`` to the mean for rows to be drawn by it: steps are then twice as long."""
_STREAM, _DRAWS = 72, 73


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
        The rule of a step: SAGA, whose gradients are unbiased, or SAG, whose are not.
    steps : str
        "auto": ``1 / (3 L)`` for SAGA and ``1 / (16 L)`` for SAG, as in the papers' theorems, with
        ``L = smoothness * max w |x|^2 + alpha``; the maximum is that of the rows seen so far. The step of 1 / L that is
        often used for SAG diverges where rows are drawn batch by batch. "line_search" estimates L during the run: it is
        doubled until a row's own step decreases its loss enough, and halved in the course of an epoch.
    order : str
        Which rows of a batch are visited. "uniform" and "lipschitz" draw as many as it has, with replacement,
        "lipschitz" half of them in proportion to their own smoothness, for longer steps; "shuffled" visits each once,
        and is for SAGA. "auto" is "lipschitz" where ``w |x|^2`` of some row is more than 4 times the mean,
        as with few heavy weights, else "uniform". All rows are visited in the first epoch. "independent" draws every
        row from all n with equal probability, as the papers do: it makes batches of rows drawn so,
        ``sampling="independent"`` of the fit, and visits them as they come; a store of more than one window (64 MB of
        features) draws from the chunks of one window at a time. Not with all rows as centres.
    tol : float
        The fit ends when the averaged gradient has a norm of at most `tol`, in units of the largest ``w^(1/2) |x|``: it
        is then a slope of the loss. 0 disables this.
    """

    name: ClassVar[str] = "sag"
    bases: ClassVar[tuple[str, ...]] = ("all rows", "random features", "nystrom features", "linear", "locally linear")
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

    @property
    def own_sampling(self) -> str:
        return "independent" if self.order == "independent" else "uniform"

    def check_sampling(self, sampling: str) -> None:
        if (sampling == "independent") == (self.order == "independent"):
            if sampling != "independent":
                super().check_sampling(sampling)
            return
        raise SpecError(
            f"got sampling={sampling!r} for SAG with order={self.order!r}; for rows that are drawn from all of them "
            "give order='independent' and leave sampling out"
        )

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
        first = _first_of(batch.positions)  # a row that was drawn twice has one slope
        rows, kappa = self._rows(state, squares, setup, first)
        mean = max(setup.statistics.mean_square, float(squares.mean()))
        z, zd = numbers.scores
        n, r, e = setup.n_rows, np.zeros_like(z), np.zeros_like(z)
        known = state.seen, state.largest, state.searched
        sweep = SlopeSweep(numbers, problem.loss, problem.alpha, n, z, zd, r, e, *known)
        for i in rows:
            sweep.visit(i, kappa[i], self._eta(problem, sweep, i, mean))
        local, here = setup.rows.find(batch.positions)
        state.g[local] = numbers.kept[first[here]]
        xp, c = namespace_of(state.v), problem.n_outputs
        both = xp.concatenate([state.v * sweep.scale - state.d * sweep.shift, state.d], axis=1).astype(problem.dtype)
        both = descend(problem, batch, both, like(np.concatenate([sweep.r, sweep.e], axis=1), problem))
        v, d = (xp.ascontiguousarray(part) for part in (both[:, :c], both[:, c:]))
        run = replace(state, v=v, d=d, step=state.step + 1, seen=sweep.seen, searched=sweep.searched, norm=-1.0)
        if batch.last:
            norm = math.sqrt(squared_norm(problem, problem.alpha * v + d * (1 / setup.n_rows), comm) / run.largest)
            run = replace(run, norm=norm)
        return run, before

    def _rows(
        self, state: SAGRun, squares: FloatArray, setup: ColumnSetup, first: IntArray
    ) -> tuple[IntArray, FloatArray]:
        """Return which rows of the batch to visit, and kappa (m,), 0 for one over the rows seen so far."""
        m = squares.size
        kappa = np.full(m, float(self.method == "saga"))
        if self.order == "independent":  # the rows seen so far are not counted: some were drawn twice
            return first, np.maximum(kappa, 1 / setup.n_rows)
        if self.order == "shuffled" or state.seen < setup.n_rows:
            return permutation(m, setup.seed, _STREAM, state.step), kappa
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

    def _eta(self, problem: ColumnProblem, sweep: "SlopeSweep", i: int, mean: float) -> float:
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


def _first_of(positions: IntArray) -> IntArray:
    """Return, for the rows of a batch (m,), the first place in it of the same row."""
    _, first, which = np.unique(positions, return_index=True, return_inverse=True)
    found: IntArray = first[which]
    return found
