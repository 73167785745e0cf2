"""The subproblem of one working set: box constraints, cached kernel values, and steps of one or two variables.

    min  1/2 b^T K b + g_0^T b ,    low <= b <= high ,    and, where groups are coupled, sum of b constant in each

A step moves the two variables of one group (or the one variable, without coupling) that lower the objective most by
the second-order rule, as far as their boxes allow. This file is the plain twin of :mod:`.compiled_block`, which does
the same arithmetic in the same order.

References
----------
Fan, Chen and Lin, "Working set selection using second order information for training support vector machines",
JMLR 2005, WSS 2. Steinwart, Hush and Scovel, "Training SVMs without offset", JMLR 2011, section 3 (one variable).
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, IntArray

PAD = 8
"""Variables of a group are padded to multiples of this, with boxes of width 0."""
LEAST_CURVATURE = 1e-12


@dataclass(frozen=True, eq=False)
class BlockProblem:
    """A working set of q variables, float64; :func:`solve_plainly` moves `b` and `g` in place.

    Attributes
    ----------
    K : (q, q) array
    diagonal, low, high : (q,) array
    b, g : (q,) array
        Variables, and the gradient of the objective at them.
    edges : (groups + 1,) int64
        Where groups begin, multiples of PAD; the last one is q.
    coupled : bool
        Whether the sum of each group is constant.
    """

    K: FloatArray
    diagonal: FloatArray
    low: FloatArray
    high: FloatArray
    b: FloatArray
    g: FloatArray
    edges: IntArray
    coupled: bool


@dataclass(frozen=True)
class BlockSteps:
    """Steps that were taken, and by how much the conditions of the optimum were violated before the first and after."""

    count: int
    first: float
    last: float


def solve_plainly(problem: BlockProblem, tol: float, share: float, most: int) -> BlockSteps:
    """Take steps until the violation is at most `tol` or `share` of the first one, at most `most` of them."""
    first, count = 0.0, 0
    while True:
        found = _pair(problem) if problem.coupled else _single(problem)
        violation, i, j, t = found
        first = violation if count == 0 else first
        if violation <= max(tol, share * first) or count >= most:
            return BlockSteps(count, first, violation)
        _move(problem, i, t)
        if j < 0:
            problem.g[:] += t * problem.K[i]
        else:
            _move(problem, j, -t)
            problem.g[:] += t * (problem.K[i] - problem.K[j])
        count += 1


def _pair(p: BlockProblem) -> tuple[float, int, int, float]:
    """Return the violation, the pair of most gain, and the step of its first variable."""
    violation, most, pair, step = 0.0, 0.0, (0, 0), 0.0
    for start, stop in zip(p.edges[:-1], p.edges[1:], strict=True):
        part = slice(start, stop)
        rises = np.where(p.b[part] < p.high[part], -p.g[part], -np.inf)
        at = int(rises.argmax())
        i, top = int(start) + at, rises[at]
        apart = np.where(p.b[part] > p.low[part], top + p.g[part], -np.inf)
        curvature = np.maximum((p.diagonal[i] + p.diagonal[part]) - 2 * p.K[i, part], LEAST_CURVATURE)
        gains = np.where(apart > 0, apart * apart / curvature, -1.0)
        best = int(gains.argmax())
        violation = max(violation, float(apart.max()))
        if gains[best] > most:
            most, pair = float(gains[best]), (i, int(start) + best)
            step = float(apart[best] / curvature[best])
    i, j = pair
    return violation, i, j, min(min(step, float(p.high[i] - p.b[i])), float(p.b[j] - p.low[j]))


def _single(p: BlockProblem) -> tuple[float, int, int, float]:
    """Return the violation, the variable of most gain, -1, and its step."""
    curvature = np.maximum(p.diagonal, LEAST_CURVATURE)
    steps = np.minimum(np.maximum(p.b - p.g / curvature, p.low), p.high) - p.b
    gains = -steps * (p.g + (0.5 * steps) * curvature)
    over = np.maximum(np.where(p.b < p.high, -p.g, 0.0), np.where(p.b > p.low, p.g, 0.0))
    i = int(gains.argmax())
    return float(over.max()), i, -1, float(steps[i])


def _move(p: BlockProblem, i: int, t: float) -> None:
    """Move a variable by t; a step that reaches the edge of its box ends there exactly."""
    moved = p.b[i] + t
    if t > 0 and t >= p.high[i] - p.b[i]:
        moved = p.high[i]
    elif t < 0 and -t >= p.b[i] - p.low[i]:
        moved = p.low[i]
    p.b[i] = moved
