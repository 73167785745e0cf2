"""A bench for solvers over columns: small problems, on any number of ranks, one batch after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import KernelBasis
from daskkern.kernels import Coordinate, Gaussian, Kernel
from daskkern.losses import Hinge, Loss
from daskkern.preconditioners import column_statistics
from daskkern.solvers import Batch, Problem, Solver
from daskkern.solvers.setup import ColumnSetup, RowShare
from tests.support.threads import run_threads

GAUSSIAN = Gaussian(2.0)


@dataclass(frozen=True)
class Task:
    """Rows (n, d), targets -1 and +1 or numbers (n, c), and how they are met."""

    X: Any
    y: HostArray
    loss: Loss
    alpha: float
    basis: str = "all rows"
    weight: HostArray | None = None
    batch: int = 8
    epochs: int = 2
    kernel: Kernel = GAUSSIAN
    dtype: str = "float64"

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    def order(self, epoch: int) -> list[IntArray]:
        """Return the rows of the batches of an epoch, from 0."""
        rows = np.random.default_rng(epoch).permutation(self.n)
        return [rows[start : start + self.batch] for start in range(0, self.n, self.batch)]

    def gram(self) -> HostArray:
        """Return the inner products of all rows (n, n) in the function space."""
        if self.basis == "linear":
            dense = self.X.toarray() if scipy.sparse.issparse(self.X) else self.X
            return dense @ dense.T
        return self.kernel.block(self.X.copy(), self.X)

    def problem(self, rank: int, size: int) -> Problem:
        """Return the problem of one rank."""
        p = self.X.shape[1] if self.basis == "linear" else self.n
        kernel: Kernel = Coordinate() if self.basis == "linear" else self.kernel
        points: Any = scipy.sparse.identity(p, self.dtype, "csr") if self.basis == "linear" else self.X
        everything = self.basis == "all rows"
        basis = KernelBasis(kernel, p, np.zeros(0, np.int64), everything, kernel.placement_for(points))
        columns = basis.split(rank, size)
        share = RowShare.of(columns.ids) if everything else RowShare.equal(self.n, rank, size)
        statistics = column_statistics(self.gram(), None if self.weight is None else self.weight[:, 0])
        setup = ColumnSetup(self.n, statistics, share, everything, 0)
        part = basis.part(columns, points[columns.ids])
        n_batches = -(-self.n // self.batch)
        return Problem(part, self.loss, self.alpha, self.y.shape[1], n_batches, self.epochs, self.dtype, setup)


def two_classes(n: int = 40, d: int = 3, c: int = 1, *, sparse: bool = False, noise: float = 0.5) -> tuple[Any, Any]:
    """Return rows and targets -1 and +1 (n, c) of classes that overlap."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    if sparse:
        X = X * (rng.uniform(size=(n, d)) < 0.3)
    y = np.where(X[:, :1] + np.sin(2 * X[:, 1:2]) + noise * rng.standard_normal((n, c)) > 0, 1.0, -1.0)
    return (scipy.sparse.csr_matrix(X) if sparse else X), y


def hinge_task(
    basis: str = "all rows", *, sparse: bool = False, c: int = 1, weighted: bool = False, **how: Any
) -> Task:
    """Return a task of support vector machines."""
    d = 12 if sparse else 3
    X, y = two_classes(d=d, c=c, sparse=sparse)
    weight = np.random.default_rng(1).uniform(0.3, 2.0, (len(y), 1)) if weighted else None
    return Task(X, y, how.pop("loss", Hinge()), how.pop("alpha", 0.1), basis, weight, **how)


def run(task: Task, solver: Solver[Any], ranks: int = 1, *, broken: bool = False) -> tuple[HostArray, HostArray]:
    """Return coefficients (p, c) after the epochs of the task, and the values of the model at all rows.

    A `broken` run ends after every batch, and goes on from its snapshot.
    """

    def work(comm: Communicator) -> tuple[IntArray, HostArray]:
        problem = task.problem(comm.rank, comm.size)
        state = solver.init(problem, comm)
        for epoch in range(task.epochs):
            state = steps(task, solver, problem, state, comm, task.order(epoch), broken=broken)
        return problem.part.columns.ids, solver.finish(problem, state, comm)

    parts = run_threads(ranks, work)
    coef = np.zeros((sum(ids.size for ids, _ in parts), task.y.shape[1]), task.dtype)
    for ids, own in parts:
        coef[ids] = own
    phi = task.X if task.basis == "linear" else task.kernel.block(task.X.copy(), task.X)
    return coef, phi @ coef


def steps(
    task: Task,
    solver: Solver[Any],
    problem: Problem,
    state: Any,
    comm: Communicator,
    batches: Sequence[IntArray],
    *,
    broken: bool = False,
) -> Any:
    """Return the state after these batches, the last of which ends an epoch."""
    for number, rows in enumerate(batches):
        weight = None if task.weight is None else task.weight[rows]
        batch = Batch(task.X[rows], task.y[rows], weight, rows, None, number == len(batches) - 1)
        state, loss = solver.step(problem, state, batch, comm)
        assert np.isfinite(loss)
        saved = solver.snapshot(problem, state)
        assert saved is not None
        if broken:
            whole = saved.gather_to(comm, range(comm.size))
            assert whole is not None
            state = solver.restore(problem, whole)
    return state


def objective(task: Task, f: HostArray, square: float) -> float:
    """Return the objective of a model with the values `f` at all rows and the squared norm `square`."""
    losses = task.loss.value(f, task.y)
    return float((losses if task.weight is None else losses * task.weight[:, 0]).mean()) + task.alpha / 2 * square
