"""The limit 2^53 up to which float64 represents integers exactly, and checks of integer targets against it."""

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import DataError

LARGEST = 2**53
"""The largest integer up to which float64 holds each one."""

REMEDY = "expected integers up to 2^53, beyond which float64 rounds them: subtract an offset, or give floats"


def first_rounded(y: HostArray) -> int | None:
    """Return the position in flat `y` of the first integer that float64 may round; None without one.

    Floats are what they are, however large.
    """
    if y.dtype.kind == "O":
        found = (
            i for i, value in enumerate(y.flat) if isinstance(value, int | np.integer) and abs(int(value)) > LARGEST
        )
        return next(found, None)
    if y.dtype.kind not in "iu" or y.dtype.itemsize < 8 or not y.size:
        return None
    if int(y.min()) >= -LARGEST and int(y.max()) <= LARGEST:
        return None
    return int(np.argmax((y > LARGEST) | (y < -LARGEST)))


def check_quantities(y: HostArray) -> None:
    """Raise DataError for an integer among regression targets (n,) or (n, t) that float64 may round."""
    at = first_rounded(y)
    if at is not None:
        raise DataError(f"got the target {y.flat[at]}; {REMEDY}")


def first_merged(y: HostArray) -> int | None:
    """Return the position of the first float among labels (n,) that stands for several integers; None without one."""
    if y.dtype.kind != "f" or not y.size:
        return None
    large = np.abs(y) >= LARGEST
    return int(np.argmax(large)) if large.any() else None


def check_label_floats(y: HostArray) -> None:
    """Raise DataError for a class label (n,) that is a float so large that it stands for several integers."""
    at = first_merged(y)
    if at is not None:
        raise DataError(
            f"got the label {float(y[at])!r}, a float that stands for several integers; expected integers or text"
        )
