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
from daskkern.solvers.support_vectors.machines import Limits, OneMachine, of_nu, of_nu_regression, penalised


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
    """The state of a run: targets (n, c) and weights (n,), float64, by row; then coefficients, offsets and the gap."""

    y: FloatArray
    weight: FloatArray
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
        if not batch.last:
            return state, 0.0
        found = self._solved(problem, state)
        coef = np.stack([each.coef for each in found], axis=1)
        offset = np.array([each.offset for each in found]) if problem.extra.with_offset else None
        gap, violation = sum(each.gap for each in found), max(each.violation for each in found)
        loss = problem.extra.n_rows * sum(each.loss for each in found)
        return replace(state, coef=coef, offset=offset, gap=gap, violation=violation), loss

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

    def _solved(self, problem: Problem[SVMSetup], state: SVMRun) -> list[OneMachine]:
        setup: SVMSetup = problem.extra
        rows, limits = setup.kernel_rows(problem.dtype, self.cache_bytes), Limits(self.tol, self.max_rounds)
        if not np.isfinite(rows.diagonal).all():
            raise DataError(f"the {problem.part.kernel.name} kernel is not finite on the rows; scale the features")
        if self.nu is not None and isinstance(problem.loss, Absolute):
            alpha, nu = float(problem.alpha), self.nu
            return [of_nu_regression(rows, y, state.weight, alpha, nu, limits) for y in state.y.T]
        if self.nu is not None:
            return [of_nu(rows, y, state.weight, self.nu, limits) for y in state.y.T]
        assert isinstance(problem.loss, BoxDual)
        boxes, alpha = problem.loss.dual_boxes(state.y), float(problem.alpha)
        outputs = [[box.of_output(output) for box in boxes] for output in range(problem.n_outputs)]
        return [penalised(rows, each, state.weight, alpha, setup.with_offset, limits) for each in outputs]

    def certificate(self, problem: Problem[SVMSetup], state: SVMRun) -> Certificate | None:
        if state.coef is None:
            return None
        support = int(state.coef.any(axis=1).sum())
        note = f"{support:,} support vectors; conditions of the optimum violated by {state.violation:.2g}"
        return Certificate("duality gap", state.gap, self.tol * problem.n_outputs, note)

    def offset(self, problem: Problem[SVMSetup], state: SVMRun) -> FloatArray | None:
        del problem
        return state.offset

    def finish(self, problem: Problem[SVMSetup], state: SVMRun, comm: Communicator) -> Array:
        del comm
        coef = np.zeros_like(state.y) if state.coef is None else state.coef
        return to_device(coef[problem.part.columns.ids].astype(problem.dtype), problem.part.namespace)

    def snapshot(self, problem: Problem[SVMSetup], state: SVMRun) -> Snapshot | None:
        del problem
        if state.coef is None:
            return None
        whole = {"coef": state.coef} if state.offset is None else {"coef": state.coef, "offset": state.offset}
        return Snapshot({}, whole, {"gap": state.gap, "violation": state.violation})

    def restore(self, problem: Problem[SVMSetup], saved: Snapshot) -> SVMRun:
        shape = (problem.extra.n_rows, problem.n_outputs)
        coef, offset = saved.whole.get("coef"), saved.whole.get("offset")
        if coef is None or coef.shape != shape or (offset is None) is problem.extra.with_offset:
            raise DataError("a saved state does not fit this support vector machine: its rows or outputs are others")
        numbers = saved.numbers
        return SVMRun(np.zeros(shape), np.ones(shape[0]), coef, offset, numbers["gap"], numbers["violation"])
