"""Support points on a budget: a model that grows by one point, and shrinks by one at a small cost.

References
----------
Wang, Crammer and Vucetic, "Breaking the curse of kernelization: budgeted stochastic gradient descent for large-scale
SVM training", JMLR 2012 (removal, projection; merging is in :mod:`daskkern.solvers.first_order.merging`).
"""

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import to_host
from daskkern.kernels import Points
from daskkern.solvers.first_order.merging import LogKernel, best_merge, logarithm, merged
from daskkern.solvers.first_order.row_by_row import LEAST_SCALE, Sequence
from daskkern.solvers.problem import Batch, ColumnProblem

_ROUNDING = 1e-9
_HELD = 8
MOST_HELD = 1025
"""Support points, for each row of a batch and in total, up to which the kernel matrix of all of them is held when
points are merged: one matrix product takes less time than a small one for every merge."""


class BudgetedRows:
    """Support points on a budget, during the steps on the rows of one batch.

    Attributes
    ----------
    points : (budget + 1, d) array
        Between two rows at least one slot is free: its coefficients are 0.
    rows : Sequence
    """

    def __init__(
        self,
        problem: ColumnProblem,
        strategy: str,
        points: HostArray,
        coef: FloatArray,
        X: HostArray,
        batch: Batch,
    ) -> None:
        self.points, self._coef, self._scale = points.copy(), coef.copy(), 1.0
        self._used, self._norms = _used(coef), _squares(coef)
        self._problem, self._kernel, self._strategy, self._X = problem, problem.part.kernel, strategy, X
        prepared = self._prepared(self.points)
        self._left = self._kernel.left(X, prepared)
        scores = self._kernel.matvec(self._left, prepared, coef.astype(problem.dtype))
        gram = self._kernel.block(self._left, self._prepared(X)).astype(np.float64)
        np.fill_diagonal(gram, self._kernel.diagonal(X))
        weight = None if batch.weight is None else to_host(batch.weight)
        self.rows = Sequence(scores, gram, to_host(batch.y), weight)
        self._square: FloatArray = np.array(self._kernel.diagonal(self.points), np.float64)  # k(x, x)
        self._logs: LogKernel | None = None  # from the first merge on
        self._row = self._newest = 0

    @property
    def coef(self) -> FloatArray:
        """The coefficients (budget + 1, c) of the points."""
        return self._coef * self._scale

    def meet(self, i: int, shrink: float, eta: float) -> None:
        """Take the step of row i, and bring the model back to its budget."""
        row, self._row = slice(i, i + 1), i
        delta = self.rows.gradient(self._problem.loss, row) * -eta
        self._shrink(shrink)
        self.rows.step(row, shrink, delta)
        if not delta.any():
            return
        known = np.flatnonzero((self.points == self._X[i]).all(axis=1) & self._used)
        if known.size:  # the row was visited in an earlier epoch, or equals one that was: the model does not grow
            self._set(known[0], self._coef[known[0]] + delta[0] / self._scale)
            return
        place = self._free()[0]
        self.points[place], self._square[place] = self._X[i], self.rows.gram[i, i]
        self._set(place, delta[0] / self._scale)
        self._newest = int(place)
        if self._logs is not None:
            self._logs.put(place, i)
        if not self._free().size:
            {"removal": self._remove, "projection": self._project, "merging": self._merge}[self._strategy]()

    def _shrink(self, factor: float) -> None:
        """Multiply all coefficients: their common factor, as long as there is one."""
        self._scale *= factor
        if abs(self._scale) < LEAST_SCALE:
            self._take(self.coef)

    def _take(self, coef: FloatArray) -> None:
        self._coef, self._scale = coef, 1.0
        self._used, self._norms = _used(coef), _squares(coef)

    def _set(self, place: int, numbers: FloatArray | float) -> None:
        """Replace the coefficients (c,) at `place`, which are given without the common factor."""
        self._coef[place] = numbers
        self._used[place], self._norms[place] = self._coef[place].any(), self._coef[place] @ self._coef[place]

    def _free(self) -> HostArray:
        return np.flatnonzero(~self._used)

    def _least(self) -> int:
        return least_term(self._norms * self._square, self._newest)

    def _remove(self) -> None:
        self._drop([self._least()])

    def _project(self) -> None:
        """Remove a point, and change the coefficients of the others so that the model changes least."""
        j = self._least()
        K = self._kernel.block(self.points, self._prepared(self.points)).astype(np.float64)
        np.fill_diagonal(K, self._square)
        rest = np.delete(np.arange(len(K)), j)
        inner = K[np.ix_(rest, rest)]
        jitter = len(K) * float(np.finfo(self.points.dtype).eps) * float(np.trace(inner)) / len(rest)
        inner[np.diag_indices_from(inner)] += jitter
        coef = self.coef
        change = np.zeros_like(coef)
        change[rest] = scipy.linalg.solve(inner, K[rest, j : j + 1] * coef[j], assume_a="pos")
        change[j] = -coef[j]
        moved = self._kernel.matvec(self._left, self._prepared(self.points), change.astype(self.points.dtype))
        self.rows.move(moved[self._row :].astype(np.float64), self._row)
        coef += change
        coef[j] = 0
        self._take(coef)

    def _merge(self) -> None:
        """Merge the point of the least term with the one that makes the model change least."""
        if self._logs is None and len(self.points) <= min(_HELD * len(self._X), MOST_HELD):
            self._logs = self._held()
        i = self._least()
        logs = self._logs_with(i)
        j, h = best_merge(self._coef[i], self._coef, logs, i)  # whatever the common factor
        coef = merged(self._coef[i], self._coef[j], float(logs[j]), h)
        self._drop([i, j])
        self.points[i] = h * self.points[i] + (1 - h) * self.points[j]
        self._set(i, coef)
        if self._logs is not None:
            self._logs.merge(i, j, h)
        self._move([i], 1.0)

    def _drop(self, places: list[int]) -> None:
        """Remove the terms at `places` from the model."""
        self._move(places, -1.0)
        for place in places:
            self._set(place, 0.0)

    def _move(self, places: list[int], sign: float) -> None:
        """Add the terms at `places` to the scores of the rows to come, or take them away."""
        later = self._columns(places)[self._row :]
        self.rows.move(later @ self._coef[places] * (sign * self._scale), self._row)

    def _columns(self, places: list[int]) -> FloatArray:
        """Return the kernel values of the batch's rows with the points at `places`."""
        if self._logs is not None:
            return np.exp(self._logs.rows[:, places])
        values: FloatArray = self._kernel.block(self._left, self._prepared(self.points[places])).astype(np.float64)
        return values

    def _held(self) -> LogKernel:
        """Return the kernel between all points and rows, which later steps update."""
        right, block = self._prepared(self.points), self._kernel.block
        return LogKernel(block(self.points, right), block(self._left, right), self.rows.gram)

    def _logs_with(self, i: int) -> FloatArray:
        """Return the logarithms of a Gaussian kernel between point i and all."""
        if self._logs is not None:
            return self._logs.points[i]
        return logarithm(self._kernel.block(self.points[i : i + 1], self._prepared(self.points))[0])

    def _prepared(self, rows: HostArray) -> Points:
        like = self._problem.part.points
        return self._kernel.points(rows, like.placement.on(np), precision=like.precision)


def _used(coef: FloatArray) -> HostArray:
    """Return which rows are not 0."""
    return np.asarray(coef.any(axis=1))


def least_term(terms: FloatArray, newest: int) -> int:
    """Return the point whose term (p,) has the least norm: of equal ones, as the hinge makes them, the oldest.

    A new point takes the slot of the one before it that was removed, so that slots after `newest` have older points.
    """
    equal = np.flatnonzero(terms <= terms.min() * (1 + _ROUNDING))
    return int(equal[np.searchsorted(equal, newest, side="right") % equal.size])


def _squares(coef: FloatArray) -> FloatArray:
    """Return the squared norm of each row."""
    found: FloatArray = np.einsum("kc,kc->k", coef, coef)
    return found
