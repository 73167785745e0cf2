"""Updates of Bokeh models that are certain to reach the browser."""

from collections.abc import Mapping
from typing import Any


def set_changed(model: Any, values: Mapping[str, Any]) -> None:
    """Set properties that differ: each assignment is a message to the browser."""
    for name, value in values.items():
        if getattr(model, name) != value:
            setattr(model, name, value)
