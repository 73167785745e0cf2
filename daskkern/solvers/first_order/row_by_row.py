"""Sequential steps on the rows of a batch, without products of the columns in between.

A step on row i changes the scores of the rows by their inner products with row i. With the scores z (m, c) and the
inner products G (m, m) of a batch, all steps on it are taken on small arrays, the same on all ranks: the iterates are
those of the method that visits one row at a time. A step shrinks all numbers by one factor, which is kept apart from
them, and adds to the scores of the rows that are still to come.
"""

from math import ceil

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.losses import Loss, Smooth
from daskkern.preconditioners import longest_step
from daskkern.solvers.base import smoothness_of
from daskkern.solvers.first_order.column_products import changes, partial_gram, partial_scores
from daskkern.solvers.first_order.iterate import Iterate
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup

LEAST_SCALE = 1e-100
"""A common factor below it is multiplied out."""


class Sequence:
    """The rows of a batch during the steps on them. Arrays are NumPy arrays in float64.

    Attributes
    ----------
    gram : (m, m) array
    y, weight : (m, c) and (m, 1) arrays
    shrunk : float
        The model is ``shrunk * projected`` times that before the batch, plus ``sum_i k(x_i, .) change_i``.
    projected : (c,) array
        The factor by which each output was multiplied.
    """

    def __init__(self, scores: HostArray, gram: HostArray, y: HostArray, weight: HostArray | None) -> None:
        self._scores: FloatArray = np.array(scores, np.float64)
        self._change: FloatArray = np.zeros_like(self._scores)
        self._scale = 1.0  # of both
        self.gram = gram
        self.y: FloatArray = y.astype(np.float64)
        self.weight: FloatArray | None = None if weight is None else weight.astype(np.float64)
        self.shrunk = 1.0
        self.projected: FloatArray = np.ones(self._scores.shape[1])

    @property
    def change(self) -> FloatArray:
        """The change of the coefficients of the rows (m, c)."""
        return self._change * self._scale

    def scores(self, rows: slice) -> FloatArray:
        """Return the scores of some of the rows, none of them before those of the last step."""
        return self._scores[rows] * self._scale

    def loss(self, loss: Loss) -> float:
        """Return the sum of the weighted losses, before any step."""
        value = loss.value(self.scores(slice(None)), self.y)
        return float((value if self.weight is None else value * self.weight[:, 0]).sum())

    def gradient(self, loss: Loss, rows: slice) -> FloatArray:
        """Return g of some of the rows, weights inside."""
        g: FloatArray = loss.gradient(self.scores(rows), self.y[rows])
        return g if self.weight is None else g * self.weight[rows]

    def longest_step(self, loss: Loss, rows: slice) -> float:
        """Return the longest step along the mean gradient of some of the rows that stays near their targets."""
        squares = self.gram.diagonal()[rows]
        total = float((squares if self.weight is None else squares * self.weight[rows, 0]).sum())
        return longest_step(rows.stop - rows.start, total, smoothness_of(loss))

    def step(self, rows: slice, shrink: float, delta: FloatArray, outputs: slice | list[int] = slice(None)) -> None:
        """Change the model to ``shrink f + sum_i k(x_i, .) delta_i`` over `rows`; `delta` is of these outputs."""
        self.shrunk *= shrink
        self._scale *= shrink
        if abs(self._scale) < LEAST_SCALE:
            self._multiply(self._scale)
            self._scale = 1.0
        if delta.any():
            delta, ahead = delta / self._scale, slice(rows.start, None)
            self._scores[ahead, outputs] += self.gram[ahead, rows] @ delta
            self._change[rows, outputs] += delta

    def move(self, change: FloatArray, after: int) -> None:
        """Add `change` (m - after, c) to the scores of the rows from number `after` on."""
        self._scores[after:] += change / self._scale

    def project(self, factors: FloatArray) -> None:
        """Multiply the outputs of the model by `factors` (c,)."""
        self.projected *= factors
        self._multiply(factors)

    def _multiply(self, factor: float | FloatArray) -> None:
        self._scores *= factor
        self._change *= factor


def sequence_of(problem: ColumnProblem, batch: Batch, v: Array, comm: Communicator, scale: float = 1.0) -> Sequence:
    """Return the rows of a batch under the coefficients ``scale * v``; one allreduce of (m, c + m) numbers."""
    xp = namespace_of(v)
    scores = partial_scores(problem, batch, v) * scale
    both = to_host(comm.allreduce(xp.concatenate([scores, partial_gram(problem, batch, comm)], axis=1)))
    c = v.shape[1]
    return Sequence(both[:, :c], both[:, c:], to_host(batch.y), None if batch.weight is None else to_host(batch.weight))


def applied(problem: ColumnProblem, batch: Batch, iterate: Iterate, rows: Sequence) -> Iterate:
    """Return the iterate after the steps on the rows of a batch."""
    if (rows.projected != 1).any():
        iterate = iterate.project(rows.projected)
    xp, change = namespace_of(iterate.v), rows.change
    changed = np.flatnonzero(change.any(axis=0))
    iterate = iterate.shrink(rows.shrunk)
    if not changed.size:
        return iterate
    if 2 * changed.size > change.shape[1]:
        return iterate.add(*changes(problem, batch, xp.asarray(change)))
    return iterate.add(*changes(problem, batch, xp.asarray(change[:, changed])), xp.asarray(changed))


def steps_ahead(problem: ColumnProblem) -> int:
    """Return how many steps of the schedule 1 / (alpha t) are skipped at its start.

    0 for losses with kinks, whose gradients are bounded; for smooth ones as many as make the first step
    ``1 / (L max |phi(x)|^2)`` on sampled rows.
    """
    setup: ColumnSetup = problem.extra
    if not isinstance(problem.loss, Smooth):
        return 0
    return ceil(problem.loss.smoothness * setup.statistics.beta / problem.alpha)
