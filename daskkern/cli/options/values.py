"""Parsers of command-line values: bytes, numbers, batch sizes, penalties."""

import re
from typing import Any

from daskkern.errors import SpecError
from daskkern.solvers.penalties import is_chosen_penalty

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def parse_bytes(text: str) -> int:
    """Return the bytes that ``4GB``, ``512 MiB`` or ``1000000`` mean."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS or match[1].count(".") > 1 or match[1] == ".":
        raise SpecError(f"got memory {text!r}; write for example 4GB or 500MiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def as_budget(text: Any) -> int | None:
    """Return a size in bytes, or None for None."""
    return None if text is None else parse_bytes(str(text))


def as_batch(value: Any) -> int | str:
    """Return the rows of a batch, or "auto"."""
    return "auto" if value == "auto" else as_whole("batch_size", value)


def as_groups(value: Any) -> int | str:
    """Return a number of groups, or "auto". Raises SpecError for anything else."""
    if value == "auto":
        return "auto"
    try:
        return as_whole("groups", value)
    except SpecError:
        raise SpecError(f"got groups={value!r}; expected a whole number of at least 1, or 'auto'") from None


def as_penalty(value: Any) -> float | str:
    """Return a ridge penalty, "auto" or a part of that, such as "auto/4". Raises SpecError for anything else."""
    if is_chosen_penalty(value):
        return str(value)
    try:
        return as_number("alpha", value)
    except SpecError:
        raise SpecError(
            f"got alpha={value!r}; expected a number of 0 or more, or 'auto' ('auto/4': a quarter of it)"
        ) from None


def as_calibrate(value: Any) -> bool | float:
    """Return whether to calibrate a model, or the share of rows to set aside. Raises SpecError for anything else."""
    if value in ("auto", True):
        return True
    if value in ("none", None, False):
        return False
    try:
        return as_number("calibrate", value)
    except SpecError:
        raise SpecError(f"got calibrate={value!r}; give auto, none, or a share of the rows, such as 0.1") from None


def as_whole(name: str, value: Any, least: int | None = None) -> int:
    """Return a whole number, of `least` or more. SpecError names the option `name` and its value."""
    try:
        number = int(value)
        if isinstance(value, bool) or number != float(value) or (least is not None and number < least):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        of = "" if least is None else f" of at least {least}"
        raise SpecError(f"got {name}={value!r}; give a whole number{of}") from None
    return number


def as_number(name: str, value: Any) -> float:
    """Return a number. SpecError names the option `name` and its value."""
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise SpecError(f"got {name}={value!r}; give a number") from None


def as_scale(value: Any) -> str | None:
    """Return the name of a scaling, or None for "none"."""
    return None if value is None or str(value).lower() == "none" else str(value)


def as_flag(name: str, value: Any) -> bool:
    """Return a boolean. SpecError names the option `name` and its value."""
    if not isinstance(value, bool):
        raise SpecError(f"got {name}={value!r}; give true or false")
    return value
