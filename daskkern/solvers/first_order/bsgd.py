"""BSGD: kernel subgradient descent on a budget of support points.

    f <- (1 - 1/t) f - 1/(alpha t) g_t k(x_t, .)

Every row whose g is not 0 becomes a support point. When there are more than the budget, the model is made smaller by
one point, at the least cost in the norm of the kernel's space or near it: the point of the smallest term is removed, or
removed and projected onto the others, or merged with another one. The budget is the requested number of landmarks;
the fit finds which points those are.

Serial: one rank visits the rows one by one. The scores of a batch are computed at once and then updated, so that
the iterates are those of the sequential method.

References
----------
Wang, Crammer and Vucetic, "Breaking the curse of kernelization: budgeted stochastic gradient descent for large-scale
SVM training", JMLR 2012: the budgeted step, and removal, projection and merging. Here each output is one against the
rest, with one coefficient a support point: for several classes the paper uses another loss.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import is_sparse, to_host
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian, Kernel
from daskkern.solvers.base import Solver
from daskkern.solvers.first_order.budget import MOST_HELD, BudgetedRows
from daskkern.solvers.first_order.column_products import needed_rows
from daskkern.solvers.first_order.row_by_row import steps_ahead
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.snapshot import Snapshot

STRATEGIES = ("auto", "removal", "projection", "merging")


@dataclass(frozen=True)
class BSGDRun:
    """The state of a run.

    Attributes
    ----------
    points : (budget + 1, d) array
        Support points; those with coefficients 0 are free slots, of which there is at least one.
    coef : (budget + 1, c) float64
    t : int
        Steps so far.
    sparse : bool
        Whether rows are sparse; the points of the model are then sparse, too.
    """

    points: HostArray
    coef: FloatArray
    t: int
    sparse: bool

    @property
    def kept(self) -> HostArray:
        """The slots of the budget's points: all but the last free one."""
        free = int(np.flatnonzero(~self.coef.any(axis=1))[-1])
        return np.delete(np.arange(len(self.coef)), free)


@dataclass(frozen=True)
class BSGD(Solver[BSGDRun]):
    """BSGD. Needs alpha above 0, and ``Landmarks(n)`` for the budget n.

    Support points are held dense, sparse rows or not.

    Parameters
    ----------
    strategy : {"auto", "removal", "projection", "merging"}
        How the model returns to its budget. "removal" costs one kernel column of the batch, "projection" a
        factorisation of order n^3, "merging" a comparison of n pairs; it needs the Gaussian kernel, where a point on
        the line between two has the largest inner product with their sum. "auto" merges with a Gaussian kernel, and
        removes with others.
    """

    name: ClassVar[str] = "bsgd"
    bases: ClassVar[tuple[str, ...]] = ("landmarks",)
    auto_batch: ClassVar[int | None] = 128
    needs_rows: ClassVar[bool] = True
    row_products: ClassVar[bool] = True
    learns_centres: ClassVar[bool] = True

    strategy: str = "auto"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise SpecError(f"got strategy={self.strategy!r} for BSGD; choose one of {', '.join(STRATEGIES)}")

    def init(self, problem: ColumnProblem, comm: Communicator) -> BSGDRun:
        if comm.size != 1:
            raise SpecError(f"solver bsgd is serial, but {comm.size} ranks were started")
        if not problem.alpha > 0:
            raise SpecError("got alpha=0 for solver bsgd, whose steps are 1 / (alpha t); give alpha above 0")
        kernel = problem.part.kernel
        if self.strategy == "merging" and not isinstance(kernel, Gaussian):
            raise SpecError(
                f"got strategy='merging' for solver bsgd with the {kernel.name} kernel, but merging needs the Gaussian "
                "kernel; give strategy='removal' or 'projection'"
            )
        like = problem.part.points
        points = np.zeros((like.size + 1, like.n_features), problem.dtype)
        return BSGDRun(points, np.zeros((like.size + 1, problem.n_outputs)), 0, sparse=False)

    def step(self, problem: ColumnProblem, state: BSGDRun, batch: Batch, comm: Communicator) -> tuple[BSGDRun, float]:
        del comm
        X = needed_rows(batch)
        work = BudgetedRows(problem, self._strategy(problem.part.kernel), state.points, state.coef, _dense(X), batch)
        loss = work.rows.loss(problem.loss)
        ahead = steps_ahead(problem)
        for i in range(batch.size):
            t = state.t + i + 1 + ahead
            work.meet(i, 1 - 1 / t, 1 / (problem.alpha * t))
        return BSGDRun(work.points, work.coef, state.t + batch.size, sparse=is_sparse(X)), loss

    def _strategy(self, kernel: Kernel) -> str:
        if self.strategy != "auto":
            return self.strategy
        return "merging" if isinstance(kernel, Gaussian) else "removal"

    def points(self, problem: ColumnProblem, state: BSGDRun) -> HostArray | None:
        kept = state.points[state.kept]
        return scipy.sparse.csr_matrix(kept) if state.sparse else kept

    def moving_bytes(self, p: int, d: int, itemsize: int) -> int:
        held = self.strategy == "projection" or (self.strategy != "removal" and p < MOST_HELD)
        matrices = 4 * (p + 1) ** 2 * 8 if held else 0
        return 5 * (p + 1) * d * itemsize + matrices  # the state, its successor, and both of them prepared

    def finish(self, problem: ColumnProblem, state: BSGDRun, comm: Communicator) -> Array:
        del comm
        return problem.part.namespace.asarray(state.coef[state.kept].astype(problem.dtype))

    def snapshot(self, problem: ColumnProblem, state: BSGDRun) -> Snapshot:
        del problem
        whole = {"points": state.points, "coef": state.coef}
        return Snapshot({}, whole, {"t": state.t, "sparse": float(state.sparse)})

    def restore(self, problem: ColumnProblem, saved: Snapshot) -> BSGDRun:
        fresh = self.init(problem, SerialCommunicator())
        points, coef = saved.whole.get("points"), saved.whole.get("coef")
        if points is None or coef is None or (points.shape, coef.shape) != (fresh.points.shape, fresh.coef.shape):
            raise DataError("a saved state does not fit this run of BSGD: its support points are others")
        t, sparse = int(saved.numbers["t"]), bool(saved.numbers["sparse"])
        return BSGDRun(np.array(points), np.array(coef, np.float64), t, sparse)


def _dense(X: Array) -> HostArray:
    return to_host(X.toarray() if is_sparse(X) else X)
