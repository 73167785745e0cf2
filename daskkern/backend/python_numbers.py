"""Conversion of NumPy scalars in settings to Python numbers.

``np.int64(3) > 1`` is not a bool, which other code multiplies texts with, and JSON has no value for either.
"""

from collections.abc import Hashable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

Settings = TypeVar("Settings")

_PLAIN = frozenset((int, float, str, bool, type(None)))


def python_number(value: Any) -> Any:
    """Return a NumPy scalar as Python's number, bool or text, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def with_python_numbers(settings: Settings) -> Settings:
    """Return `settings`, a dataclass, with Python's numbers in all fields, of dataclasses within too.

    They are returned as they are where they have no NumPy scalars, and so is what is not a dataclass.
    """
    if isinstance(settings, type) or not is_dataclass(settings):
        return settings
    changes = _changes(settings)
    found: Any = settings
    return replace(found, **changes) if changes else found


def set_python_numbers(settings: Any) -> None:
    """Do the same in place, for ``__post_init__`` of a frozen dataclass."""
    for name, value in _changes(settings).items():
        object.__setattr__(settings, name, value)


def _changes(settings: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    kind: Any = type(settings)
    for name in _names(kind):
        value = getattr(settings, name)
        if type(value) in _PLAIN:
            continue
        found = with_python_numbers(python_number(value))
        if found is not value:
            changes[name] = found
    return changes


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    """Return the names of the parameters of a dataclass."""
    found: Any = kind
    return tuple(item.name for item in fields(found) if item.init)
