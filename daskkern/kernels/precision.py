"""The precision of kernel values: exact in the working dtype, or from rounded features on request.

Rows are rounded once, when they are prepared, to the inputs of a GPU's tensor cores. The rounding is the same on
every device, and so are, up to the order of sums, the results: a processor without tensor cores gains no speed from
it, but shows the error.
"""

from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.csr import with_entries
from daskkern.backend.namespace import namespace_of
from daskkern.errors import DataError, SpecError

Precision: TypeAlias = Literal["float64", "float32", "tf32", "float16"]
"""What features are rounded to. Sums of "tf32" (10 mantissa bits, exponents of float32) and "float16" are float32."""

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_DROPPED_BITS = 13  # of float32's 23 mantissa bits


def check_precision(requested: object) -> Precision:
    """Return `requested`, or raise SpecError where it is not a precision."""
    for known in PRECISIONS:
        if requested == known:
            return known
    raise SpecError(f"got precision {requested!r}; choose one of {', '.join(map(repr, PRECISIONS))}")


def working_dtype(precision: Precision) -> np.dtype[Any]:
    """Return the dtype of rows and products: float64 for "float64", float32 for all others."""
    return np.dtype(np.float64 if precision == "float64" else np.float32)


def exact_precision(dtype: Any) -> Precision:
    """Return the precision that rounds nothing for rows of this dtype."""
    return "float64" if np.dtype(dtype) == np.float64 else "float32"


def agreed_dtype(precision: Precision | None, dtype: Any) -> Any:
    """Return the dtype that `precision` requires; SpecError when `dtype` is another one."""
    if precision is None:
        return dtype
    wanted = working_dtype(check_precision(precision))
    if dtype is not None and np.dtype(dtype) != wanted:
        raise SpecError(
            f"got both dtype {np.dtype(dtype)} and precision {precision!r}, but that precision works in {wanted}; "
            "leave one of them out"
        )
    return wanted


def rounded(rows: Array, precision: Precision | None, *, checked: bool = True) -> Array:
    """Return `rows` (m, d), dense or CSR, with features that `precision` has; a copy only where it rounds.

    None rounds nothing. Unless it is `checked`, a feature that is too large becomes infinite.

    Raises
    ------
    DataError
        When a feature is too large for float16.
    """
    if precision in (None, "float64", "float32"):
        return rows
    if hasattr(rows, "tocsr"):
        return with_entries(rows, rounded(rows.data, precision, checked=checked))
    if precision == "tf32":
        return _to_tf32(rows)
    xp = namespace_of(rows)
    largest = float(xp.abs(rows).max()) if rows.size and checked else 0.0
    if largest >= 65520:  # halfway between float16's largest number and the next power of two
        raise DataError(
            f"got precision 'float16', but a feature is {largest:.6g} in size and float16 ends at 65504; "
            "scale the features or give 'tf32'"
        )
    return rows.astype(xp.float16).astype(rows.dtype)


def _to_tf32(values: Array) -> Array:
    """Return float32 numbers with 10 mantissa bits, the nearest ones, even on ties."""
    xp = namespace_of(values)
    bits = xp.ascontiguousarray(values).view(xp.uint32)
    last_kept = (bits >> xp.uint32(_DROPPED_BITS)) & xp.uint32(1)
    half = xp.uint32((1 << (_DROPPED_BITS - 1)) - 1)
    mask = xp.uint32(0xFFFFFFFF ^ ((1 << _DROPPED_BITS) - 1))
    return ((bits + half + last_kept) & mask).view(xp.float32)
