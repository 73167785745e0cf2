"""Building blocks of the tables on the page: labelled cells, states, bars and colors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from daskkern.monitor.palette import FIT_COLORS

_ACTIVE = ("submitted", "queued", "preparing", "running", "recovering", "preempted")


def is_active(status: Mapping[str, Any]) -> bool:
    """Return whether a fit has not ended."""
    return status["state"] in _ACTIVE


def badge(status: Mapping[str, Any]) -> str:
    """Return the state of a fit as a colored word."""
    state = escape(str(status["state"]))
    text = f"{state}, stopping" if status.get("stop") and is_active(status) else state
    return f"<span class='state {state}'>{text}</span>"


def bar(share: float) -> str:
    """Return a bar that is filled to `share`."""
    width = 0 if math.isnan(share) else 100 * share
    return f"<span class='bar'><span style='width:{width:.1f}%'></span></span>"


def swatch(place: int) -> str:
    """Return the color of the curves of the fit at a place."""
    return f"<span class='swatch' style='background:{FIT_COLORS[place]}'></span>"


def submitter(metadata: Mapping[str, Any]) -> str:
    """Return the submitter of a fit, and the user whose quota applies if that is another."""
    owner, user = str(metadata["owner"]), str(metadata["user"])
    other = f" <small>for {escape(user)}</small>" if user and user != owner.partition("@")[0] else ""
    return escape(owner) + other


def head_of(*names: str) -> str:
    """Return the head of a table."""
    cells = "".join(f"<th data-label='{name}'>{name}</th>" for name in names)
    return f"<tr class='head'>{cells}</tr>"


def cells_of(cells: Iterable[str], names: Sequence[str]) -> str:
    """Return cells with the names of their columns, which a phone shows in front of them."""
    return "".join(f'<td data-label="{name}">{cell}</td>' for cell, name in zip(cells, names, strict=True))


def plural(number: int) -> str:
    """Return the ending of a noun after a number."""
    return "s" * (number != 1)
