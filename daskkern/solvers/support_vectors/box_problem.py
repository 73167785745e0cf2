"""The dual problem of support vector machines: a quadratic function of variables in boxes, with sums that are constant.

    min  1/2 |sum_v b_v k(x_r(v), .)|^2 + sum_v slope_v b_v ,   low <= b <= high ,   sum over each group constant

A variable is the signed coefficient of the kernel of a row, so that the gradient is ``g_v = f(x_r(v)) + slope_v``,
f the model without an offset. A row may have several variables, as in regression.
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray


@dataclass(frozen=True, eq=False)
class BoxProblem:
    """A dual problem of v variables.

    Attributes
    ----------
    rows : (v,) int64
        The row of each variable.
    slope, low, high, start : (v,) float64
        `start` is feasible.
    groups : (v,) int64
        From 0; the sum over each group stays that of `start`, where they are `coupled`.
    coupled : bool
        False for models without an offset: each variable is on its own.
    """

    rows: IntArray
    slope: FloatArray
    low: FloatArray
    high: FloatArray
    start: FloatArray
    groups: IntArray
    coupled: bool = True

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return int(self.groups.max(initial=0)) + 1

    def coefficients(self, b: FloatArray, n_rows: int) -> FloatArray:
        """Return the coefficient of each row's kernel (n,): the sum of its variables."""
        found: FloatArray = np.bincount(self.rows, b, minlength=n_rows).astype(np.float64)
        return found


@dataclass(frozen=True, eq=False)
class BoxSolution:
    """The solution of a problem.

    Attributes
    ----------
    b : (v,) float64
    f : (n,) float64
        The model without an offset at all rows, computed from `b` at the end.
    levels : (groups,) float64
        Minus the gradient of free variables: the mean over those of each group, or the middle of where it may be.
    violation : float
        By how much a variable may still go against its gradient, relative to others of its group.
    n_rounds, n_steps, n_values : int
        Working sets, steps within them, and kernel values that were computed.
    """

    b: FloatArray
    f: FloatArray
    levels: FloatArray
    violation: float
    n_rounds: int
    n_steps: int
    n_values: int


@dataclass(frozen=True, eq=False)
class Bounds:
    """Of each group, the largest ``-g`` of variables that may rise, and the least of those that may fall."""

    rising: FloatArray
    falling: FloatArray

    @property
    def violation(self) -> float:
        """The largest difference; 0 at the optimum."""
        return max(0.0, float((self.rising - self.falling).max(initial=0.0)))


def bounds_of(groups: IntArray, n_groups: int, g: FloatArray, up: HostArray, down: HostArray) -> Bounds:
    """Return the bounds of variables with gradients `g` that may rise (`up`), or fall (`down`)."""
    rising, falling = np.full(n_groups, -np.inf), np.full(n_groups, np.inf)
    for group in range(n_groups):
        member = groups == group
        rising[group] = -g[member & up].min(initial=np.inf)
        falling[group] = -g[member & down].max(initial=-np.inf)
    return Bounds(rising, falling)


def violations(g: FloatArray, up: HostArray, down: HostArray) -> FloatArray:
    """Return by how much each variable goes against its gradient, without groups: 0 or more."""
    found: FloatArray = np.maximum(np.where(up, -g, 0.0), np.where(down, g, 0.0))
    return found


def levels_of(problem: BoxProblem, b: FloatArray, g: FloatArray) -> FloatArray:
    """Return the level of each group; 0 where no variable can move, or without coupling."""
    found = np.zeros(problem.n_groups)
    if not problem.coupled:
        return found
    up, down = b < problem.high, b > problem.low
    edge = bounds_of(problem.groups, problem.n_groups, g, up, down)
    for group in range(found.size):
        free = up & down & (problem.groups == group)
        ends = [end for end in (edge.rising[group], edge.falling[group]) if np.isfinite(end)]
        if free.any():
            found[group] = -g[free].mean()
        elif ends:
            found[group] = float(np.mean(ends))
    return found
