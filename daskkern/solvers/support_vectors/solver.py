"""Support vector machines solved to a duality gap by working sets, with cached kernel rows.

What is minimised is what every solver minimises, for losses whose dual is a quadratic function in boxes (hinge,
epsilon-insensitive, absolute, quantile): ``(1/n) sum_i w_i loss(f_i, y_i) + (alpha/2) |f|^2``, with scikit-learn's
``C = 1 / (alpha n)``, and a constant without penalty, which other solvers lack for losses with kinks. The model has
the support vectors alone. Several classes are one against the rest, each to its own gap, with the kernel rows of all.

Serial: one rank has all rows, and the memory of `cache_bytes` for kernel rows.

References
----------
See :mod:`daskkern.solvers.support_vectors.decomposition` and :mod:`daskkern.solvers.support_vectors.machines`.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_device, to_host
from daskkern.errors import DataError, SpecError
from daskkern.losses import Absolute, BoxDual, Hinge, Loss
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.problem import Batch, Certificate, Problem
from daskkern.solvers.setup import RankInputs, RankSetup
from daskkern.solvers.snapshot import Snapshot
from daskkern.solvers.support_vectors.costs import SVMCosts
from daskkern.solvers.support_vectors.decomposition import WORKING_SET
from daskkern.solvers.support_vectors.kernel_rows import KernelRows
from daskkern.solvers.support_vectors.machines import DualMachine, Limits, of_nu, of_nu_regression, penalised
from daskkern.solvers.support_vectors.several_machines import MachinesInTurn, stacked, totals


@dataclass(frozen=True)
class SVMSetup(RankSetup):
    """The set-up of the one rank: the rows (n, d), their number, how they become points, and the offset."""

    inputs: RankInputs
    X: Array
    n_rows: int
    with_offset: bool

    def kernel_rows(self, dtype: str, cache_bytes: int) -> KernelRows:
        """Return the rows of the kernel matrix of all training rows, none of them computed yet."""
        basis, kernel = self.inputs.basis, self.inputs.part.kernel
        return KernelRows(kernel, self.X, basis.points, dtype, cache_bytes, WORKING_SET)


@dataclass(frozen=True)
class SVMRun:
    """The state of a run.

    Attributes
    ----------
    y, weight : (n, c) and (n,) float64
        Targets and weights by row, which batches fill in.
    solution : MachinesInTurn or None
        The machines, while they are being solved, in place; then None.
    coef, offset : (n, c) and (c,) float64, or None
        Of the model, at the end, or where the run was stopped.
    gap, violation : float
        As they were last known.
    """

    y: FloatArray
    weight: FloatArray
    solution: MachinesInTurn | None = None
    coef: FloatArray | None = None
    offset: FloatArray | None = None
    gap: float = -1.0
    violation: float = 0.0


@dataclass(frozen=True)
class SVM(Solver[SVMRun]):
    """An exact support vector machine, for up to about 50,000 rows. Serial; always one epoch.

    Parameters
    ----------
    tol : float
        By how much the conditions of the optimum may be violated, in units of the scores, as LIBSVM's. The duality
        gap, which the history reports, is then at most `tol` for each output.
    nu : float or None
        Above 0, at most 1, with an offset. For the hinge loss the most weight of rows within the margin, as a share,
        and the least of support vectors, in place of `alpha`, which must be 0 or "auto": scikit-learn's ``NuSVC``. For
        the absolute loss the most weight of rows outside a tube around the model, whose errors do not count and whose
        width is found; `alpha` must be above 0: ``NuSVR``, with ``C = 1 / (alpha n)``.
    cache_bytes : int
        Memory for kernel rows. Where it does not hold all, rows at the edges of their boxes are left out of them until
        the end.
    max_rounds : int
        Most working sets of an output. The fit then ends with the gap that it has, and a warning.

    Notes
    -----
    Working sets follow the one pass over the rows. After each the fit can be stopped, as by Ctrl-C and `max_seconds`,
    and a commit holds the dual variables, with which another run goes on. A model that was stopped has the outputs
    solved so far, and constant scores for the others.
    """

    name: ClassVar[str] = "svm"
    preparation: ClassVar[str] = "nothing"
    suits_smooth_kernels: ClassVar[bool] = True
    parallelism: ClassVar[str] = "nothing"
    bases: ClassVar[tuple[str, ...]] = ("all rows",)
    ability: ClassVar[tuple[type[Any], str] | None] = (BoxDual, "a dual in boxes, without curvature")
    drops_zeros: ClassVar[bool] = True
    own_limit: ClassVar[str] = "max_rounds"

    tol: float = 1e-3
    nu: float | None = None
    cache_bytes: int = 1 << 30
    max_rounds: int = 100_000

    def __post_init__(self) -> None:
        if not self.tol > 0:
            raise SpecError(f"got tol={self.tol!r} for SVM; give a positive number")
        if self.nu is not None and (isinstance(self.nu, bool | str) or not 0 < self.nu <= 1):
            raise SpecError(f"got nu={self.nu!r} for SVM; give a number above 0, at most 1, or None")
        for name in ("cache_bytes", "max_rounds"):
            if not is_whole(getattr(self, name), 1):
                raise SpecError(f"got {name}={getattr(self, name)!r} for SVM; give a whole number of at least 1")

    @property
    def takes_alpha(self) -> bool:
        return self.nu is None

    def most_epochs(self, requested: int) -> int:
        return min(requested, 1)

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return SVMCosts(self.cache_bytes)

    def rank_setup(self, inputs: RankInputs) -> SVMSetup:
        return SVMSetup(inputs, to_device(inputs.points, inputs.xp), inputs.n_rows, inputs.with_offset)

    def init(self, problem: Problem[SVMSetup], comm: Communicator) -> SVMRun:
        if comm.size != 1:
            raise SpecError(f"solver svm is serial, but {comm.size} ranks were started")
        self._check(problem)
        n = problem.extra.n_rows
        return SVMRun(np.zeros((n, problem.n_outputs)), np.ones(n))

    def step(self, problem: Problem[SVMSetup], state: SVMRun, batch: Batch, comm: Communicator) -> tuple[SVMRun, float]:
        del comm
        state.y[batch.positions] = to_host(batch.y)
        if batch.weight is not None:
            state.weight[batch.positions] = to_host(batch.weight)[:, 0]
        if batch.last:
            state = replace(state, solution=self._solution(problem, state))
        return state, 0.0

    def after_rows(
        self, problem: Problem[SVMSetup], state: SVMRun, comm: Communicator, *, stop: bool
    ) -> tuple[SVMRun, float] | None:
        """Return the state after one more working set, and the losses as they were last known; see the base class.

        A stopped run has the machines that are solved, the one that was being solved, and constants for the others.
        """
        del comm
        solution = state.solution
        if solution is None:
            return None
        going_on = not stop and solution.advance()
        machines = solution.known() if going_on else solution.settled()
        loss, gap, violation = totals(machines)
        state = replace(state, gap=gap, violation=violation)
        if not going_on:
            coef, offset = stacked(machines)
            offset_or_none = offset if problem.extra.with_offset else None
            state = replace(state, coef=coef, offset=offset_or_none, solution=solution if stop else None)
        return state, problem.extra.n_rows * loss

    def _check(self, problem: Problem[SVMSetup]) -> None:
        """Raise SpecError for a penalty, a loss or an offset that do not go with `nu`."""
        if self.nu is None:
            if not problem.alpha > 0:
                raise SpecError(
                    f"solver svm needs alpha above 0, but it is {problem.alpha:g}; give alpha, which is 1 / (C n) in "
                    "terms of scikit-learn's C, or solver.nu"
                )
            return
        if not isinstance(problem.loss, Hinge | Absolute) or not problem.extra.with_offset:
            raise SpecError(
                f"got nu={self.nu} for solver svm with the {problem.loss.name} loss; nu works "
                "with the hinge and absolute losses and fit_intercept=True; otherwise give alpha"
            )
        if isinstance(problem.loss, Absolute):
            if not problem.alpha > 0:
                raise SpecError(
                    f"solver svm with nu={self.nu} and the absolute loss needs alpha above 0, but it is "
                    f"{problem.alpha:g}; give alpha, which is 1 / (C n) in terms of scikit-learn's C"
                )
            return
        if problem.alpha:
            raise SpecError(
                f"got alpha={problem.alpha} and nu={self.nu} for solver svm, of which nu takes the place of alpha; "
                "give alpha=0 with nu"
            )

    def _solution(self, problem: Problem[SVMSetup], state: SVMRun) -> MachinesInTurn:
        setup: SVMSetup = problem.extra
        rows, limits = setup.kernel_rows(problem.dtype, self.cache_bytes), Limits(self.tol, self.max_rounds)
        if not np.isfinite(rows.diagonal).all():
            raise DataError(f"the {problem.part.kernel.name} kernel is not finite on the rows; scale the features")
        return MachinesInTurn(self._machines(problem, state), rows, limits)

    def _machines(self, problem: Problem[SVMSetup], state: SVMRun) -> list[DualMachine]:
        """Return the machines of all outputs."""
        alpha, nu = float(problem.alpha), self.nu
        if nu is not None and isinstance(problem.loss, Absolute):
            return [of_nu_regression(y, state.weight, alpha, nu) for y in state.y.T]
        if nu is not None:
            return [of_nu(y, state.weight, nu) for y in state.y.T]
        assert isinstance(problem.loss, BoxDual)
        boxes, with_offset = problem.loss.dual_boxes(state.y), problem.extra.with_offset
        outputs = [[box.of_output(output) for box in boxes] for output in range(problem.n_outputs)]
        return [penalised(each, state.weight, alpha, with_offset) for each in outputs]

    def certificate(self, problem: Problem[SVMSetup], state: SVMRun) -> Certificate | None:
        if state.coef is None and state.solution is None:
            return None
        note = ""
        if state.coef is not None:
            support = int(state.coef.any(axis=1).sum())
            note = f"{support:,} support vectors; conditions of the optimum violated by {state.violation:.2g}"
        bound = np.inf if self.nu is not None else state.gap  # with nu, of another objective
        return Certificate("duality gap", state.gap, self.tol * problem.n_outputs, note, bound)

    def offset(self, problem: Problem[SVMSetup], state: SVMRun) -> FloatArray | None:
        del problem
        return state.offset

    def finish(self, problem: Problem[SVMSetup], state: SVMRun, comm: Communicator) -> Array:
        del comm
        coef = np.zeros_like(state.y) if state.coef is None else state.coef
        return to_device(coef[problem.part.columns.ids].astype(problem.dtype), problem.part.namespace)

    def snapshot(self, problem: Problem[SVMSetup], state: SVMRun) -> Snapshot | None:
        del problem
        if state.solution is not None:
            return Snapshot({}, {"y": state.y, "weight": state.weight, **state.solution.arrays()}, {})
        if state.coef is None:
            return None
        whole = {"coef": state.coef} if state.offset is None else {"coef": state.coef, "offset": state.offset}
        return Snapshot({}, whole, {"gap": state.gap, "violation": state.violation})

    def restore(self, problem: Problem[SVMSetup], saved: Snapshot) -> SVMRun:
        """Return the state of a snapshot.

        Working sets that follow give the same bits where no rows were left out at the snapshot, and the values of
        kernel rows do not depend on those that are computed with them; else the same optimum, to the tolerance.
        """
        n, whole = problem.extra.n_rows, saved.whole
        if "b" in whole:
            y, weight = whole["y"], whole["weight"]
            if y.shape != (n, problem.n_outputs) or weight.shape != (n,):
                raise DataError(_OTHER)
            run = SVMRun(y, weight)
            solution = self._solution(problem, run)
            solution.restore(whole)
            return replace(run, solution=solution)
        coef, offset, numbers = whole.get("coef"), whole.get("offset"), saved.numbers
        if coef is None or coef.shape != (n, problem.n_outputs) or (offset is None) is problem.extra.with_offset:
            raise DataError(_OTHER)
        run = SVMRun(np.zeros(coef.shape), np.ones(n), None, coef, offset)
        return replace(run, gap=numbers["gap"], violation=numbers["violation"])


_OTHER = "a saved state does not fit this support vector machine: its rows or outputs are others"
