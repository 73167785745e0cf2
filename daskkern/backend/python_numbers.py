"""Conversion of NumPy scalars in settings to Python numbers.

``np.int64(3) > 1`` is no bool, which other code multiplies texts with, and JSON has no value for either.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

Settings = TypeVar("Settings")


def python_number(value: Any) -> Any:
    """Return a NumPy scalar as Python's number, bool or text, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def with_python_numbers(settings: Settings) -> Settings:
    """Return `settings`, a dataclass, with Python's numbers in all fields, of dataclasses within too.

    They are returned as they are where they have no NumPy scalars, and so is what is no dataclass.
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
    values = {item.name: getattr(settings, item.name) for item in fields(settings) if item.init}
    found = {name: with_python_numbers(python_number(value)) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not values[name]}
