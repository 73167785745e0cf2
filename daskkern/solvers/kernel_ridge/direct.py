"""The exact solution for the squared loss, by Cholesky: the reference for every other solver.

All rows as centres:  ``(W^(1/2) K W^(1/2) + n alpha) z = W^(1/2) y``, ``a = W^(1/2) z``      (n x n)
landmarks:            ``(K_ZX W K_XZ / n + alpha K_ZZ) a = K_ZX W y / n``                    (p x p)
explicit features:    ``(Phi^T W Phi / n + alpha I) a = Phi^T W y / n``                      (p x p)

Serial: one rank reads all rows once and holds the matrix in float64, on any cluster. A fit whose matrix does not fit
into memory raises an error with the sizes. An alpha of 0 means the jitter that makes the factor possible. A run that is
stopped within the solution has the exact one of its first columns: see
:mod:`daskkern.solvers.kernel_ridge.direct_solution`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.tiles import for_each, slices
from daskkern.basis import KernelPart
from daskkern.errors import DataError, SpecError
from daskkern.kernels import diagnose
from daskkern.linalg import DenseSolution, NotPositiveDefiniteError
from daskkern.linalg.dense import MOST_JITTER
from daskkern.losses import Loss, Squared
from daskkern.solvers.base import Solver
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.kernel_ridge.direct_costs import DirectCosts
from daskkern.solvers.kernel_ridge.direct_solution import DirectSolution, loss_of_columns, loss_of_rows
from daskkern.solvers.problem import Batch, Problem
from daskkern.solvers.setup import RankInputs, RankSetup
from daskkern.solvers.snapshot import Snapshot

_STRIP = 512
_AT_ONCE = 2048
"""Columns whose equations are solved in one piece."""


@dataclass(frozen=True)
class DirectSetup(RankSetup):
    """The set-up of the one rank: all columns, their points (p, ...) unless they are all rows, rows, and threads.

    `orthonormal` columns are explicit features, whose coefficients have the norm of the function.
    """

    whole: KernelPart
    centres: Array | None
    n_rows: int
    threads: int
    orthonormal: bool = False


@dataclass(frozen=True)
class DirectRun:
    """The state of a run.

    Attributes
    ----------
    matrix : (p, p) float64
        K as far as it has been filled, or the sum of ``w k(Z, x) k(x, Z)``. Written in place: there is no copy.
    right : (p, c) float64
        ``W^(1/2) y``, or the sum of ``w k(Z, x) y``.
    root : (n, 1) float64
        W^(1/2), with all rows as centres.
    square : float
        The sum of ``w y^2``.
    seen : int
        Rows so far.
    solution : DirectSolution or None
        The equations, while they are being solved, in place.
    coef : (p, c) array or None
        The solution, once it is known, or that of the first columns where the run was stopped.
    """

    matrix: FloatArray
    right: FloatArray
    root: FloatArray
    square: float = 0.0
    seen: int = 0
    solution: DirectSolution | None = None
    coef: FloatArray | None = None


@dataclass(frozen=True)
class Direct(Solver[DirectRun]):
    """The exact minimiser of the squared loss. Serial; always one epoch.

    Parameters
    ----------
    max_jitter : float
        The largest number that may be added to the diagonal of the matrix, over its mean, where rounding has made it
        indefinite. Kernel values in float32 have errors of 1e-7, so that their matrix may need 1e-6 to 1e-3, by which
        the penalty is larger than `alpha`; a fit that needs more is refused.

    Notes
    -----
    A fit can be stopped, as by Ctrl-C and `max_seconds`, after each batch; its model is then the exact one for the rows
    so far. More than 2,048 columns are solved in pieces of about half a second, after each of which it can be stopped,
    too; its model is then the exact one for the first columns (landmarks, features or rows).
    """

    name: ClassVar[str] = "direct"
    preparation: ClassVar[str] = "nothing"
    parallelism: ClassVar[str] = "nothing"
    suits_smooth_kernels: ClassVar[bool] = True
    long_steps: ClassVar[bool] = True
    solves_exactly: ClassVar[bool] = True
    bases: ClassVar[tuple[str, ...]] = (
        "all rows",
        "landmarks",
        "random features",
        "nystrom features",
        "linear",
        "locally linear",
    )
    ability: ClassVar[tuple[type[Squared], str] | None] = (Squared, "linear normal equations")
    max_jitter: float = MOST_JITTER

    def __post_init__(self) -> None:
        if not 0 <= self.max_jitter < 1:
            raise SpecError(f"got max_jitter={self.max_jitter!r}; expected a number from 0 to below 1")

    def most_epochs(self, requested: int) -> int:
        return min(requested, 1)

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return DirectCosts()

    def rank_setup(self, inputs: RankInputs) -> DirectSetup:
        centres = None if inputs.basis.all_rows else to_device(inputs.points, inputs.xp)
        return DirectSetup(inputs.part, centres, inputs.n_rows, inputs.threads, inputs.explicit)

    def init(self, problem: Problem[DirectSetup], comm: Communicator) -> DirectRun:
        if comm.size != 1:
            raise SpecError(f"solver direct is serial, but {comm.size} ranks were started")
        setup: DirectSetup = problem.extra
        p = setup.whole.points.size
        root = np.zeros((p if setup.centres is None else 0, 1))
        return DirectRun(np.zeros((p, p)), np.zeros((p, problem.n_outputs)), root)

    def step(
        self, problem: Problem[DirectSetup], state: DirectRun, batch: Batch, comm: Communicator
    ) -> tuple[DirectRun, float]:
        del comm
        setup: DirectSetup = problem.extra
        state = _fill(setup, state, batch) if setup.centres is None else _add(setup, state, batch)
        state = replace(state, seen=state.seen + batch.size)
        if not batch.last:
            return state, 0.0
        state = replace(state, solution=_solution(problem, setup, state, batch.X, self.max_jitter))
        return _at_once(problem, state) if len(state.matrix) <= _AT_ONCE else (state, 0.0)

    def after_rows(
        self, problem: Problem[DirectSetup], state: DirectRun, comm: Communicator, *, stop: bool
    ) -> tuple[DirectRun, float] | None:
        """Return the state after one more piece of the factorisation; see the base class.

        A run that is stopped within its pass has the solution for the rows so far.
        """
        del comm
        if stop and state.solution is None and state.coef is None and state.seen:
            state = replace(state, solution=_solution(problem, problem.extra, state, None, self.max_jitter))
            if len(state.matrix) <= _AT_ONCE:
                return _at_once(problem, state)
        return None if state.solution is None else _advanced(problem, state, stop=stop)

    def finish(self, problem: Problem[DirectSetup], state: DirectRun, comm: Communicator) -> Array:
        del comm
        coef = np.zeros_like(state.right) if state.coef is None else state.coef
        return coef[problem.part.columns.ids].astype(problem.dtype)

    def snapshot(self, problem: Problem[DirectSetup], state: DirectRun) -> Snapshot | None:
        del problem
        return None if state.coef is None else Snapshot({}, {"coef": state.coef})

    def restore(self, problem: Problem[DirectSetup], saved: Snapshot) -> DirectRun:
        shape = (problem.extra.whole.points.size, problem.n_outputs)
        if "coef" not in saved.whole or saved.whole["coef"].shape != shape:
            raise DataError("a saved state does not fit this direct solution: its coefficients have another shape")
        nothing = np.zeros((0, 0))
        return DirectRun(nothing, np.zeros(shape), nothing, coef=saved.whole["coef"])


def _fill(setup: DirectSetup, state: DirectRun, batch: Batch) -> DirectRun:
    """Write the batch's rows of K and of the right side."""
    y = to_host(batch.y).astype(np.float64)
    weight = np.ones((len(y), 1)) if batch.weight is None else to_host(batch.weight).astype(np.float64)
    for rows in batch.parts:
        assert batch.X is not None
        at = batch.positions[rows]
        state.matrix[at] = to_host(setup.whole.block(batch.X[rows]))
        state.matrix[at, at] = to_host(setup.whole.kernel.diagonal(batch.X[rows]))
    root = np.sqrt(weight)
    state.root[batch.positions] = root
    state.right[batch.positions] = root * y
    return replace(state, square=state.square + float((weight * y**2).sum()))


