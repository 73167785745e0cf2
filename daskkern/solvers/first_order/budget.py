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
from daskkern.solvers.first_order.row_by_row import Sequence
from daskkern.solvers.problem import Batch, ColumnProblem

_HELD = 8
MOST_HELD = 1025
"""Support points, for each row of a batch and in total, up to which the kernel matrix of all of them is held when
points are merged: one matrix product takes less time than a small one for every merge."""


class BudgetedRows:
    """Support points on a budget, during the steps on the rows of one batch.

    Attributes
    ----------
    points, coef : (budget + 1, d) and (budget + 1, c) arrays
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
        self.points, self.coef = points.copy(), coef.copy()
        self._problem, self._kernel, self._strategy, self._X = problem, problem.part.kernel, strategy, X
        prepared = self._prepared(self.points)
        self._left = self._kernel.left(X, prepared)
        scores = self._kernel.matvec(self._left, prepared, self.coef.astype(problem.dtype))
        gram = self._kernel.block(self._left, self._prepared(X)).astype(np.float64)
        np.fill_diagonal(gram, self._kernel.diagonal(X))
        weight = None if batch.weight is None else to_host(batch.weight)
        self.rows = Sequence(scores, gram, to_host(batch.y), weight)
        self._square: FloatArray = np.array(self._kernel.diagonal(self.points), np.float64)  # k(x, x)
        self._logs: LogKernel | None = None  # from the first merge on

    def meet(self, i: int, shrink: float, eta: float) -> None:
        """Take the step of row i, and bring the model back to its budget."""
        row = slice(i, i + 1)
        delta = self.rows.gradient(self._problem.loss, row) * -eta
        self.coef *= shrink
        self.rows.step(row, shrink, delta)
        if not delta.any():
            return
        known = np.flatnonzero((self.points == self._X[i]).all(axis=1) & self.coef.any(axis=1))
        if known.size:  # the row was visited in an earlier epoch, or equals one that was: the model does not grow
            self.coef[known[0]] += delta[0]
            return
        place = self._free()[0]
        self.points[place], self.coef[place], self._square[place] = self._X[i], delta[0], self.rows.gram[i, i]
        if self._logs is not None:
            self._logs.put(place, i)
        if not self._free().size:
            {"removal": self._remove, "projection": self._project, "merging": self._merge}[self._strategy]()

    def _free(self) -> HostArray:
        return np.flatnonzero(~self.coef.any(axis=1))

    def _least(self) -> int:
        """Return the point whose term has the least norm."""
        return int((np.einsum("kc,kc->k", self.coef, self.coef) * self._square).argmin())

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
        change = np.zeros_like(self.coef)
        change[rest] = scipy.linalg.solve(inner, K[rest, j : j + 1] * self.coef[j], assume_a="pos")
        change[j] = -self.coef[j]
        self.rows.scores += self._kernel.matvec(
            self._left, self._prepared(self.points), change.astype(self.points.dtype)
        )
        self.coef += change
        self.coef[j] = 0

    def _merge(self) -> None:
        """Merge the point of the least term with the one that makes the model change least."""
        if self._logs is None and len(self.points) <= min(_HELD * len(self._X), MOST_HELD):
            self._logs = self._held()
        i = self._least()
        logs = self._logs_with(i)
        j, h = best_merge(self.coef[i], self.coef, logs, i)
        coef = merged(self.coef[i], self.coef[j], float(logs[j]), h)
        self._drop([i, j])
        self.points[i], self.coef[i] = h * self.points[i] + (1 - h) * self.points[j], coef
        if self._logs is not None:
            self._logs.merge(i, j, h)
        self.rows.scores += self._columns([i]) * coef

    def _drop(self, places: list[int]) -> None:
        """Remove the terms at `places` from the model."""
        self.rows.scores -= self._columns(places) @ self.coef[places]
        self.coef[places] = 0

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
