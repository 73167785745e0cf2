"""Exact ridge regression in every leaf of a partition, the leaves of a rank one after another.

The kernel of the basis is 0 between leaves, so that its matrix has a block for each, and the exact solution takes
O(n s^2) operations for n rows in leaves of s, where the whole matrix would take O(n^3). Ranks have whole leaves and
exchange nothing but losses. Local models of this kind, in trees and without learned metrics: Zhang, Duchi and
Wainwright, "Divide and conquer kernel ridge regression", JMLR 2015 (random parts); Eberts and Steinwart, "Optimal
regression rates for SVMs using Gaussian kernels", 2013, and Beaglehole et al., "xRFM", 2025 (parts of the space).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import for_each
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Kernel, Partitioned, TreeAverage
from daskkern.linalg import NotPositiveDefiniteError
from daskkern.losses import Loss, Squared
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.local_ridge.costs import LocalRidgeCosts
from daskkern.solvers.local_ridge.leaf import LeafRows, solve_leaf
from daskkern.solvers.problem import Batch, Problem
from daskkern.solvers.setup import RankInputs, RankSetup
from daskkern.solvers.snapshot import Shard, Snapshot

_CENTRES = 93
_LEAST_CENTRES = 10


@dataclass(frozen=True, eq=False)
class LocalSetup(RankSetup):
    """The rows of a rank's leaves: features (p_r, d), targets (p_r, c), square roots of weights (p_r, 1).

    `n_rows` are the rows of all ranks, which belong to a leaf of each of `n_trees` trees.
    """

    kernel: Kernel
    X: HostArray
    y: FloatArray
    root: FloatArray
    n_rows: int
    n_trees: int
    seed: int
    threads: int = 1


@dataclass(frozen=True, eq=False)
class LocalRun:
    """The state of a run: coefficients (p_r, c) float64, and which leaves are solved. Both are written in place.

    `loss` is the sum of the losses of the leaves of all ranks that are solved.
    """

    coef: FloatArray
    solved: HostArray
    steps: int = 0
    loss: float = 0.0


@dataclass(frozen=True)
class LocalRidge(Solver[LocalRun]):
    """The exact minimiser of the squared loss over the leaves of a partition, or of each of several. Always one epoch.

    Parameters
    ----------
    max_centres : int
        Leaves of more rows have this many of them as centres, drawn at random: repeated rows cannot be told apart.

    Notes
    -----
    Leaves are solved between the batches of the one pass over the rows, and those of the last one after it, one a
    thread. After each batch, and after each leaf of a thread then, the fit can be stopped, as by Ctrl-C and
    `max_seconds`; leaves that are not solved have constant scores. A leaf itself is not left: one of 5,000 rows takes a
    processor a second or two.
    """

    name: ClassVar[str] = "local_ridge"
    preparation: ClassVar[str] = "nothing"
    suits_smooth_kernels: ClassVar[bool] = True
    long_steps: ClassVar[bool] = True
    bases: ClassVar[tuple[str, ...]] = ("local rows",)
    ability: ClassVar[tuple[type[Squared], str] | None] = (Squared, "linear normal equations")
    auto_batch: ClassVar[int | None] = 1 << 15

    max_centres: int = 5000

    def __post_init__(self) -> None:
        if not is_whole(self.max_centres, _LEAST_CENTRES):
            raise SpecError(f"got max_centres={self.max_centres!r}; expected a whole number of at least 10")

    def most_epochs(self, requested: int) -> int:
        return min(requested, 1)

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return LocalRidgeCosts(self.max_centres)

    def rank_setup(self, inputs: RankInputs) -> LocalSetup:
        assert inputs.indices is not None
        y, weight = inputs.rows.labels(inputs.indices[inputs.columns.ids])
        root = np.ones((len(y), 1)) if weight is None else np.sqrt(to_host(weight).astype(np.float64))
        kernel, X, n_trees = inputs.part.kernel, inputs.points, 1
        if isinstance(kernel, TreeAverage):
            X, n_trees = kernel.rows_of(X), kernel.n_trees
        assert isinstance(kernel, Partitioned | TreeAverage)
        targets = to_host(y).astype(np.float64)
        return LocalSetup(kernel.kernel, X, targets, root, inputs.n_rows, n_trees, inputs.seed, inputs.threads)

    def init(self, problem: Problem[LocalSetup], comm: Communicator) -> LocalRun:
        del comm
        blocks = problem.part.columns.blocks
        return LocalRun(np.zeros_like(problem.extra.y), np.zeros(len(blocks), bool))

    def step(
        self, problem: Problem[LocalSetup], state: LocalRun, batch: Batch, comm: Communicator
    ) -> tuple[LocalRun, float]:
        """Solve the next leaves, evenly between batches; those of the last batch are left to :meth:`after_rows`.

        The loss of several trees is the mean of those of their models: at least that of the mean of the models.
        """
        left = np.flatnonzero(~state.solved)
        steps = problem.batches_per_epoch - state.steps
        now = left[:0] if batch.last else left[: -(-left.size // max(1, steps))]
        before, state = state.loss, self._solved(problem, replace(state, steps=state.steps + 1), now, comm)
        return state, state.loss - before

    def after_rows(
        self, problem: Problem[LocalSetup], state: LocalRun, comm: Communicator, *, stop: bool
    ) -> tuple[LocalRun, float] | None:
        """Solve a leaf for each thread of every rank, until none is left on any; see the base class."""
        left = np.flatnonzero(~state.solved)
        if not comm.allreduce(np.array([float(left.size)]))[0]:
            return None
        now = left[:0] if stop else left[: problem.extra.threads]
        state = self._solved(problem, state, now, comm)
        return state, state.loss

    def _solved(self, problem: Problem[LocalSetup], state: LocalRun, now: IntArray, comm: Communicator) -> LocalRun:
        """Return the state with the leaves `now` solved, and the losses of those of all ranks. A collective."""
        losses = np.zeros(now.size)

        def solve(k: int) -> None:
            losses[k] = self._solve(problem, state, int(now[k]))

        for_each(range(now.size), solve)
        more = comm.allreduce(np.array([losses.sum() / problem.extra.n_trees]))
        return replace(state, loss=state.loss + float(more[0]))

    def _solve(self, problem: Problem[LocalSetup], state: LocalRun, leaf: int) -> float:
        setup, at = problem.extra, problem.part.columns.blocks[leaf]
        # Distances of close rows in float32 make kernel matrices that are not positive definite, a thousandth off.
        X = to_device(setup.X[at].astype(np.float64), problem.part.namespace)
        rows, centres = LeafRows(X, setup.y[at], setup.root[at]), None
        if len(rows.y) > self.max_centres:
            first = int(problem.part.columns.ids[at.start])
            centres = _drawn(len(rows.y), self.max_centres, setup.seed, first)
        try:
            state.coef[at], loss = solve_leaf(setup.kernel, rows, setup.n_rows * problem.alpha, centres)
        except NotPositiveDefiniteError as error:
            raise DataError(
                f"the kernel matrix of a leaf of {len(rows.y)} rows cannot be factored ({error}); take a larger alpha, "
                "or dtype float64"
            ) from None
        state.solved[leaf] = True
        return loss

    def finish(self, problem: Problem[LocalSetup], state: LocalRun, comm: Communicator) -> Array:
        del comm
        return problem.part.namespace.asarray(state.coef.astype(problem.dtype))

    def snapshot(self, problem: Problem[LocalSetup], state: LocalRun) -> Snapshot:
        columns = problem.part.columns
        solved = np.zeros((len(columns.ids), 1))
        for leaf in np.flatnonzero(state.solved):
            solved[columns.blocks[leaf]] = 1.0
        shards = {"coef": Shard(columns.ids, state.coef), "solved": Shard(columns.ids, solved)}
        return Snapshot(shards, numbers={"steps": state.steps, "loss": state.loss})

    def restore(self, problem: Problem[LocalSetup], saved: Snapshot) -> LocalRun:
        columns, fresh = problem.part.columns, self.init(problem, SerialCommunicator())
        coef, solved = saved.rows("coef", columns.ids), saved.rows("solved", columns.ids)
        if coef.shape != fresh.coef.shape:
            raise DataError("a saved state does not fit this fit: its coefficients have another shape")
        done = np.array([bool(solved[block].all()) for block in columns.blocks], bool)
        numbers = saved.numbers
        return LocalRun(coef.astype(np.float64), done, int(numbers["steps"]), float(numbers.get("loss", 0.0)))


def _drawn(s: int, most: int, seed: int, first: int) -> IntArray:
    """Return the numbers of `most` of s rows, ascending; `first` is a row number, which differs between leaves."""
    return np.sort(generator(seed, _CENTRES, first).permutation(s)[:most]).astype(np.int64)
