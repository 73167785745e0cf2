"""The base class of kernels that are functions of a sum over the features of what two rows differ in each."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.backend.tiles import TILE_ROWS, slices
from daskkern.kernels.base import Kernel
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.rows import as_rows, rows_dtype


@dataclass(frozen=True)
class DifferenceKernel(ScaledDistanceKernel):
    """``k(x, z) = g(sum_j t(x_j - z_j))`` for terms t of single features."""

    @abstractmethod
    def sums(self) -> Kernel:
        """Return the sum of the terms, in place of a kernel."""

    @abstractmethod
    def slope(self, sums: Array) -> Array:
        """Return ``g'(sums)``, finite where the sums are 0."""

    @abstractmethod
    def term_derivative(self, gaps: Array) -> Array:
        """Return ``t'(gaps)``, and 0 where the term has no derivative."""

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients of ``sum_j w_ij k(x_i, z_j) A_jc`` by x_i.

        ``sum_j w_ij g'(s_ij) t'(x_ik - z_jk) A_jc`` for feature k, with s the sums. Where two rows have the same
        feature and the kernel has no derivative by it, 0 is used. A tile of pairs is held at a time, and used for each
        feature in turn.

        Parameters
        ----------
        X : (m, d), Z : (p, d)
            Rows; CSR ones are made dense, as the result is.
        A : (p, c)
        weights : (m, p), optional
            w; ones by default.

        Returns
        -------
        (m, c, d) float64 array
        """
        dtype = np.promote_types(rows_dtype(X), rows_dtype(Z))
        shift = self.shift_for(as_rows(Z))
        left, right = (self._placed(_dense(as_rows(rows, dtype)), shift) for rows in (X, Z))
        xp = namespace_of(left)
        A = xp.asarray(A, dtype)
        out = xp.zeros((left.shape[0], A.shape[1], left.shape[1]), np.float64)
        sums = self.sums()
        for cols in slices(right.shape[0], TILE_ROWS):
            points = sums.points(right[cols])
            for rows in slices(left.shape[0], TILE_ROWS):
                slope = self.slope(sums.block(left[rows], points))
                if weights is not None:
                    slope = slope * weights[rows, cols]
                for k in range(left.shape[1]):
                    gaps = left[rows, k, None] - right[None, cols, k]
                    out[rows, :, k] += (slope * self.term_derivative(gaps)) @ A[cols]
        if self._map is None:
            return out
        return xp.stack([self._map.backward(out[:, c]) for c in range(A.shape[1])], axis=1)


def _dense(rows: Array) -> Array:
    return rows.toarray() if is_sparse(rows) else rows