def _add(setup: DirectSetup, state: DirectRun, batch: Batch) -> DirectRun:
    """Add the batch's part of the normal equations."""
    y = to_host(batch.y).astype(np.float64)
    weight = np.ones((len(y), 1)) if batch.weight is None else to_host(batch.weight).astype(np.float64)
    for rows in batch.parts:
        assert batch.X is not None
        values = to_host(setup.whole.block(batch.X[rows])).astype(np.float64)
        weighted = (values * weight[rows]).T

        def strip(part: slice, values: FloatArray = values, weighted: FloatArray = weighted) -> None:
            state.matrix[part] += weighted[part] @ values

        for_each(slices(state.matrix.shape[0], _STRIP), strip)
        state.right[...] += weighted @ y[rows]
    return replace(state, square=state.square + float((weight * y**2).sum()))


def _solution(
    problem: Problem[DirectSetup], setup: DirectSetup, state: DirectRun, rows: Array | None, most: float
) -> DirectSolution:
    """Return the solution of the equations, which is still to be found. `most` is the largest jitter.

    Rows that were not seen have a weight of 0.
    """
    A, b = state.matrix, state.right
    if setup.centres is None:
        A *= state.root
        A *= state.root.T
        equations = DenseSolution(A, b, state.seen * problem.alpha, setup.threads, most)
        return DirectSolution(equations, state.root, loss_of_rows(A, b, state.seen), len(A), rows)
    n = state.seen
    A /= n
    b /= n
    penalise = _penalty(setup, setup.centres, problem.alpha, A)
    loss = loss_of_columns(b, state.square / n, penalise)
    return DirectSolution(DenseSolution(A, b, 0.0, setup.threads, most), None, loss, len(A), rows)


