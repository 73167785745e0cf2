"""Landmarks by incomplete Cholesky factorization with full pivoting."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.backend.random import generator
from daskkern.data.rows.rows import Rows
from daskkern.kernels import Kernel
from daskkern.landmarks.base import LandmarkSelector, LandmarkSet, check_rows_each, distinct, sample_bytes, sampled_rows
from daskkern.landmarks.pivots import PivotedFactor, factor_bytes, fill

_STREAM = 35
_LEAST_BLOCK, _MOST_BLOCK = 32, 512


@dataclass(frozen=True)
class IncompleteCholesky(LandmarkSelector):
    """Landmarks chosen greedily: each is the row with the largest residual after the previous ones.

    The row of the largest residual r, see :mod:`daskkern.landmarks.pivots`: the greedy rule on a random sample of the
    rows. It spreads landmarks over the whole space of the rows, outliers first; `rp_cholesky` follows the density of
    rows. Where the rank of the kernel matrix is exhausted, the rest is drawn uniformly. The order is random.

    Memory: the sample of `rows_each` rows a landmark, and n^2 float64 numbers. As residuals of all rows of the sample
    may have to be computed several times, it takes longer than `rp_cholesky` for many landmarks.

    Parameters
    ----------
    rows_each : int
        Sampled rows for each landmark.

    References
    ----------
    Fine and Scheinberg, "Efficient SVM training using low-rank kernel representations", JMLR 2001; Bach and Jordan,
    "Kernel independent component analysis", JMLR 2002. Where we differ: residuals are updated only where a
    bound shows that they may be the largest (lazily), so that the factor of all rows is never held.
    """

    name: ClassVar[str] = "incomplete_cholesky"

    rows_each: int = 4

    def __post_init__(self) -> None:
        check_rows_each(self.rows_each, self.name)

    def working_bytes(self, n_rows: int, n: int, d: int, itemsize: int) -> int:
        return sample_bytes(n_rows, self.rows_each * n, d, itemsize) + factor_bytes(
            min(n_rows, self.rows_each * n), n, _MOST_BLOCK, d
        )

    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        rng = generator(seed, _STREAM)
        X, numbers = sampled_rows(rows, self.rows_each * n, rng)
        n = min(n, numbers.size)
        order = rng.permutation(numbers.size)  # equal residuals, as at the start, in random order
        factor = PivotedFactor(kernel, X[order], n)
        while not factor.is_full and factor.bounds.any():
            _choose(factor, int(np.clip(n // 8, _LEAST_BLOCK, _MOST_BLOCK)))
        chosen = order[rng.permutation(fill(factor, n, rng))]
        return distinct(X[chosen], numbers[chosen])


def _choose(factor: PivotedFactor, size: int) -> None:
    """Accept rows with the largest bounds, while the largest residual among them is the largest of all."""
    ranked = np.argsort(-factor.bounds, kind="stable")[: size + 1]
    numbers = ranked[:size]
    outside = factor.bounds[ranked[size]] if ranked.size > size else 0.0
    block = factor.open(numbers)
    while not block.is_full:
        best = int(np.argmax(block.residuals))
        if not block.residuals[best] > 0 or block.residuals[best] < outside:
            break
        block.accept(best)
    factor.close(block)
