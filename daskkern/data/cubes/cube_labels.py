"""The labels along the dims of a Dataset as texts, used in feature names, and their positions."""

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np

from daskkern.errors import DataError

_WHOLE = 1e15
"""Floats up to which whole numbers are written as integers."""


def labels_along(ds: Any, dim: str) -> tuple[str, ...]:
    """Return the labels of a dim as texts; its positions where it has no coordinate.

    Equal labels have the same text, whatever the dtype of the coordinate: 500 and 500.0, a date in days or in
    nanoseconds, 0.1 as float32 or float64.
    """
    return tuple(_text(value) for value in _values(ds, dim))


def places_along(ds: Any, dim: str) -> dict[str, tuple[int, ...]]:
    """Return the positions along a dim by the text of their label, and by texts that models of old have for it."""
    places: dict[str, list[int]] = {}
    older: dict[str, list[int]] = {}
    for position, value in enumerate(_values(ds, dim)):
        text = _text(value)
        places.setdefault(text, []).append(position)
        for other in set(_old_texts(value)) - {text}:
            older.setdefault(other, []).append(position)
    return {text: tuple(found) for text, found in (older | places).items()}


def position_of(places: dict[str, tuple[int, ...]], dim: str, label: str) -> int:
    """Return the position of a label, one of `places`. DataError where several have it."""
    found = places[label]
    if len(found) > 1:
        raise DataError(
            f"the dim {dim!r} of the Dataset has the label {label} at {len(found)} positions, so which of them is a "
            "feature is unknown; make its labels different, or select some positions with isel"
        )
    return found[0]


def _values(ds: Any, dim: str) -> Iterator[Any]:
    """Return the labels of a dim as scalars that keep their dtype, or its positions."""
    yield from (np.asarray(ds[dim].values) if dim in ds.coords else range(ds.sizes[dim]))


def _text(value: Any) -> str:
    if isinstance(value, tuple):  # of several levels that were stacked
        return f"({', '.join(map(_text, value))})"
    if _is_date(value):
        return str(np.datetime_as_string(np.datetime64(value), unit="auto"))
    if isinstance(value, np.timedelta64):
        return _duration(value)
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() and abs(float(value)) < _WHOLE else _shortest(value)
    return str(value)


def _old_texts(value: Any) -> Iterator[str]:
    """Yield texts of a label in names of features that were recorded before equal labels had the same text."""
    if _is_date(value):
        date = np.datetime64(value)
        yield str(date.astype("M8[us]").astype(object))
        yield str(date.astype("M8[ns]").astype(np.int64))
    elif isinstance(value, np.timedelta64):
        yield str(value.astype("m8[ns]").astype(np.int64))
    elif isinstance(value, float | np.floating | int | np.integer) and not isinstance(value, bool):
        number = float(value)
        yield f"{number:g}" if float(f"{number:g}") == number else str(number)


def _is_date(value: Any) -> bool:
    """Return whether a label is a date that NumPy has: one without a time zone."""
    return isinstance(value, np.datetime64 | datetime.date) and getattr(value, "tzinfo", None) is None


def _duration(value: Any) -> str:
    """Return a duration as Python writes it; one of fractions of a microsecond in nanoseconds."""
    exact = value.astype("m8[us]")
    return str(exact.astype(object)) if exact == value or np.isnat(value) else str(value.astype("m8[ns]").astype(int))


def _shortest(value: Any) -> str:
    """Return the shortest text of a float that gives it back in its own dtype."""
    short = f"{float(value):g}"
    return short if type(value)(short) == value else str(value)
