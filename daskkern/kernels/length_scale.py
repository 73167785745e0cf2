"""Length scales: checked once, and taken from the data when the user says ``"median"``."""

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import positive

_MEDIAN_ROWS = 2000


def check_length_scale(kernel: str, value: float | str) -> float | str:
    """Return a positive float or ``"median"``, or raise SpecError."""
    if isinstance(value, str):
        if value != "median":
            raise SpecError(f"length_scale={value!r} was asked of the {kernel} kernel; give a number or 'median'")
        return value
    return positive(kernel, "length_scale", value)


def resolved(value: float | str, sample: Array) -> float:
    """Return a number: `value` itself, or the median distance between the rows of `sample`."""
    return median_distance(sample) if isinstance(value, str) else value


def number(kernel: str, value: float | str) -> float:
    """Return a length scale that is a number, or raise SpecError when it still waits for data."""
    if isinstance(value, str):
        raise SpecError(
            f"the {kernel} kernel's length scale is {value!r}: call kernel.resolve(rows) first, or give a number"
        )
    return value


def median_distance(sample: Array) -> float:
    """Return the median Euclidean distance between distinct rows of `sample` (its first 2,000 rows).

    Raises
    ------
    DataError
        When fewer than two rows are given or more than half of the distances are zero.
    """
    xp = namespace_of(sample)
    rows = sample[:_MEDIAN_ROWS].astype(xp.float64)
    rows = rows - rows.mean(axis=0)
    norms = xp.einsum("ij,ij->i", rows, rows)
    squared = xp.maximum(norms[:, None] + norms[None, :] - 2 * rows @ rows.T, 0)
    upper = xp.triu_indices(rows.shape[0], 1)
    median = float(xp.sqrt(xp.median(squared[upper]))) if rows.shape[0] > 1 else 0.0
    if not median > 0:
        raise DataError("the median distance between rows is 0, so it cannot be a length scale; give a number instead")
    return median
