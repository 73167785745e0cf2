"""The status of one fit in large numbers, and what it waits for. All text from clients is escaped."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from daskkern.monitor.dashboard.cells import badge, is_active, plural, submitter
from daskkern.monitor.formatting import number, ran, score_name, seconds

_WAITING = ("submitted", "queued", "preempted")
_Status = Mapping[str, Any]
_NEXT = {
    "submitted": "It has been submitted, and requests workers next.",
    "queued": "It starts by itself as soon as it has its workers.",
    "preempted": "It has committed its state, and continues from there by itself as soon as it has workers again.",
}


def has_begun(status: _Status, glance: Mapping[str, Any]) -> bool:
    """Return whether a fit has reported anything since it was submitted."""
    return bool(status["started"] or glance["version"])


def facts(status: _Status, glance: Mapping[str, Any], now: float, rate: float = math.nan) -> str:
    """Return the status of one fit as HTML, with large numbers and small text; `rate` is that of its curve."""
    tiles = _running_tiles(status, now, rate) if has_begun(status, glance) else _waiting_tiles(status, now)
    body = "".join(f"<div><span>{name}</span><b>{value}</b></div>" for name, value in tiles)
    error = f"<p class='error'>{escape(str(status['error']))}</p>" if status["error"] else ""
    words = " \N{MIDDLE DOT} ".join(word for word in _words(status, glance["started"]) if word)
    return f"<div class='tiles'>{body}</div>{waits_note(status)}<p>{words}</p>{error}"


def waits_note(status: _Status) -> str:
    """Return what a fit waits for, and what happens then, as HTML; "" for one that does not wait."""
    state, waits = str(status["state"]), str(status.get("waits", ""))
    if state not in _WAITING:
        return ""
    what = f"<b>{escape(waits[:1].upper() + waits[1:])}.</b> " if waits else ""
    return f"<p class='waits'>{what}{_NEXT[state]}</p>"


def _running_tiles(status: _Status, now: float, rate: float) -> tuple[tuple[str, str], ...]:
    metadata = status["card"]
    of = f" of {int(metadata['max_epochs'])}" if metadata["max_epochs"] else ""
    score = f"Validation {score_name(str(metadata['task']))}"
    done, batches = int(status["batch"]), int(status["n_batches"])
    batch = f"{min(done, batches):,} of {batches:,}" if batches else "-"
    batch += f", then step {done - batches:,}" if batches and done > batches else ""
    return (
        ("State", badge(status)),
        ("Epoch", f"{int(status['epoch'])}{of}"),
        ("Batch of the epoch", batch),
        ("Training loss", number(status["loss"])),
        (score, number(status["validation_score"])),
        ("Speed, last 5 s" if is_active(status) else "Speed at the end", _rate(rate)),
        _time_so_far(status, now),
        ("Time left", seconds(status["seconds_left"]) if status["state"] == "running" else "-"),
    )


def _waiting_tiles(status: _Status, now: float) -> tuple[tuple[str, str], ...]:
    """Return the tiles of a fit that has reported nothing yet."""
    if not is_active(status):
        return ("State", badge(status)), _time_so_far(status, now)
    metadata = status["card"]
    epochs = f"{int(metadata['max_epochs'])}" if metadata["max_epochs"] else "-"
    return (
        ("State", badge(status)),
        _time_so_far(status, now),
        ("Priority", f"{int(metadata['priority']):,}"),
        ("Fits that come first", f"{len(status['ahead'])}" if status["ahead"] else "-"),
        ("Workers that it has", f"{len(status['workers'])}" if status["workers"] else "none"),
        ("Epochs to run", epochs),
    )


def _time_so_far(status: _Status, now: float) -> tuple[str, str]:
    """Return the label and the length of the time that a fit has run, queued or waited."""
    if status["started"] or not is_active(status):
        return "Running for", seconds(ran(status["started"], status["ended"], now))
    waits = status["state"] in _WAITING
    return "Queued for" if waits else "Submitted", seconds(now - status["submitted"]) + ("" if waits else " ago")


def _words(status: _Status, started: Mapping[str, Any]) -> list[str]:
    """Return what a fit is, from what, where to and by whom."""
    metadata = status["card"]
    words = [f"<b>{escape(str(metadata['method']))}</b>" if metadata["method"] else ""]
    words += [f"Rows from {escape(str(metadata['source']))}" if metadata["source"] else ""]
    words.append(f"model goes to {escape(str(metadata['out']))}" if metadata["out"] else "model stays with its owner")
    if started:
        counts = {name: f"{int(started[name]):,}" for name in ("n_samples", "n_features", "n_columns", "n_outputs")}
        words.append(
            f"{escape(str(started['solver']))}: {counts['n_samples']} rows x {counts['n_features']} features, "
            f"{counts['n_columns']} basis columns, {counts['n_outputs']} output{plural(started['n_outputs'])}"
        )
    words.append(f"by {submitter(metadata)}")
    if metadata["priority"]:
        words.append(f"priority {int(metadata['priority'])}")
    if status["preempted"]:
        words.append(f"preempted {int(status['preempted'])} time{plural(status['preempted'])}")
    return words


def _rate(rate: float) -> str:
    return "-" if math.isnan(rate) else f"{rate:,.0f} rows/s"
