"""The table of differences between the compared fits, and what makes them incomparable.

Everything that comes from a client is escaped.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from daskkern.monitor.dashboard.cells import badge, cells_of, head_of, swatch
from daskkern.monitor.formatting import number, ran, score_name, seconds

_Status = Mapping[str, Any]


def comparison_table(fits: Sequence[tuple[int, _Status]], now: float) -> str:
    """Return what differs between fits as HTML, a row for each; "" for fewer than two.

    Parameters
    ----------
    fits : sequence of (int, mapping)
        The place of each fit, which gives its color, and its status.
    now : float
        Seconds since 1970.
    """
    if len(fits) < 2:
        return ""
    settings = [_settings(status) for _, status in fits]
    differing = differing_settings(settings)
    names = ("Fit", "State", "Epoch", "Loss", "Score", "Running for", *(_title(name) for name in differing))
    rows = []
    for (place, status), own in zip(fits, settings, strict=True):
        found = [escape(own.get(name, "-")) for name in differing]
        rows.append(f"<tr>{cells_of((*_results(place, status, now), *found), names)}</tr>")
    same = "" if differing else "<p class='empty'>Their settings are the same.</p>"
    return f"<div class='wide'><table class='compared'>{head_of(*names)}{''.join(rows)}</table></div>{same}"


def differing_settings(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names of the settings in which those of several fits that have it differ, in their order."""
    names = dict.fromkeys(name for own in settings for name in own)
    return [name for name in names if len({own[name] for own in settings if name in own}) > 1]


def not_comparable(fits: Sequence[_Status]) -> str:
    """Return a sentence on curves that do not measure the same, as HTML; "" where all do."""
    losses = {loss for status in fits if (loss := str(status["card"].get("settings", {}).get("loss", "")))}
    tasks = {str(status["card"]["task"]) for status in fits}
    sentences = []
    if len(losses) > 1:
        sentences.append(f"Their losses are different functions ({escape(', '.join(sorted(losses)))}).")
    if len(tasks) > 1:
        scores = ", ".join(sorted(score_name(task) for task in tasks))
        sentences.append(f"Their validation scores are different measures ({scores}).")
    return f"<p class='unlike'>{' '.join(sentences)} Compare the shape of these curves only.</p>" if sentences else ""


def _settings(status: _Status) -> dict[str, str]:
    """Return what may differ between fits, by name: rows, epochs and rank, and the settings of the method."""
    metadata = status["card"]
    ranks = {"workers": str(len(status["workers"]))} if status["workers"] else {}
    found = {
        "rows from": str(metadata["source"]).rstrip("/").rpartition("/")[2],
        "task": str(metadata["task"]),
        **ranks,
    }
    return {name: text for name, text in {**found, **metadata.get("settings", {})}.items() if text}


def _results(place: int, status: _Status, now: float) -> tuple[str, ...]:
    metadata, score = status["card"], float(status["validation_score"])
    fit = f"{swatch(place)} <b>{escape(str(metadata['name']))}</b> <small>{escape(str(metadata['fit']))}</small>"
    of = f" of {int(metadata['max_epochs'])}" if metadata["max_epochs"] else ""
    measured = "-" if math.isnan(score) else f"{number(score)} <small>{score_name(str(metadata['task']))}</small>"
    took = seconds(ran(status["started"], status["ended"], now))
    return fit, badge(status), f"{int(status['epoch'])}{of}", number(status["loss"]), measured, took


def _title(name: str) -> str:
    return escape(name[:1].upper() + name[1:], quote=True)
