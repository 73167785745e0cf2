"""Validation of numeric kernel parameters."""

import math

from daskkern.errors import SpecError


def as_number(value: object) -> float:
    """Return `value` as a float, NaN when it is not a number."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def positive(kernel: str, parameter: str, value: float) -> float:
    """Return `value` as a float, or raise SpecError when it is not a positive finite number."""
    from_user = as_number(value)
    if not (math.isfinite(from_user) and from_user > 0):
        raise SpecError(f"got {parameter}={value!r} for the {kernel} kernel; give a positive finite number")
    return from_user


def whole(columns: str, parameter: str, value: object, least: int) -> int:
    """Return `value` as an int, or raise SpecError when it is not a whole number of at least `least`."""
    number = as_number(value)
    if isinstance(value, bool) or not math.isfinite(number) or number != int(number) or number < least:
        raise SpecError(f"got {parameter}={value!r} for {columns}; give a whole number from {least} on")
    return int(number)
