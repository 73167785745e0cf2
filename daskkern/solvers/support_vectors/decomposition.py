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

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.solvers.support_vectors.block_problem import PAD, BlockProblem, BlockSteps, solve_plainly
from daskkern.solvers.support_vectors.box_problem import (
    BoxProblem,
    BoxSolution,
    bounds_of,
    levels_of,
    violations,
)
from daskkern.solvers.support_vectors.kernel_rows import KernelRows

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


def solve_boxes(problem: BoxProblem, rows: KernelRows, tol: float, max_rounds: int) -> BoxSolution:
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
    """
    return _Decomposition(problem, rows, tol).solved(max_rounds)


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """Columns that were left out, and the coefficients (n,) that their scores are of."""

    columns: IntArray
    coef: FloatArray


class _Decomposition:
    """The state of one solution."""

    def __init__(self, problem: BoxProblem, rows: KernelRows, tol: float) -> None:
        self._problem, self._rows, self._tol = problem, rows, tol
        self._b = problem.start.copy()
        self._last = np.zeros(0, np.int64)  # the last working set, oldest first
        self._steps, self._computed = 0, rows.computed
        self._unit = rows.rounding  # of a score by a coefficient of 1
        self._left_out: list[_LeftOut] = []
        self._begin()

    def solved(self, max_rounds: int) -> BoxSolution:
        checks, rounds = 0, 0
        while True:
            here = self._here()
            if here.violation <= self._tol or rounds >= max_rounds:
                if checks >= _CHECKS or (self._whole and not self._is_rounded()):
                    break
                self._complete()
                checks += 1
                continue
            if rounds % _SHRINK_EVERY == _SHRINK_EVERY - 1 and not self._rows.holds_all:
                here = self._shrunk(here)
            self._round(here)
            rounds += 1
        if not self._whole:
            self._complete()
            here = self._here()
        levels = levels_of(self._problem, self._b, here.g)
        computed = self._rows.computed - self._computed
        return BoxSolution(self._b, self._f, levels, here.violation, rounds, self._steps, computed)

    @property
    def _whole(self) -> bool:
        """Whether all variables are active."""
        return self._active.size == self._problem.rows.size

    def _coef(self) -> FloatArray:
        return self._problem.coefficients(self._b, self._rows.n_rows)

    def _is_rounded(self) -> bool:
        """Return whether the rounding of the changes of scores may be much more than that of their computation."""
        once = float(np.linalg.norm(self._coef()))
        return self._unit * self._moved**0.5 > max(_ROUNDING * self._tol, _REPEATED * self._unit * once)

    def _begin(self) -> None:
        """Make all variables active, with scores from the coefficients."""
        if self._rows.columns.size < self._rows.n_rows:
            self._rows.take_columns(None)
        self._left_out, self._active = [], np.arange(self._problem.rows.size)
        coef = self._coef()
        support = np.flatnonzero(coef)
        self._f, self._moved = self._rows.scores(support, coef[support]), 0.0

    def _complete(self) -> None:
        """Make all variables active, with the scores of all rows."""
        if self._is_rounded():
            self._begin()
            return
        self._rows.take_columns(None)
        coef = self._coef()
        for left_out in self._left_out:
            change = coef - left_out.coef
            moved = np.flatnonzero(change)
            self._f[left_out.columns] += self._rows.scores_at(left_out.columns, moved, change[moved])
        self._left_out, self._active = [], np.arange(self._problem.rows.size)

    def _here(self) -> "_Here":
        p, at = self._problem, self._active
        g = self._f[p.rows[at]] + p.slope[at]
        b = self._b[at]
        return _Here.of(p, p.groups[at], g, b < p.high[at], b > p.low[at])

    def _shrunk(self, here: "_Here") -> "_Here":
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
        self._last = self._last[np.isin(self._last, active)]
        self._rows.take_columns(columns)
        return self._here()

    def _round(self, here: "_Here") -> None:
        chosen = self._working_set(here)
        p = self._problem
        order, edges = _in_groups(chosen, p.groups[chosen], p.n_groups if p.coupled else 1, p.coupled)
        known = order >= 0
        members = order[known]
        rows, places = np.unique(p.rows[members], return_inverse=True)
        self._rows.load(rows)
        K = _expanded(self._rows.square(rows), places, known)
        boxes = [_padded(values[members], known) for values in (p.low, p.high, self._b)]
        g = _padded(self._f[p.rows[members]] + p.slope[members], known)
        low, high, b = boxes
        before = b.copy()
        block = BlockProblem(K, K.diagonal().copy(), low, high, b, g, edges, p.coupled)
        steps = solve_block(block, 0.5 * self._tol, _SHARE, _STEPS * order.size)
        self._steps += steps.count
        self._b[members] = b[known]
        change: FloatArray = np.bincount(places, (b - before)[known], minlength=rows.size).astype(np.float64)
        moved = np.flatnonzero(change)
        self._moved += float(change @ change)
        self._f[self._rows.columns] += self._rows.combine(rows[moved], change[moved])
        self._last = chosen

    def _working_set(self, here: "_Here") -> IntArray:
        """Return the variables of the next round: the newer half of the last ones, then those that violate most."""
        size = min(WORKING_SET, self._active.size)
        kept = self._last[-(size // 2) :] if self._last.size else self._last
        place = np.full(self._problem.rows.size, -1)
        place[self._active] = np.arange(self._active.size)
        free = np.ones(self._active.size, bool)
        free[place[kept]] = False
        new = _worst(here, self._problem.groups[self._active], free, size - kept.size, self._problem.coupled)
        return np.concatenate([kept, self._active[new]])


@dataclass(frozen=True, eq=False)
class _Here:
    """The active variables: gradients, which may rise and fall, the bounds of their groups, and the violation."""

    g: FloatArray
    up: HostArray
    down: HostArray
    rising: FloatArray
    falling: FloatArray
    violation: float

    @classmethod
    def of(cls, p: BoxProblem, groups: IntArray, g: FloatArray, up: HostArray, down: HostArray) -> "_Here":
        if not p.coupled:
            none = np.zeros(1)
            return cls(g, up, down, none, none, float(violations(g, up, down).max(initial=0.0)))
        edge = bounds_of(groups, p.n_groups, g, up, down)
        return cls(g, up, down, edge.rising, edge.falling, edge.violation)


def _worst(here: _Here, groups: IntArray, free: HostArray, count: int, coupled: bool) -> IntArray:
    """Return at most `count` active variables, among those that are `free` to be chosen, that violate most."""
    if not coupled:
        over = np.where(free, violations(here.g, here.up, here.down), 0.0)
        return _largest(over, count, 0.0)
    chosen: list[IntArray] = []
    n_groups = here.rising.size
    for group in range(n_groups):
        if not here.rising[group] > here.falling[group]:
            continue
        member = free & (groups == group)
        each = max(1, count // (2 * n_groups))  # of few variables, too: a pair of one group must be able to move
        up = _largest(np.where(member & here.up, -here.g, -np.inf), each, here.falling[group])
        member[up] = False
        down = _largest(np.where(member & here.down, here.g, -np.inf), each, -here.rising[group])
        chosen += [up, down]
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def _largest(values: FloatArray, count: int, above: float) -> IntArray:
    """Return the places of the `count` largest values among those above a number."""
    candidates = np.flatnonzero(values > above)
    if candidates.size <= count:
        return candidates
    return candidates[np.argpartition(-values[candidates], count)[:count]]


def _in_groups(chosen: IntArray, groups: IntArray, n_groups: int, coupled: bool) -> tuple[IntArray, IntArray]:
    """Return the variables in the order of their groups, each padded with -1, and where groups begin."""
    parts, edges = [], [0]
    for group in range(n_groups):
        part = chosen[groups == group] if coupled else chosen
        size = max(PAD, -(-part.size // PAD) * PAD)
        parts.append(np.concatenate([part, np.full(size - part.size, -1)]))
        edges.append(edges[-1] + size)
    return np.concatenate(parts), np.array(edges, np.int64)


def _expanded(values: HostArray, places: IntArray, known: HostArray) -> FloatArray:
    """Return the values (q, q) at the places of `known` variables, float64, and zeros at those of padding."""
    bordered = np.zeros((len(values) + 1, len(values) + 1), values.dtype)
    bordered[:-1, :-1] = values
    at = np.full(known.size, len(values))
    at[known] = places
    return bordered.take(at, 0).take(at, 1).astype(np.float64)


def _padded(values: FloatArray, known: HostArray) -> FloatArray:
    found = np.zeros(known.size)
    found[known] = values
    return found
