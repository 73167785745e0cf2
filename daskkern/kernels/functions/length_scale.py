"""Length scales and metrics: their validation, and the median distance for ``"median"``."""

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array, FloatArray
from daskkern.backend.csr import library_matrix
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import DataError, SpecError
from daskkern.kernels.parameters import as_number, positive

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]
LengthScale = float | str | Vector | Matrix
"""The parameter of a kernel: a number, "median", one number per feature, or the rows of a matrix."""

_EQUAL = 1e-14  # rounding error of the squared distance of equal rows, in units of their squared norms
MEDIAN_ROWS = 2000
_WORST_CONDITION = 1e12
_ROUNDING = 1e-6  # relative error of metrics that were computed in float32


def check_length_scale(kernel: str, value: LengthScale | npt.ArrayLike) -> LengthScale:
    """Return `value` in the form of :data:`LengthScale`, or raise SpecError.

    It is a number, "median", or an array or (nested) sequence: (d,) positive numbers, or an invertible (d, d) matrix.
    """
    if isinstance(value, str):
        if value != "median":
            raise SpecError(f"got length_scale={value!r} for the {kernel} kernel; expected a number or 'median'")
        return value
    if np.ndim(_array(value)) == 0:
        if isinstance(value, bool):
            raise SpecError(f"got length_scale={value!r} for the {kernel} kernel; expected a positive finite number")
        return positive(kernel, "length_scale", as_number(value) if value is not None else float("nan"))
    found = _array(value)
    if found.ndim == 1 and found.size and np.isfinite(found).all() and (found > 0).all():
        return tuple(float(scale) for scale in found)
    square = found.ndim == 2 and found.shape[0] == found.shape[1] > 0 and bool(np.isfinite(found).all())
    if square and np.linalg.cond(found, 1) < _WORST_CONDITION:
        return _rows(found)
    raise SpecError(
        f"got length_scale={value!r:.60} for the {kernel} kernel; expected a positive finite number, 'median', one "
        "positive number per feature, or an invertible matrix"
    )


def check_metric(kernel: str, metric: npt.ArrayLike) -> Matrix:
    """Return `metric` (d, d), symmetric and positive semi-definite up to rounding, or raise SpecError."""
    found = _array(metric)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size or not np.isfinite(found).all():
        raise SpecError(
            f"got a metric of shape {found.shape} for the {kernel} kernel; expected finite numbers of shape (d, d)"
        )
    size = float(np.abs(found).max())
    if not np.abs(found - found.T).max() <= _ROUNDING * size:
        raise SpecError(f"the metric of the {kernel} kernel is not symmetric; give (M + M.T) / 2")
    symmetric = (found + found.T) / 2
    values = np.linalg.eigvalsh(symmetric)
    if not (values[-1] > 0 and values[0] >= -_ROUNDING * values[-1]):
        raise SpecError(
            f"the metric of the {kernel} kernel has eigenvalues from {values[0]:.2g} to {values[-1]:.2g}; give a "
            "positive semi-definite matrix other than 0"
        )
    return _rows(symmetric)


def check_factor(kernel: str, factor: npt.ArrayLike) -> Matrix:
    """Return `factor` (d, k), finite, not 0 and with k at most d, or raise SpecError."""
    found = _array(factor)
    if found.ndim != 2 or not 0 < found.shape[1] <= found.shape[0] or not np.isfinite(found).all() or not found.any():
        raise SpecError(
            f"got a factor of shape {found.shape} for the {kernel} kernel; expected finite numbers of shape (d, k), "
            "k at most d, that are not all 0"
        )
    return _rows(found)


def metric_factor(metric: Matrix) -> FloatArray:
    """Return F (d, k) with ``F F^T = M``, from the k eigenvalues of M above rounding errors."""
    values, vectors = np.linalg.eigh(np.asarray(metric))
    kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
    factor: FloatArray = vectors[:, kept] * np.sqrt(values[kept])
    return factor


def plain(value: LengthScale) -> float | str | list[float] | list[list[float]]:
    """Return a length scale or metric as JSON values."""
    if not isinstance(value, tuple):
        return value
    return [list(row) if isinstance(row, tuple) else row for row in value]  # type: ignore[return-value]


def median_distance(sample: Array) -> float:
    """Return the median Euclidean distance between distinct rows of `sample` (its first 2,000 rows).

    Where more than half of the distances are 0, because rows are equal, it is the median of the others.

    Raises
    ------
    DataError
        With fewer than two rows, or when all rows are equal.
    """
    squared, norms = _squared_distances(sample[:MEDIAN_ROWS].astype(np.float64))
    return median_of_pairs(squared, _EQUAL, norms) ** 0.5


def median_of_pairs(table: Array, rounding: float, sizes: Array) -> float:
    """Return the median of a symmetric `table` (m, m) of distances of rows over distinct rows.

    Distances of equal rows are within `rounding` of the `sizes` (m,) of both. Errors as :func:`median_distance`.
    """
    xp = namespace_of(table)
    at = xp.arange(table.shape[0])
    above = at[:, None] < at[None, :]  # a mask: numbers of rows and columns would take as much as the table
    pairs = table[above]
    bounds = xp.broadcast_to(sizes[:, None], table.shape)[above]  # no other table of all pairs
    bounds += xp.broadcast_to(sizes[None, :], table.shape)[above]
    bounds *= rounding
    apart = pairs > bounds
    del bounds
    if 2 * int(apart.sum()) < pairs.size:
        pairs = pairs[apart]
    median = float(xp.median(pairs)) if pairs.size else 0.0
    if not median > 0:
        raise DataError(
            "the median distance between rows is 0, because most of the sampled rows are equal, so it cannot be a "
            "length scale; add features that differ, remove repeated rows, or give the length scale as a number"
        )
    return median


def _squared_distances(rows: Array) -> tuple[Array, Array]:
    """Return the squared distances (m, m), and the squared norms (m,) from which they are computed.

    Dense rows are centred at their median: a mean could be dominated by a single outlier, which would cost the
    distances between all other rows their digits.
    """
    if is_sparse(rows):
        rows = library_matrix(rows)
        inner = (rows @ rows.T).toarray()
        norms = inner.diagonal()
    else:
        rows = rows - namespace_of(rows).median(rows, axis=0)
        inner = rows @ rows.T
        norms = (rows * rows).sum(axis=1)
    xp = namespace_of(inner)
    table = norms[:, None] + norms[None, :]
    inner *= 2
    table -= inner
    return xp.maximum(table, 0, out=table), norms


def _array(value: object) -> FloatArray:
    """Return numbers as float64; an empty array (0, 0, 0) for anything else."""
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return np.empty((0, 0, 0))


def _rows(matrix: FloatArray) -> Matrix:
    return tuple(tuple(float(entry) for entry in row) for row in matrix)
