"""Landmarks by approximate ridge leverage scores."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import Rows
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Kernel
from daskkern.landmarks.base import LandmarkSelector, LandmarkSet, check_rows_each, distinct, sample_bytes, sampled_rows
from daskkern.linalg import factor_lower, solve_lower

_STREAM = 36
_ROWS = 1024
_FALL = 2.0  # of the penalty, from one dictionary to the next
_OVERSAMPLING = 2.0  # landmarks for each of the effective dimensions
_CANDIDATES = 4.0  # rows that a dictionary is chosen from, for each 1 / penalty
_LEAST = 1e-9


@dataclass(frozen=True)
class RidgeLeverage(LandmarkSelector):
    """Landmarks drawn in proportion to ridge leverage scores: rows that the others predict badly, more often.

    ``l_i = (K (K + alpha M)^-1)_ii`` over the M sampled rows, approximated by a dictionary of n rows that is drawn
    again while the penalty falls to alpha. Row i becomes a landmark with probability ``min(1, c l_i)``, with c such
    that they add up to n; its weight is ``n / M`` over that, which preconditioners that treat landmarks as a sample of
    the rows (Falkon, EigenPro) use. The order is random.

    Memory: the sample of `rows_each` rows a landmark, and two n x n float64 matrices.

    Parameters
    ----------
    alpha : float or "auto"
        Penalty, for a kernel of mean diagonal 1: the convention of the estimators' `alpha`. "auto": where the effective
        dimension ``sum_i l_i`` is half the number of landmarks.
    rows_each : int
        Sampled rows for each landmark.

    References
    ----------
    Rudi, Calandriello, Carratino and Rosasco, "On fast leverage score sampling and optimal learning" (BLESS), NeurIPS
    2018, equation 3 and algorithm 1. Where we differ: the path of penalties ends by the number of landmarks, all
    dictionaries are that large, and the landmarks themselves are drawn without replacement (systematic sampling).
    """

    name: ClassVar[str] = "ridge_leverage"

    alpha: float | str = "auto"
    rows_each: int = 10

    def __post_init__(self) -> None:
        check_rows_each(self.rows_each, self.name)
        if self.alpha != "auto" and (isinstance(self.alpha, str) or not 0 < self.alpha < 1):
            raise SpecError(
                f"got alpha={self.alpha!r} for ridge_leverage landmarks; give a number between 0 and 1, or 'auto'"
            )

    def working_bytes(self, n_rows: int, n: int, d: int, itemsize: int) -> int:
        M = min(n_rows, self.rows_each * n)
        matrices = 2 * n * n + 2048 * n + 4 * n * _ROWS  # the next dictionary in addition to the last one
        return sample_bytes(n_rows, M, d, itemsize) + 8 * (matrices + 4 * (n + _ROWS) * d + 8 * M)

    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        rng = generator(seed, _STREAM)
        X, numbers = sampled_rows(rows, self.rows_each * n, rng)
        n, order = min(n, numbers.size), rng.permutation(numbers.size)
        X, numbers = X[order], numbers[order]
        scores = self._scores(kernel, X, n, rng)
        n = min(n, int(np.count_nonzero(scores)))  # rows where the kernel is 0 carry no information
        odds = _inclusion(scores, n)
        chosen = rng.permutation(_systematic(odds, n, rng))
        return distinct(X[chosen], numbers[chosen], n / numbers.size / odds[chosen])

    def _scores(self, kernel: Kernel, X: HostArray, n: int, rng: np.random.Generator) -> HostArray:
        """Return the scores of all rows at the last penalty of the path."""
        M, diagonal = X.shape[0], _diagonal(kernel, X)
        size = float(diagonal.mean())
        if not np.isfinite(diagonal.astype(X.dtype)).all():
            raise DataError(
                f"the {kernel.name} kernel overflows on the rows; scale the features (ingest with --scale standard)"
            )
        if not size > 0:
            raise DataError(f"the {kernel.name} kernel is 0 on the rows; check the data")
        penalty, last = size, _LEAST * size if self.alpha == "auto" else float(self.alpha) * size
        known = _Dictionary(kernel, X, np.zeros(0, np.int64), np.zeros(0), M * penalty)
        while penalty > last:
            below = max(penalty / _FALL, last)
            R = min(M, max(n, int(np.ceil(_CANDIDATES * size / below))))
            scores = known.scores(slice(0, R), diagonal)
            dimension = float(M / R * scores.sum())
            if self.alpha == "auto" and _OVERSAMPLING * dimension >= n:
                break
            known = _next(kernel, X, scores, n, M * below, rng)
            penalty = below
        return known.scores(slice(0, M), diagonal)


class _Dictionary:
    """Rows J with weights A that represent all M: ``l_i = (k_ii - k_iJ (K_JJ + mu A)^-1 k_Ji) / mu``, mu = M alpha."""

    def __init__(self, kernel: Kernel, X: HostArray, J: IntArray, A: HostArray, mu: float) -> None:
        self._kernel, self._X, self._mu, self._J = kernel, X, mu, J
        if J.size:
            self._points = X[J].astype(np.float64)
            K = kernel.block(self._points, self._points)
            K[np.diag_indices(J.size)] += mu * A + np.finfo(np.float64).eps * J.size * K.diagonal().mean()
            if not factor_lower(K):
                raise DataError(
                    f"the {kernel.name} kernel is not positive definite on the rows, so that they have no leverage "
                    "scores; choose another rule"
                )
            self._lower = K

    def scores(self, rows: slice, diagonal: HostArray) -> HostArray:
        """Return the scores of the rows `rows` of X, between 0 and 1, never 0 where the kernel is not."""
        left = diagonal[rows].copy()
        for part in slices(left.size, _ROWS) if self._J.size else []:
            X = self._X[rows.start + part.start : rows.start + part.stop].astype(np.float64)
            K = self._kernel.block(self._points, X)
            left[part] -= (solve_lower(self._lower, K) ** 2).sum(axis=0)
        return np.clip(left, np.finfo(np.float64).eps * diagonal[rows], self._mu) / self._mu


def _next(
    kernel: Kernel, X: HostArray, scores: HostArray, size: int, mu: float, rng: np.random.Generator
) -> _Dictionary:
    """Draw a dictionary of `size` rows, repeated ones counted once, of the first rows, whose scores are known."""
    odds = scores / scores.sum()
    J, counts = np.unique(rng.choice(odds.size, size=size, p=odds), return_counts=True)
    share = odds.size / X.shape[0]
    return _Dictionary(kernel, X, J.astype(np.int64), share * size * odds[J] / counts, mu)


def _diagonal(kernel: Kernel, X: HostArray) -> HostArray:
    """Return ``k(x, x)`` in float64, from rows in float64 as in the blocks: so that differences are exact."""
    parts = [kernel.diagonal(X[part].astype(np.float64)) for part in slices(X.shape[0], _ROWS)]
    return np.concatenate(parts)


def _inclusion(scores: HostArray, n: int) -> HostArray:
    """Return ``min(1, c scores)`` that add up to n."""
    odds, sure = np.zeros(scores.size), np.zeros(scores.size, bool)
    while True:
        room = n - np.count_nonzero(sure)
        odds = np.where(sure, 1.0, scores * (room / scores[~sure].sum()) if room else 0.0)
        more = ~sure & (odds >= 1)
        if not more.any():
            return odds
        sure |= more


def _systematic(odds: HostArray, n: int, rng: np.random.Generator) -> IntArray:
    """Return n different rows, each with the probability `odds`, which add up to n."""
    ends = np.cumsum(odds)
    marks = (rng.random() + np.arange(n)) * (ends[-1] / n)
    return np.minimum(np.searchsorted(ends, marks, side="right"), odds.size - 1).astype(np.int64)