def _advanced(problem: Problem[DirectSetup], state: DirectRun, *, stop: bool) -> tuple[DirectRun, float]:
    """Return the state after one more piece of the solution, and the sum of the losses where it is known, else 0.

    With `stop` the state has the coefficients of the columns so far, at least of one piece.
    """
    solution, setup = state.solution, problem.extra
    assert solution is not None
    try:
        going_on = (stop and solution.equations.begun) or solution.equations.advance()
    except NotPositiveDefiniteError as error:
        raise DataError(_unsolved(setup, solution.rows, problem.dtype, str(error))) from None
    if going_on and not stop:
        return state, 0.0
    coef, loss = solution.so_far() if going_on else solution.found()
    return replace(state, matrix=np.zeros((0, 0)), solution=None, coef=coef), float(loss * state.seen)


def _at_once(problem: Problem[DirectSetup], state: DirectRun) -> tuple[DirectRun, float]:
    """Return the state with the whole solution, and the sum of the losses."""
    while (found := _advanced(problem, state, stop=False))[0].coef is None:
        pass
    return found


def _unsolved(setup: DirectSetup, batch_rows: Array | None, dtype: str, error: str) -> str:
    """Return the error message for normal equations without a factor."""
    known, remedy = f"the normal equations cannot be factored ({error})", "take a larger alpha, or dtype float64"
    if setup.orthonormal or batch_rows is None:
        return f"{known}; {remedy}"
    rows, named = (batch_rows, "rows") if setup.centres is None else (setup.centres, "landmarks")
    why = diagnose(setup.whole.kernel, rows, dtype, named, "take another length scale")
    return f"{known}: {why.found}; {why.remedy}, {remedy}"


def _penalty(setup: DirectSetup, centres: Array, alpha: float, A: FloatArray) -> Callable[[FloatArray], float]:
    """Add the matrix of ``alpha |f|^2`` to `A` in place, and return that penalty as a function of coefficients."""
    if setup.orthonormal:
        index = np.arange(len(A))
        A[index, index] += alpha
        return lambda coef: alpha * float((coef * coef).sum())
    K_ZZ = np.asarray(to_host(setup.whole.block(centres)), np.float64)
    for part in slices(len(A), _STRIP):
        A[part] += alpha * K_ZZ[part]
    return lambda coef: alpha * float((coef * (K_ZZ[: len(coef), : len(coef)] @ coef)).sum())
