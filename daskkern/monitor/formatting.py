"""Formatting of numbers with units."""

import math
import time
from collections.abc import Mapping
from typing import Any

_SCORES = {
    "classification": "accuracy",
    "multilabel": "R\N{SUPERSCRIPT TWO} of the scores",
    "regression": "R\N{SUPERSCRIPT TWO}",
}


def seconds(value: float) -> str:
    """Return ``"0.4 s"``, ``"12 min 5 s"``, ``"3 h 20 min"``; a dash for NaN and infinity."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.1f} s" if value < 10 else whole_seconds(round(value))


def whole_seconds(value: float) -> str:
    """Return ``"7 s"``, ``"12 min 5 s"``, ``"3 h 20 min"``; fractions of a second are cut off."""
    minutes, rest = divmod(int(value), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def ran(started: float, ended: float, now: float) -> float:
    """Return the seconds that a fit has run by `now`, or ran until it ended; NaN if it never started."""
    return (ended or now) - started if started else math.nan


def format_bytes(n_bytes: float) -> str:
    """Return ``"1.5 GB"`` and the like, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n_bytes) < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def number(value: float) -> str:
    """Return four significant digits; a dash for NaN."""
    return "-" if math.isnan(value) else f"{value:.4g}"


def clock(value: float) -> str:
    """Return the time of day on the scheduler's machine, with the date if it is not today."""
    moment, today = time.localtime(value), time.localtime()
    same = moment[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", moment)


def setting_in_words(value: Any) -> str:
    """Return the value of a setting, a JSON value, as people read it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {setting_in_words(item)}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def score_name(task: str) -> str:
    """Return the name of the validation score of a fit of `task`, in lower case; "score" where it is unknown."""
    return _SCORES.get(task, "score")
