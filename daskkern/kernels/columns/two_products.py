"""Columns whose double product takes two separate products, because the scores of all rows are needed in between."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array
from daskkern.kernels.base import Kernel
from daskkern.kernels.points import Left, Points


@dataclass(frozen=True)
class TwoProducts(Kernel):
    """The base class of columns that no engine has a fused double product for."""

    def double_product(
        self,
        X: Array | Left,
        Z: Array | Points,
        V: Array,
        between: Callable[[Array, slice], Array] | None = None,
    ) -> Array:
        left, right = self._sides(X, Z)
        scores = self.matvec(left, right, V)
        g = scores if between is None else between(scores, slice(0, left.shape[0]))
        return self.rmatvec(left, right, g).astype(np.float64)
