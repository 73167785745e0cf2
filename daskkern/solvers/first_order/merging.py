"""Merging two terms of a Gaussian-kernel model: the position of the merged point, and the error.

The logarithm of the kernel is a squared distance, so that the kernel values of ``z = h x + (1 - h) y`` follow from
those of x and y, without the features:

    log k(z, .) = h log k(x, .) + (1 - h) log k(y, .) - h (1 - h) log k(x, y) .

References
----------
Wang, Crammer and Vucetic, "Breaking the curse of kernelization: budgeted stochastic gradient descent for large-scale
SVM training", JMLR 2012 (merging by a golden section for every pair).

Where we differ: all pairs are compared on one grid of the line, whose powers of the kernel values are taken at once,
and the golden section search runs for the best pair alone. The cost of a merge is flat around its minimum, so that the
grid finds the pair, and it does not stop at a local optimum.
"""

from math import exp

import numpy as np

from daskkern.arrays import FloatArray, HostArray

_GOLDEN = (5**0.5 - 1) / 2
_GRID = np.linspace(0, 1, 17)
_SEARCH_STEPS = 16  # of the golden section search between three points of the grid: h is known to 1e-4
_TINY = np.finfo(np.float64).tiny


class LogKernel:
    """Logarithms of a Gaussian kernel while its points are replaced one by one, float64.

    Attributes
    ----------
    points : (k, k) array
        Between the points.
    rows : (m, k) array
        Between rows and the points.
    """

    def __init__(self, points: HostArray, rows: HostArray, among: HostArray) -> None:
        """Take the kernel values of points with points (k, k), of rows with points (m, k), of rows with rows (m, m)."""
        self.points, self.rows, self._among = logarithm(points), logarithm(rows), logarithm(among)

    def put(self, place: int, row: int) -> None:
        """Replace the point at `place` by one of the rows."""
        self._set(place, self.rows[row].copy(), self._among[:, row])

    def merge(self, i: int, j: int, h: float) -> None:
        """Replace point i by ``h x_i + (1 - h) x_j``."""
        apart = h * (1 - h) * self.points[i, j]
        own = h * self.points[i] + (1 - h) * self.points[j] - apart
        self._set(i, np.minimum(own, 0), np.minimum(h * self.rows[:, i] + (1 - h) * self.rows[:, j] - apart, 0))

    def _set(self, place: int, points: FloatArray, rows: FloatArray) -> None:
        self.points[place], self.points[:, place] = points, points
        self.points[place, place] = 0
        self.rows[:, place] = rows


def logarithm(values: HostArray) -> FloatArray:
    """Return the logarithms (float64) of kernel values, that of 0 being the one of the smallest number."""
    logs: FloatArray = np.log(np.clip(values.astype(np.float64), _TINY, 1))
    return logs


def best_merge(a: FloatArray, others: FloatArray, logs: FloatArray, own: int) -> tuple[int, float]:
    """Return the term that is best to merge with, under a Gaussian kernel, and where on the line between their points.

    The terms have coefficients a (c,) and `others` (k, c), number `own` of which is the term itself; `logs` (k,) are
    the logarithms of the kernel values of the point with all. The merged point is ``h x + (1 - h) x_other``; the
    coefficient of :func:`merged` minimises the change of the model, whose squared norm is

        |a|^2 + |a_other|^2 + 2 <a, a_other> kappa - |coefficient|^2 .
    """
    square, squares, cross = float(a @ a), np.einsum("kc,kc->k", others, others), others @ a
    far = np.exp(_GRID[:, None] ** 2 * logs)
    near = far[::-1]  # the grid is symmetric
    kept = (square * near**2 + 2 * cross * near * far + squares * far**2).max(axis=0)
    lost = squares + 2 * cross * far[-1] - kept
    lost[own] = np.inf
    j = int(lost.argmin())

    other, inner, log = float(squares[j]), float(cross[j]), float(logs[j])

    def kept_at(h: float) -> float:
        near, far = exp((1 - h) ** 2 * log), exp(h**2 * log)
        return square * near**2 + 2 * inner * near * far + other * far**2

    best = max(_GRID.tolist(), key=kept_at)
    low, high = max(best - _GRID[1], 0.0), min(best + _GRID[1], 1.0)
    for _ in range(_SEARCH_STEPS):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, second) if kept_at(first) > kept_at(second) else (first, high)
    return j, max(((low + high) / 2, best), key=kept_at)


def merged(a: FloatArray, other: FloatArray, log: float, h: float) -> FloatArray:
    """Return the coefficient (c,) of the point ``h x + (1 - h) x_other``: ``a kappa^((1-h)^2) + a_other kappa^(h^2)``.

    `log` is the logarithm of the kernel value kappa of the two points.
    """
    return a * exp((1 - h) ** 2 * log) + other * exp(h**2 * log)
