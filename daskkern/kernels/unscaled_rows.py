"""The base class of kernels of rows as they are: no coordinates of another space stand for all that they depend on."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array
from daskkern.kernels.base import Kernel
from daskkern.kernels.rounding import TOLERANCE, Rounding


@dataclass(frozen=True)
class UnscaledRows(Kernel):
    """A kernel whose values depend on the units of the features, and on more than distances."""

    @property
    def has_units(self) -> bool:
        return True

    @property
    def coordinates(self) -> Hashable:
        return None

    @property
    def is_shift_invariant(self) -> bool:
        return False

    def rounding(self, Z: Array, dtype: object = np.float32) -> Rounding:
        """Return an error of 0: no differences of rows are taken in float32, or the effect of rounding is not known."""
        del Z, dtype
        return Rounding(0.0, TOLERANCE, 0.0)
