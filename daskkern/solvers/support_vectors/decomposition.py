"""Decomposition of a dual problem into working sets, with cached kernel rows, shrinking, and all scores at the end.

A round takes the variables that violate the conditions of the optimum most, beside the newer half of the last ones,
has their kernel rows computed or finds them in memory, solves their problem (:mod:`.block_problem`), and adds the
change to the gradient of all variables. Where memory holds only some of the rows, variables that stay at an edge of
their box are left out, and the rows that are kept have fewer columns. At the end the scores of rows that were left
out are completed by the changes since, and the conditions are checked for all variables. Where the rounding of all
changes may exceed that of one sum over the coefficients, all scores are computed from the coefficients: neither
rounding nor what was left out can be mistaken for the optimum.

References
----------
Joachims, "Making large-scale SVM learning practical", 1999, sections 11.2 and 11.4 (working sets, shrinking).
Wen, Shi, Li, He and Chen, "ThunderSVM: a fast SVM library on GPUs and CPUs", JMLR 2018 (working sets that keep half).
Fan, Chen and Lin, "Working set selection using second order information", JMLR 2005 (steps, stopping rule).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, IntArray
from daskkern.solvers.support_vectors.block_problem import BlockProblem, BlockSteps, solve_plainly
from daskkern.solvers.support_vectors.box_problem import BoxProblem, BoxSolution, levels_of, violations
from daskkern.solvers.support_vectors.kernel_rows import KernelRows
from daskkern.solvers.support_vectors.working_sets import Here, expanded, in_groups, padded, worst

try:
    from daskkern.solvers.support_vectors import compiled_block
except ModuleNotFoundError as error:  # llvmlite is missing
    if error.name is None or not error.name.startswith("llvmlite"):
        raise
    _compiled = False
else:
    _compiled = compiled_block.is_compilable()

WORKING_SET = 1024
"""Variables of a working set."""
_SHARE = 0.1  # of the violation that a working set begins with, at which it is left
_STEPS = 100  # most steps of a working set, times its size
_SHRINK_EVERY = 10
_WORTH = 0.8  # columns are left out where at most this share remains
_CHECKS = 20  # most completions of the scores
_ROUNDING = 0.1  # of the tolerance that the rounding of changes may reach
_REPEATED = 4  # or so many times the rounding of one sum over the coefficients


def solve_block(problem: BlockProblem, tol: float, share: float, most: int) -> BlockSteps:
    """Take the steps of :func:`solve_plainly` in machine code, where it can be made, with the same bits."""
    solve = compiled_block.solve_compiled if _compiled else solve_plainly
    return solve(problem, tol, share, most)


def solve_boxes(
    problem: BoxProblem, rows: KernelRows, tol: float, max_rounds: int, between: Callable[[], None] = lambda: None
) -> BoxSolution:
    """Return the solution at which no variable violates the conditions of the optimum by more than `tol`.

    Parameters
    ----------
    problem : BoxProblem
    rows : KernelRows
        Of all rows of the problem, that keep at least WORKING_SET rows.
    tol : float
        In units of the scores, as LIBSVM's.
    max_rounds : int
        Most working sets; with these used up, the violation in the solution is larger.
    between : callable
        Called after each working set; an exception of it ends the solution.
    """
    solution = Decomposition(problem, rows, tol, max_rounds)
    while solution.advance():
        between()
    return solution.found()


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """Columns that were left out, and the coefficients (n,) that their scores are of."""

    columns: IntArray
    coef: FloatArray


@dataclass(frozen=True, eq=False)
class Between:
    """A solution between two working sets, from which another one can go on.

    Attributes
    ----------
    b : (v,) float64
        Variables.
    f : (n,) float64 or None
        Scores, with which the solution goes on with the same bits; None where rows are left out of them. They are then
        computed from the variables.
    last : (q,) int64
        The last working set, oldest first.
    moved : float
        Sum of squared changes of coefficients that `f` has the rounding of.
    n_rounds : int
        Working sets so far.
    """

    b: FloatArray
    f: FloatArray | None
    last: IntArray
    moved: float
    n_rounds: int


class Decomposition:
    """One solution, a working set at a time.

    Parameters are those of :func:`solve_boxes`; `between` is where an earlier solution of the same problem ended.
    """

    def __init__(
        self, problem: BoxProblem, rows: KernelRows, tol: float, max_rounds: int, between: Between | None = None
    ) -> None:
        self._problem, self._rows, self._tol, self._max_rounds = problem, rows, tol, max_rounds
        self._b = problem.start.copy() if between is None else between.b.copy()
        self._last = np.zeros(0, np.int64) if between is None else between.last
        self._rounds = 0 if between is None else between.n_rounds
        self._steps, self._computed, self._checks = 0, rows.computed, 0
        self._unit = rows.rounding  # of a score by a coefficient of 1
        self._left_out: list[_LeftOut] = []
        self._known: Here | None = None
        self._unsummed = np.zeros(0, np.int64)  # rows whose parts of the scores are still to be added
        if between is None or between.f is None:
            self._begin()
            return
        self._take_all()
        self._f, self._moved = between.f.copy(), between.moved

    def advance(self) -> bool:
        """Solve one working set, or work on the scores; return False, without either, where the solution has ended."""
        if self._unsummed.size:
            self._sum()
            return True
        here = self._here()
        if here.violation <= self._tol or self._rounds >= self._max_rounds:
            if self._checks >= _CHECKS or (self.is_whole and not self._is_rounded()):
                return False
            self._complete()
            self._checks += 1
            return True
        if self._rounds % _SHRINK_EVERY == _SHRINK_EVERY - 1 and not self._rows.holds_all:
            here = self._shrunk(here)
        self._round(here)
        self._rounds += 1
        return True

    def found(self) -> BoxSolution:
        """Return the solution so far, completing the scores where rows are left out of them."""
        if not self.is_whole:
            self._complete()
        while self._unsummed.size:
            self._sum()
        here = self._here()
        levels = levels_of(self._problem, self._b, here.g)
        computed = self._rows.computed - self._computed
        return BoxSolution(self._b, self._f, levels, here.violation, self._rounds, self._steps, computed)

    def between(self) -> Between:
        """Return copies of what another solution needs to go on from here."""
        f = self._f.copy() if self.is_whole else None
        return Between(self._b.copy(), f, self._last, self._moved, self._rounds)

    @property
    def n_rounds(self) -> int:
        """Working sets so far."""
        return self._rounds

    @property
    def is_whole(self) -> bool:
        """Whether all variables are active, and the scores are those of all rows."""
        return self._active.size == self._problem.rows.size and not self._unsummed.size

    def _coef(self) -> FloatArray:
        return self._problem.coefficients(self._b, self._rows.n_rows)

    def _is_rounded(self) -> bool:
        """Return whether the rounding of the changes of scores may be much more than that of their computation."""
        once = float(np.linalg.norm(self._coef()))
        return self._unit * self._moved**0.5 > max(_ROUNDING * self._tol, _REPEATED * self._unit * once)

    def _begin(self) -> None:
        """Make all variables active, and begin scores from the coefficients."""
        self._take_all()
        self._f, self._moved = np.zeros(self._rows.n_rows), 0.0
        self._unsummed = np.flatnonzero(self._coef())
        self._sum()

    def _sum(self) -> None:
        """Add the parts of so many rows to the scores as a working set has."""
        some, self._unsummed = np.split(self._unsummed, [WORKING_SET])
        self._f += self._rows.scores(some, self._coef()[some])
        self._known = None

    def _take_all(self) -> None:
        if self._rows.columns.size < self._rows.n_rows:
            self._rows.take_columns(None)
        self._left_out, self._active, self._known = [], np.arange(self._problem.rows.size), None

    def _complete(self) -> None:
        """Make all variables active, with the scores of all rows."""
        if self._unsummed.size:
            return
        if self._is_rounded():
            self._begin()
            return
        left_out, coef = self._left_out, self._coef()
        self._take_all()
        for each in left_out:
            change = coef - each.coef
            moved = np.flatnonzero(change)
            self._f[each.columns] += self._rows.scores_at(each.columns, moved, change[moved])

    def _here(self) -> Here:
        if self._known is None:
            p, at = self._problem, self._active
            g = self._f[p.rows[at]] + p.slope[at]
            b = self._b[at]
            self._known = Here.of(p, p.groups[at], g, b < p.high[at], b > p.low[at])
        return self._known

    def _shrunk(self, here: Here) -> Here:
        """Leave out variables that remain at a bound: they would not enter a working set."""
        if self._problem.coupled:
            groups = self._problem.groups[self._active]
            stays = ~here.down & (-here.g < here.falling[groups])
            stays |= ~here.up & (-here.g > here.rising[groups])
        else:
            stays = ~(here.up & here.down) & (violations(here.g, here.up, here.down) == 0)
        active = self._active[~stays]
        columns = np.unique(self._problem.rows[active])
        if not 0 < columns.size <= _WORTH * self._rows.columns.size:
            return here
        gone = np.setdiff1d(self._rows.columns, columns, assume_unique=True)
        self._left_out.append(_LeftOut(gone, self._coef()))
        self._active = active
        self._last, self._known = self._last[np.isin(self._last, active)], None
        self._rows.take_columns(columns)
        return self._here()

    def _round(self, here: Here) -> None:
        chosen = self._working_set(here)
        p = self._problem
        order, edges = in_groups(chosen, p.groups[chosen], p.n_groups if p.coupled else 1, p.coupled)
        known = order >= 0
        members = order[known]
        rows, places = np.unique(p.rows[members], return_inverse=True)
        self._rows.load(rows)
        values, order_of_values = self._rows.square(rows)
        K = expanded(values, order_of_values[places], known)
        boxes = [padded(values[members], known) for values in (p.low, p.high, self._b)]
        g = padded(self._f[p.rows[members]] + p.slope[members], known)
        low, high, b = boxes
        before = b.copy()
        block = BlockProblem(K, K.diagonal().copy(), low, high, b, g, edges, p.coupled)
        share = _SHARE if chosen.size < self._active.size else 0.0  # nothing is gained by another set of all variables
        steps = solve_block(block, 0.5 * self._tol, share, _STEPS * order.size)
        self._steps += steps.count
        self._b[members] = b[known]
        change: FloatArray = np.bincount(places, (b - before)[known], minlength=rows.size).astype(np.float64)
        moved = np.flatnonzero(change)
        self._moved += float(change @ change)
        self._f[self._rows.columns] += self._rows.combine(rows[moved], change[moved])
        self._last, self._known = chosen, None

    def _working_set(self, here: Here) -> IntArray:
        """Return the variables of the next round: the newer half of the last ones, then those that violate most."""
        if self._active.size <= WORKING_SET:
            return self._active
        size = WORKING_SET
        kept = self._last[-(size // 2) :] if self._last.size else self._last
        place = np.full(self._problem.rows.size, -1)
        place[self._active] = np.arange(self._active.size)
        free = np.ones(self._active.size, bool)
        free[place[kept]] = False
        new = worst(here, self._problem.groups[self._active], free, size - kept.size, self._problem.coupled)
        return np.concatenate([kept, self._active[new]])
