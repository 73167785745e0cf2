"""Landmarks by randomly pivoted Cholesky."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.rows.rows import Rows
from daskkern.kernels import Kernel
from daskkern.landmarks.base import (
    LandmarkSelector,
    LandmarkSet,
    check_at_least_one,
    check_rows_each,
    distinct,
    sample_bytes,
    sampled_rows,
)
from daskkern.landmarks.pivots import PivotedFactor, factor_bytes, fill

_STREAM = 34
_LEAST_BLOCK, _MOST_BLOCK = 32, 512


@dataclass(frozen=True)
class RPCholesky(LandmarkSelector):
    """Landmarks drawn one after the other, in proportion to the residual diagonal after the previous ones.

    ``P(i) = r_i / sum_j r_j``, r as in :mod:`daskkern.landmarks.pivots`: exactly that distribution on a random sample
    of the rows. Candidates are drawn in proportion to bounds of r and rejected where r is less; there are at most as
    many as sampled rows, and where these give fewer than n landmarks (the rank of the kernel matrix is nearly
    exhausted), the rest is drawn in proportion to the bounds. The order is random.

    Memory: the sample of `rows_each` rows a landmark, and n^2 float64 numbers.

    Parameters
    ----------
    rows_each : int
        Sampled rows for each landmark.
    candidates : int or None
        Candidates that are drawn at once. None: an eighth of n, at least 32 and at most 512.

    References
    ----------
    Chen, Epperly, Tropp and Webber, "Randomly pivoted Cholesky: practical approximation of a kernel matrix with few
    entry evaluations", 2022, algorithm 2.1; Epperly, Tropp and Webber, "Embrace rejection", 2024, algorithm 4.1. Where
    we differ: only residuals of candidates are updated, so that the factor of all rows is never held.
    """

    name: ClassVar[str] = "rp_cholesky"

    rows_each: int = 10
    candidates: int | None = None

    def __post_init__(self) -> None:
        check_rows_each(self.rows_each, self.name)
        check_at_least_one("candidates", 1 if self.candidates is None else self.candidates, self.name)

    def working_bytes(self, n_rows: int, n: int, d: int, itemsize: int) -> int:
        return sample_bytes(n_rows, self.rows_each * n, d, itemsize) + factor_bytes(
            min(n_rows, self.rows_each * n), n, self._at_once(n), d
        )

    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        rng = generator(seed, _STREAM)
        X, numbers = sampled_rows(rows, self.rows_each * n, rng)
        n = min(n, numbers.size)
        factor = PivotedFactor(kernel, X, n)
        _choose(factor, self._at_once(n), rng)
        chosen = rng.permutation(fill(factor, n, rng))
        return distinct(X[chosen], numbers[chosen])

    def _at_once(self, n: int) -> int:
        return int(np.clip(n // 8, _LEAST_BLOCK, _MOST_BLOCK)) if self.candidates is None else self.candidates


def _choose(factor: PivotedFactor, at_once: int, rng: np.random.Generator) -> None:
    left = factor.bounds.size
    while left > 0 and not factor.is_full and factor.bounds.any():
        size = min(left, at_once)
        drawn = rng.choice(factor.bounds.size, size=size, p=factor.bounds / factor.bounds.sum())
        left -= size
        _accept(factor, drawn, rng.random(size))


def _accept(factor: PivotedFactor, drawn: IntArray, levels: HostArray) -> None:
    """Accept those candidates `drawn`, one after the other, whose residual is above the given level of its bound."""
    numbers, places = np.unique(drawn, return_inverse=True)
    bounds = factor.bounds[numbers]
    block = factor.open(numbers)
    for place, level in zip(places, levels, strict=True):
        if block.is_full:
            break
        if block.residuals[place] > level * bounds[place]:
            block.accept(int(place))
    factor.close(block)
