"""A bench for solvers: small problems, and a trainer that does nothing but hand out batches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import KernelBasis
from daskkern.kernels import Kernel, Laplacian
from daskkern.linalg import column_blocks, distributed_factor
from daskkern.losses import Loss, encode
from daskkern.preconditioners import EigenProState, NystromState, SpectrumSettings, eigenpro_state, nystrom_state
from daskkern.solvers import Batch, EigenPro, NystromSGD, Problem, Solver
from daskkern.solvers.eigenpro.projectors import IterativeProjector, LeadingDirections
from daskkern.solvers.eigenpro.state import EigenProSetup, Projector
from daskkern.solvers.nystrom_sgd import NystromSetup
from daskkern.solvers.nystrom_sgd.setup import feature_columns
from tests.support.threads import run_threads


@dataclass(frozen=True)
class Toy:
    """A training problem whose batches are the same in every epoch."""

    X: HostArray
    y: HostArray
    loss: Loss
    batches: tuple[IntArray, ...]
    epochs: int = 1
    alpha: float = 0.0
    weight: HostArray | None = None
    kernel: Kernel = Laplacian(3.0)

    @property
    def n(self) -> int:
        return len(self.X)

    def as_type(self, dtype: str) -> "Toy":
        weight = None if self.weight is None else self.weight.astype(dtype)
        return replace(self, X=self.X.astype(dtype), y=self.y.astype(dtype), weight=weight)

    def batch(self, number: int) -> IntArray:
        return self.batches[number % len(self.batches)]


def toy(
    loss: Loss, n: int = 60, n_batches: int = 4, *, epochs: int = 1, alpha: float = 0.0, weighted: bool = False
) -> Toy:
    """Three separable but noisy classes, or two smooth targets; batches of unequal sizes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    scores = np.stack([X[:, 0], np.sin(2 * X[:, 1]), X[:, 2] * X[:, 3]], axis=1) + 0.3 * rng.standard_normal((n, 3))
    y = encode(loss, scores.argmax(axis=1), 3, "float64") if "regression" not in loss.tasks else scores[:, :2]
    weight = rng.uniform(0.3, 2.5, (n, 1)) if weighted else None
    batches = tuple(np.array_split(rng.permutation(n), n_batches))
    return Toy(X, y, loss, batches, epochs, alpha, None if weight is None else weight / weight.mean())


@dataclass(frozen=True)
class Setup:
    """What all ranks share: centres (None: all rows), S among the columns, and the spectrum."""

    toy: Toy
    solver: Solver[Any]
    centres: IntArray | None
    head: IntArray
    state: Any
    window: int = 1

    @property
    def points(self) -> HostArray:
        return self.toy.X if self.centres is None else self.toy.X[self.centres]

    @property
    def S(self) -> IntArray:  # noqa: N802
        """Row numbers of the preconditioner's subsample."""
        return self.head if self.centres is None else self.centres[self.head]


def eigenpro(
    problem: Toy, solver: EigenPro, *, centres: int | None = None, s: int = 25, q: int = 4, window: int = 1
) -> Setup:
    """Set up EigenPro on all rows, or on `centres` of them."""
    order = np.random.default_rng(1).permutation(problem.n)
    chosen = None if centres is None else order[:centres]
    head = np.sort(order[:s]) if centres is None else np.arange(s)
    S = head if chosen is None else chosen[head]
    H = np.setdiff1d(np.arange(problem.n), S)
    w = None if problem.weight is None else problem.weight[:, 0].astype(np.float64)
    state = eigenpro_state(
        problem.kernel,
        problem.X[S],
        None if w is None else w[S],
        problem.X[H],
        None if w is None else w[H],
        SpectrumSettings(q, solver.rho, solver.tau),
        problem.n,
        0,
    )
    return Setup(problem, solver, chosen, head, state, window)


def nystrom(problem: Toy, solver: NystromSGD, *, centres: int = 25, k: int | None = None) -> Setup:
    """Set up Nystrom-SGD on `centres` rows."""
    chosen = np.random.default_rng(1).permutation(problem.n)[:centres]
    Z = problem.X[chosen]
    points = problem.kernel.points(Z, problem.kernel.placement_for(Z))

    def part(T: HostArray) -> Any:
        phi = problem.kernel.block(problem.X, points) @ T
        return phi.T @ (phi if problem.weight is None else problem.weight * phi)

    w = None if problem.weight is None else problem.weight[:, 0]
    state = nystrom_state(problem.kernel, Z, [part], problem.n, problem.X, w, k)
    return Setup(problem, solver, chosen, np.zeros(0, np.int64), state)


