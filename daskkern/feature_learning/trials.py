"""Trials of feature learning: rounds of a ridge regression and a new metric, on the same rows and landmarks."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.namespace import is_sparse, to_host
from daskkern.backend.random import generator
from daskkern.feature_learning.gradients import FittedFunction
from daskkern.feature_learning.metric import with_factor
from daskkern.feature_learning.pending import PendingMetric, factor_at
from daskkern.feature_learning.ridge import Ridge
from daskkern.kernels.functions.length_scale import MEDIAN_ROWS
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.rows import module_of

_LANDMARKS, _GRADIENTS = 71, 72
GRADIENT_ROWS = 4000
"""Rows that gradients are taken at; a mean over them has the leading directions of that over all rows."""


@dataclass(frozen=True)
class Candidate:
    """A kernel whose metric is learned, and how: its diagonal, or the whole of it.

    Attributes
    ----------
    kernel : ScaledDistanceKernel
        Its length scale is a number, in which that of the weighted rows follows their median distance.
    times : float
        The length scale as a multiple of the median distance.
    diagonal : bool
    tunes_length_scale : bool
        Whether multiples of the length scale are tried on the learned metric.
    """

    kernel: ScaledDistanceKernel
    times: float
    diagonal: bool
    tunes_length_scale: bool = True


@dataclass(frozen=True, eq=False)
class TrainingSample:
    """Rows with targets, in memory, on one device.

    Attributes
    ----------
    X : (m, d) float64 array or CSR rows
    y : (m, c) float64 array
        Numbers for regression; -1 and 1 for classes, one class against the rest.
    weight : (m,) float64 array or None
    labels : (m,) int64 NumPy array or None
        Class numbers, where the targets are classes.
    """

    X: Array
    y: Array
    weight: Array | None
    labels: IntArray | None = None

    def rows(self, at: IntArray) -> "TrainingSample":
        """Return the rows with these numbers."""
        here = module_of(self.y).asarray(at)
        weight = None if self.weight is None else self.weight[here]
        return TrainingSample(self.X[here], self.y[here], weight, None if self.labels is None else self.labels[at])

    @property
    def shares(self) -> Array:
        """The weights (m,), with the sum 1."""
        xp = module_of(self.y)
        counts = xp.ones(self.y.shape[0]) if self.weight is None else self.weight
        return counts / counts.sum()


@dataclass(frozen=True, eq=False)
class Round:
    """One solve of a trial.

    Attributes
    ----------
    kernel : ScaledDistanceKernel
    factor : (d,) or (d, k) array, or None
        Of the metric; None in round 0.
    ridge : Ridge
    offset : (c,) array
        Mean target, which the scores of `ridge` are added to.
    """

    kernel: ScaledDistanceKernel
    factor: FloatArray | None
    ridge: Ridge
    offset: FloatArray

    def only(self, alpha: float) -> "Round":
        """Return the round with the solution for one penalty, without the equations, which take most of the memory."""
        return replace(self, ridge=self.ridge.only(alpha))


@dataclass(frozen=True, eq=False)
class Trial:
    """Alternate solves and metrics of one candidate on the same rows and landmarks.

    Attributes
    ----------
    candidate : Candidate
    sample : TrainingSample
    n_landmarks : int
    rank : int
        Most directions of a metric.
    seed : int
    """

    candidate: Candidate
    sample: TrainingSample
    n_landmarks: int
    rank: int
    seed: int

    def first(self) -> Round:
        """Return round 0, with the candidate's own kernel."""
        return self._solved(self.candidate.kernel, None)

    def after(self, before: Round, alpha: float, times: float | None = None) -> Round:
        """Return the round whose metric is that of the solution of the round `before` with the penalty `alpha`.

        Its length scale is `times` the median distance: as often as the candidate says, unless given.
        """
        few, function = (
            self._few,
            FittedFunction(before.kernel, before.ridge.landmarks, before.ridge.coefficients(alpha)),
        )
        factor = factor_at(
            function, few.X, few.weight, diagonal=self.candidate.diagonal, rank=self.rank, seed=self.seed
        )
        return self.weighted(factor, self.candidate.times if times is None else times)

    def pending(self, before: Round, alpha: float, found: Round, times: float) -> PendingMetric:
        """Return what makes the metric of the round `found`, which is the one after `before`, of all rows.

        `times` is the multiple of the median distance that is the length scale of `found`.
        """
        assert found.factor is not None
        Z, A = before.ridge.landmarks, before.ridge.coefficients(alpha)
        return PendingMetric(
            FittedFunction(before.kernel, _to_host(Z), to_host(A)),
            self.candidate.kernel,
            times,
            self.candidate.diagonal,
            self.rank,
            self.seed,
            _to_host(self._few.X[:MEDIAN_ROWS]),
            found.factor,
        )

    def weighted(self, factor: FloatArray, times: float) -> Round:
        """Return the solve with the metric of `factor`, and `times` the median distance as the length scale."""
        return self._solved(self.kernel_of(factor, times), factor)

    def kernel_of(self, factor: FloatArray, times: float) -> ScaledDistanceKernel:
        """Return the kernel of :meth:`weighted`."""
        return with_factor(self.candidate.kernel, factor, self._few.X, times)

    @cached_property
    def _few(self) -> TrainingSample:
        """Some of the rows, in random order."""
        m = self.sample.y.shape[0]
        return self.sample.rows(generator(self.seed, _GRADIENTS).permutation(m)[:GRADIENT_ROWS])

    def _solved(self, kernel: ScaledDistanceKernel, factor: FloatArray | None) -> Round:
        rows, m = self.sample, self.sample.y.shape[0]
        chosen = np.sort(generator(self.seed, _LANDMARKS).permutation(m)[: self.n_landmarks])
        shares = rows.shares
        offset = shares @ rows.y
        ridge = Ridge.of(kernel, rows.X[module_of(rows.y).asarray(chosen)], rows.X, rows.y - offset, shares)
        return Round(kernel, factor, ridge, to_host(offset))


def _to_host(rows: Array) -> Array:
    if not is_sparse(rows):
        return to_host(rows)
    return rows.tocsr().get() if module_of(rows) is not np else rows
