"""Count sketches: each feature is added, with a random sign, to one of `width` numbers.

Kept are the numbers of the features of each sum, not a matrix (d, width).

References
----------
Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", ICALP 2002.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.csr import library_matrix
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.kernels.rows import module_of


@dataclass(frozen=True, eq=False)
class CountSketch:
    """A sketch of d features and a constant into `width` sums.

    Attributes
    ----------
    sums : (d + 1,) int64
        The sum that each feature is added to, the last one for the constant.
    signs : (d + 1,) float32
        -1 or 1.
    members : (l, width) int64
        Features of each sum, at most l of them; 0 where there are fewer.
    factors : (l, width) float32
        Their signs; 0 where there are fewer.
    """

    sums: IntArray
    signs: HostArray
    members: IntArray
    factors: HostArray

    @classmethod
    def drawn(cls, rng: np.random.Generator, n_features: int, width: int) -> Self:
        """Return a sketch whose sums and signs are drawn."""
        sums = rng.integers(width, size=n_features + 1)
        signs = rng.choice((-1.0, 1.0), n_features + 1).astype(np.float32)
        order = np.argsort(sums[:-1], kind="stable")
        counts = np.bincount(sums[:-1], minlength=width)
        place = np.arange(n_features) - np.repeat(np.cumsum(counts) - counts, counts)
        members = np.zeros((int(counts.max(initial=1)), width), np.int64)
        factors = np.zeros(members.shape, np.float32)
        members[place, sums[order]], factors[place, sums[order]] = order, signs[order]
        return cls(sums, signs, members, factors)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(each.nbytes for each in (self.sums, self.signs, self.members, self.factors))

    def of(self, X: Array, scale: float, constant: float) -> Array:
        """Return the sketch (m, width) of ``(scale x, constant)`` for rows (m, d), dense or CSR, in their dtype."""
        found = self._of_sparse(X) if is_sparse(X) else self._of_dense(X)
        found *= scale
        found[:, int(self.sums[-1])] += constant * float(self.signs[-1])
        return found

    def _of_dense(self, X: Array) -> Array:
        xp = namespace_of(X)
        found = xp.zeros((X.shape[0], self.members.shape[1]), X.dtype)
        for members, factors in zip(self.members, self.factors, strict=True):
            found += X[:, xp.asarray(members)] * xp.asarray(factors.astype(X.dtype))
        return found

    def _of_sparse(self, X: Any) -> Array:
        xp, d, X = module_of(X), X.shape[1], library_matrix(X)
        parts = (xp.asarray(self.signs[:-1].astype(X.dtype)), xp.asarray(self.sums[:-1]), xp.arange(d + 1))
        return (X @ type(X)(parts, shape=(d, self.members.shape[1]))).toarray()