def train(
    setup: Setup, ranks: int = 1, steps: int | None = None, *, iterative: float = 0.0, stored: bool = False
) -> HostArray:
    """Return coefficients (p, c) after `steps` steps, or after all epochs.

    `iterative`: the residual of the projector by iteration, in place of the exact one. `stored`: eigenfeatures are
    handed out.
    """
    problem = setup.toy
    p = len(setup.points)
    basis = KernelBasis(
        problem.kernel, p, setup.head, setup.centres is None, problem.kernel.placement_for(setup.points)
    )

    def work(comm: Communicator) -> tuple[IntArray, HostArray]:
        columns = basis.split(comm.rank, comm.size)
        part = basis.part(columns, setup.points[columns.ids])
        if isinstance(setup.state, NystromState):
            extra, features = _nystrom_extra(setup, columns.ids, comm, stored)
        else:
            extra, features = _eigenpro_extra(setup, basis, columns.ids, columns.n_head, comm, iterative), None
        whole = Problem(
            part,
            problem.loss,
            problem.alpha,
            problem.y.shape[1],
            len(problem.batches),
            max(problem.epochs, -(-(steps or 0) // len(problem.batches))),
            problem.X.dtype.name,
            extra,
        )
        return columns.ids, _steps(setup, whole, comm, steps, features)

    coef = np.full((p, problem.y.shape[1]), np.nan, problem.X.dtype)
    for ids, own in run_threads(ranks, work):
        assert own.dtype == problem.X.dtype
        coef[ids] = own
    return coef


def scores(setup: Setup, coef: HostArray, X: HostArray | None = None) -> HostArray:
    """Return the model's values at all rows, or at `X`."""
    problem = setup.toy
    return problem.kernel.block(problem.X.copy() if X is None else X, setup.points) @ coef


def _steps(
    setup: Setup, whole: Problem, comm: Communicator, steps: int | None, features: HostArray | None
) -> HostArray:
    problem, solver = setup.toy, setup.solver
    state = solver.init(whole, comm)
    for number in range(whole.n_steps if steps is None else steps):
        rows = problem.batch(number)
        batch = Batch(
            problem.X[rows],
            problem.y[rows],
            None if problem.weight is None else problem.weight[rows],
            rows,
            None if features is None else features[rows],
            (number + 1) % len(problem.batches) == 0,
        )
        state, loss = solver.step(whole, state, batch, comm)
        assert np.isfinite(loss)
    return solver.finish(whole, state, comm)


def _nystrom_extra(
    setup: Setup, ids: IntArray, comm: Communicator, stored: bool
) -> tuple[NystromSetup, HostArray | None]:
    state: NystromState = setup.state
    dtype = setup.toy.X.dtype.name
    if not stored:
        return NystromSetup(state, state.part(ids, dtype), None), None
    r = state.preconditioner.size
    mine, blocks = feature_columns(r, comm.rank, comm.size)
    psi = setup.toy.kernel.block(setup.toy.X.copy(), setup.points) @ state.M
    return NystromSetup(state, state.part(ids, dtype), mine, blocks), np.ascontiguousarray(psi[:, mine])


def _eigenpro_extra(
    setup: Setup, basis: KernelBasis, ids: IntArray, n_head: int, comm: Communicator, iterative: float
) -> EigenProSetup:
    state: EigenProState = setup.state
    dtype, points = setup.toy.X.dtype.name, setup.points
    part = state.part(np.searchsorted(setup.head, ids[:n_head]), dtype)
    heads = tuple(basis.split(comm.rank, comm.size).head_blocks)
    rows = points[ids[:n_head]] if setup.centres is None else points[ids]
    directions = (state.vectors * state.damping).astype(dtype)
    damped = basis.kernel.block(rows, basis.points(points[setup.head])) @ directions
    if setup.centres is None:
        order = np.argsort(ids)
        return EigenProSetup(state, part, damped, None, 1, heads, order, ids[order])
    projector: Projector
    if iterative:
        projector = iterative_projector(setup, basis, state, damped, comm, iterative)
    else:
        layout = column_blocks(len(points), comm.rank, comm.size, setup.head.size)
        K = basis.kernel.block(points, points)
        panels = [K[layout.blocks[k].start :, layout.blocks[k]].copy() for k in layout.own]
        projector = distributed_factor(panels, layout, 10 * float(np.finfo(dtype).eps), comm)
    return EigenProSetup(state, part, damped, projector, setup.window, heads)


def iterative_projector(
    setup: Setup, basis: KernelBasis, state: EigenProState, damped: HostArray, comm: Communicator, tol: float
) -> IterativeProjector:
    """Return the projector by iteration of a rank whose damped directions are `damped`."""
    columns, p = basis.split(comm.rank, comm.size), len(setup.points)
    counts = tuple(basis.split(rank, comm.size).ids.size for rank in range(comm.size))
    own = setup.points[columns.ids]
    directions = LeadingDirections.of(state, damped, columns.blocks, p, comm)
    return IterativeProjector(basis.part(columns, own), own, counts, directions, chunk=25, tol=tol)


def gradient(problem: Toy, f: HostArray, rows: Sequence[int] | IntArray) -> HostArray:
    """Return g, weights inside, at the rows of a batch for the values `f` of the model at all rows."""
    g = problem.loss.gradient(f[rows], problem.y[rows])
    return g if problem.weight is None else g * problem.weight[rows]
