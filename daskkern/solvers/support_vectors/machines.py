"""The support vector machines as dual problems, their offsets, and their duality gaps.

With a loss in boxes: ``(1/n) sum_i w_i loss(f_i + beta, y_i) + (alpha/2) |f|^2``, of which the coefficients are
``b = w u / (alpha n)``, u in the boxes of the loss. With nu: ``(1/2) |f|^2 - nu rho + (1/n) sum_i w_i max(0, rho - y_i
(f_i + beta))``, divided by rho at the end, so that margins are 1; of numbers, ``(alpha/2) |f|^2 + nu eps + (1/n) sum_i
w_i max(0, |y_i - f_i - beta| - eps)``, which finds the tube eps, too. One class: :func:`one_class`.

References
----------
Cortes and Vapnik, "Support-vector networks", Machine Learning 1995. Schoelkopf, Smola, Williamson and Bartlett, "New
support vector algorithms", Neural Computation 2000, sections 3 and 7. Schoelkopf, Platt, Shawe-Taylor, Smola and
Williamson, "Estimating the support of a high-dimensional distribution", Neural Computation 2001, equations 3.4 and
3.11. Chang and Lin, "LIBSVM", 2011, sections 2.2 and 4.2.3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.errors import DataError
from daskkern.losses import DualBox
from daskkern.solvers.support_vectors.box_problem import BoxProblem, BoxSolution
from daskkern.solvers.support_vectors.decomposition import Between, Decomposition, solve_boxes
from daskkern.solvers.support_vectors.kernel_rows import KernelRows


@dataclass(frozen=True, eq=False)
class OneMachine:
    """A machine with one output.

    Attributes
    ----------
    coef : (n,) float64
        Coefficients of the kernels of all rows; most are 0.
    offset : float
        What is added to the scores.
    loss : float
        The mean loss, weighted, over the rows.
    gap : float
        The duality gap: by how much the objective may be above its least value.
    violation : float
        By how much a variable may still go against its gradient, in units of the scores.
    n_rounds, n_steps : int
        Working sets, and steps within them.
    """

    coef: FloatArray
    offset: float
    loss: float
    gap: float
    violation: float
    n_rounds: int
    n_steps: int


@dataclass(frozen=True)
class Limits:
    """Where a solution ends: the violation, in units of the scores, and the most working sets.

    `between` is called after each working set of :func:`one_class`; an exception of it ends the solution.
    """

    tol: float
    max_rounds: int
    between: Callable[[], None] = lambda: None


@dataclass(frozen=True, eq=False)
class DualMachine:
    """A machine that is to be found, as a dual problem.

    Attributes
    ----------
    problem : BoxProblem
    judged : callable
        Returns the machine of a solution, which may be one between two working sets.
    constant : callable
        Returns the best machine without kernels.
    check : callable
        Raises DataError for the machine of a solution at its end that is none.
    """

    problem: BoxProblem
    judged: Callable[[BoxSolution], OneMachine]
    constant: Callable[[], OneMachine]
    check: Callable[[BoxSolution], None] = lambda found: None

    def begun(self, rows: KernelRows, limits: Limits, between: Between | None = None) -> Decomposition:
        """Return the solution at its beginning, or where an earlier one was."""
        return Decomposition(self.problem, rows, limits.tol, limits.max_rounds, between)

    def solved(self, rows: KernelRows, limits: Limits) -> OneMachine:
        """Return the machine, solved to the limits. Raises DataError where there is none."""
        solution = self.begun(rows, limits)
        while solution.advance():
            pass
        found = solution.found()
        self.check(found)
        return self.judged(found)


def penalised(boxes: Sequence[DualBox], weight: FloatArray, alpha: float, with_offset: bool) -> DualMachine:
    """Return the machine of least penalised loss, from the boxes (n, 1) of the loss and the weights (n,)."""
    n, scale = len(weight), weight / (alpha * len(weight))
    low, high, slope = (
        np.concatenate([factor * values[:, 0] for values in parts])
        for factor, parts in (
            (scale, [box.low for box in boxes]),
            (scale, [box.high for box in boxes]),
            (1.0, [box.slope for box in boxes]),
        )
    )
    row = np.tile(np.arange(n), len(boxes))
    start = np.clip(np.zeros(row.size), low, high)
    problem = BoxProblem(row, slope, low, high, start, np.zeros(row.size, np.int64), with_offset)

    def losses(f: FloatArray | float) -> float:  # a loss is its biconjugate: the largest of -u (f + slope) in each box
        return float(np.maximum(-low * (f + slope), -high * (f + slope)).sum())

    def judged(found: BoxSolution) -> OneMachine:
        offset = float(found.levels[0]) if with_offset else 0.0
        coef, total = problem.coefficients(found.b, n), losses(found.f[row] + offset)
        gap = alpha * (total + float(slope @ found.b + coef @ found.f))
        return _machine(coef, offset, alpha * total, gap, found)

    def constant() -> OneMachine:
        offset = _best_constant(low, high, slope) if with_offset else 0.0
        loss = alpha * losses(offset)
        return OneMachine(np.zeros(n), offset, loss, loss, np.inf, 0, 0)

    return DualMachine(problem, judged, constant)


def of_nu(y: FloatArray, weight: FloatArray, nu: float) -> DualMachine:
    """Return the machine whose margin errors are at most the share `nu` of the weight, for targets (n,) of -1 and 1.

    Raises
    ------
    DataError
        For a `nu` that the smaller class is too small for.
    """
    n, total = len(y), float(weight.sum())
    shares = [float(weight[y * sign > 0].sum()) for sign in (1, -1)]
    most = 2 * min(shares) / total
    if nu > most:
        raise DataError(
            f"got nu={nu} for the solver svm, but with {min(shares) / total:.3g} of the weight in the smaller class "
            f"it can be at most {most:.3g}; give a smaller nu, or alpha in place of it"
        )
    groups = (y < 0).astype(np.int64)
    start = np.zeros(n)
    for sign in (1, -1):
        start[y * sign > 0] = sign * _filled(weight[y * sign > 0], nu * total / 2)
    low, high = np.where(y > 0, 0.0, -weight), np.where(y > 0, weight, 0.0)
    problem = BoxProblem(np.arange(n), np.zeros(n), low, high, start, groups)

    def margin(found: BoxSolution) -> float:
        return float(found.levels[1] - found.levels[0]) / 2

    def judged(found: BoxSolution) -> OneMachine:
        offset, rho = float(found.levels.mean()), margin(found)
        errors = np.maximum(rho - y * (found.f + offset), 0)
        gap = (float(found.b @ found.f) - nu * total * rho + float(weight @ errors)) / n
        unit = rho if abs(rho) > 0 else 1.0  # the signs as LIBSVM has them: a margin below 0 stays one
        return _machine(found.b / unit, offset / unit, float(weight @ errors) / (n * abs(unit)), gap, found)

    def constant() -> OneMachine:
        offset = 1.0 if shares[0] >= shares[1] else -1.0
        return OneMachine(np.zeros(n), offset, 2 * min(shares) / n, np.inf, np.inf, 0, 0)

    def check(found: BoxSolution) -> None:
        if not abs(margin(found)) > 0:
            raise DataError(f"the classes cannot be separated with nu={nu}: the margin is 0; give a larger nu")

    return DualMachine(problem, judged, constant, check)


def of_nu_regression(y: FloatArray, weight: FloatArray, alpha: float, nu: float) -> DualMachine:
    """Return the machine for numbers (n,) outside of whose tube is at most the share `nu` of the weight.

    Coefficients above and below 0 are variables of their own, each of which add up to ``nu / (2 alpha)``: of free ones
    above, ``y - f - beta = eps``, of those below ``-eps``. The loss is the absolute one, of which the tube is a part.
    """
    n = len(y)
    most = weight / (alpha * n)
    total, none = float(most.sum()), np.zeros(n)
    part = _filled(most, nu * total / 2)
    groups = np.repeat(np.array([0, 1]), n)
    row, slope = np.tile(np.arange(n), 2), np.concatenate([-y, -y])
    low, high = np.concatenate([none, -most]), np.concatenate([most, none])
    problem = BoxProblem(row, slope, low, high, np.concatenate([part, -part]), groups)

    def judged(found: BoxSolution) -> OneMachine:
        offset, tube = float(found.levels.mean()), max(0.0, float(found.levels[0] - found.levels[1]) / 2)
        errors = np.abs(y - found.f - offset)
        coef = problem.coefficients(found.b, n)
        dual = float(coef @ found.f) - float(y @ coef)
        gap = alpha * (dual + float(most @ np.maximum(errors - tube, 0)) + nu * total * tube)
        return _machine(coef, offset, alpha * float(most @ errors), gap, found)

    def constant() -> OneMachine:
        offset = _best_constant(-most, most, -y)
        return OneMachine(np.zeros(n), offset, alpha * float(most @ np.abs(y - offset)), np.inf, np.inf, 0, 0)

    return DualMachine(problem, judged, constant)


def one_class(rows: KernelRows, weight: FloatArray, nu: float, limits: Limits) -> OneMachine:
    """Return ``f = sum_i a_i k(x_i, .)`` with ``sum_i a_i = 1``, and the offset -rho: negative for outliers.

    ``min (1/2) |f|^2 - rho + (1 / (nu sum w)) sum_i w_i max(0, rho - f_i)``, of which `gap` is the duality gap.
    """
    total = float(weight.sum())
    if not total > 0:
        raise DataError("the sample weights add up to 0; give some rows a positive weight")
    n, mass = len(weight), nu * total
    problem = BoxProblem(np.arange(n), np.zeros(n), np.zeros(n), weight, _filled(weight, mass), np.zeros(n, np.int64))
    found = solve_boxes(problem, rows, limits.tol, limits.max_rounds, limits.between)
    rho = -float(found.levels[0])
    below = float(weight @ np.maximum(rho - found.f, 0))
    gap = float(found.b @ found.f) - mass * rho + below
    return _machine(found.b / mass, -rho / mass, below / (total * mass), gap / mass**2, found)


def _machine(coef: FloatArray, offset: float, loss: float, gap: float, found: BoxSolution) -> OneMachine:
    return OneMachine(coef, offset, loss, max(gap, 0.0), found.violation, found.n_rounds, found.n_steps)


def _best_constant(low: FloatArray, high: FloatArray, slope: FloatArray) -> float:
    """Return the scores of least loss among those that are the same for all rows: a weighted quantile of the kinks."""
    order = np.argsort(-slope, kind="stable")
    rising = np.cumsum((high - low)[order]) >= high.sum()
    return -float(slope[order[int(rising.argmax())]])


def _filled(weight: FloatArray, total: float) -> FloatArray:
    """Return variables from 0 to `weight` that add up to `total`: the first ones are full."""
    before = np.cumsum(weight) - weight
    return np.clip(total - before, 0, weight)
