"""Support points on a budget: a model that grows by a point, and is made smaller by one at a small cost.

References
----------
Wang, Crammer and Vucetic, "Breaking the curse of kernelization: budgeted stochastic gradient descent for large-scale
SVM training", JMLR 2012 (removal, projection, merging by a golden section).
"""

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import to_host
from daskkern.kernels import Points
from daskkern.solvers.base import Batch, Problem
from daskkern.solvers.row_by_row import Sequence

_GOLDEN = (5**0.5 - 1) / 2
_SEARCH_STEPS = 20  # of the golden section: h is known to 1e-4


class BudgetedRows:
    """Support points on a budget, while the rows of one batch are met.

    Attributes
    ----------
    points, coef : (budget + 1, d) and (budget + 1, c) arrays
        Between two rows at least one place is free: its coefficients are 0.
    rows : Sequence
    """

    def __init__(
        self, problem: Problem, strategy: str, points: HostArray, coef: FloatArray, X: HostArray, batch: Batch
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

    def meet(self, i: int, shrink: float, eta: float) -> None:
        """Make the step of row i, and put the model back on its budget."""
        row = slice(i, i + 1)
        delta = self.rows.gradient(self._problem.loss, row) * -eta
        self.coef *= shrink
        self.rows.step(row, shrink, delta)
        if not delta.any():
            return
        place = self._free()[0]
        self.points[place], self.coef[place] = self._X[i], delta[0]
        if not self._free().size:
            {"removal": self._remove, "projection": self._project, "merging": self._merge}[self._strategy]()

    def _free(self) -> HostArray:
        return np.flatnonzero(~self.coef.any(axis=1))

    def _least(self) -> int:
        """Return the point whose term has the least norm."""
        return int(((self.coef**2).sum(axis=1) * self._kernel.diagonal(self.points)).argmin())

    def _remove(self) -> None:
        self._drop([self._least()])

    def _project(self) -> None:
        """Remove a point, and change the coefficients of the others so that the model changes least."""
        j = self._least()
        K = self._kernel.block(self.points, self._prepared(self.points)).astype(np.float64)
        np.fill_diagonal(K, self._kernel.diagonal(self.points))
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
        i = self._least()
        kappa = self._kernel.block(self.points[i : i + 1], self._prepared(self.points))[0].astype(np.float64)
        h, lost = best_merges(self.coef[i], self.coef, np.minimum(kappa, 1.0))
        lost[i] = np.inf
        j = int(lost.argmin())
        point = (h[j] * self.points[i] + (1 - h[j]) * self.points[j]).astype(self.points.dtype)
        coef = self.coef[i] * kappa[j] ** ((1 - h[j]) ** 2) + self.coef[j] * kappa[j] ** (h[j] ** 2)
        self._drop([i, j])
        self.points[i], self.coef[i] = point, coef
        self.rows.scores += self._columns(self.points[i : i + 1]) * coef

    def _drop(self, places: list[int]) -> None:
        """Take the terms at `places` out of the model."""
        self.rows.scores -= self._columns(self.points[places]) @ self.coef[places]
        self.coef[places] = 0

    def _columns(self, points: HostArray) -> FloatArray:
        """Return the kernel values of the batch's rows with some points."""
        values: FloatArray = self._kernel.block(self._left, self._prepared(points)).astype(np.float64)
        return values

    def _prepared(self, rows: HostArray) -> Points:
        like = self._problem.part.points
        shift = None if like.shift is None else to_host(like.shift)
        return self._kernel.points(rows, shift, precision=like.precision)


def best_merges(a: FloatArray, others: FloatArray, kappa: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return where on the line between two points of a Gaussian kernel their terms merge best, and what is lost.

    The terms have coefficients a (c,) and `others` (k, c), and the points the kernel values `kappa` (k,). The merged
    point is ``h x + (1 - h) x_other``: its coefficient ``a kappa^((1-h)^2) + a_other kappa^(h^2)`` makes the change of
    the model least, and lost (k,) is its squared norm. Golden sections find a local optimum, which for coefficients of
    opposite signs may be an end of the line.
    """
    square, squares, cross = float(a @ a), (others**2).sum(axis=1), others @ a

    def kept(h: FloatArray) -> FloatArray:
        near, far = kappa ** ((1 - h) ** 2), kappa ** (h**2)
        return square * near**2 + 2 * cross * near * far + squares * far**2

    low, high = np.zeros_like(kappa), np.ones_like(kappa)
    for _ in range(_SEARCH_STEPS):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        left = kept(first) > kept(second)
        low, high = np.where(left, low, first), np.where(left, second, high)
    choices = np.stack([(low + high) / 2, np.zeros_like(kappa), np.ones_like(kappa)])
    values = np.stack([kept(h) for h in choices])
    best = values.argmax(axis=0)
    columns = np.arange(len(kappa))
    return choices[best, columns], square + squares + 2 * cross * kappa - values[best, columns]
