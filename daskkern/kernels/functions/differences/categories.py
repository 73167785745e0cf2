"""Code columns of rows: their positions, and length scales by which codes divide without rounding."""

import numpy as np
import numpy.typing as npt

from daskkern.arrays import FloatArray
from daskkern.errors import SpecError

LARGEST_CODE = 1 << 24
"""Whole numbers up to this one are exact in float32."""
_RANGE = 2.0**100  # codes divided by it, and multiplied with it, are in the range of float32


def check_categories(kernel: str, value: object) -> tuple[int, ...]:
    """Return numbers of columns, ascending, or raise SpecError."""
    found = np.atleast_1d(np.asarray(value if isinstance(value, list | tuple | np.ndarray) else [np.nan]))
    whole = found.dtype.kind in "iu" and found.ndim == 1 and bool((found >= 0).all())
    if found.size and not (whole and np.unique(found).size == found.size):
        raise SpecError(
            f"got categories={value!r:.60} for the {kernel} kernel; expected the numbers of different columns, from 0"
        )
    return tuple(sorted(int(column) for column in found))


def in_range(scales: npt.ArrayLike) -> FloatArray:
    """Return length scales of code columns: those beyond the range of float32 count as its ends.

    Values of kernels do not change: such a mismatch counts as nothing, or makes two rows differ altogether.
    """
    found: FloatArray = np.clip(np.asarray(scales, np.float64), 1 / _RANGE, _RANGE)
    return found


def exact_divisors(scales: FloatArray) -> FloatArray:
    """Return the largest powers of two up to `scales`: codes are divided by them without rounding.

    Different codes, which are whole numbers, are then at least ``1 / scales`` apart, the cap of their differences.
    """
    found: FloatArray = 2.0 ** np.floor(np.log2(scales))
    return found
