"""The text of the page: the list of fits, and the ranks, messages and plot notes of the selected fit.

Everything that comes from a client is escaped.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from daskkern.monitor.dashboard.cells import badge, bar, cells_of, head_of, is_active, plural, submitter, swatch
from daskkern.monitor.event_text import ranks_in_words
from daskkern.monitor.formatting import clock, format_bytes, number, ran, seconds
from daskkern.monitor.palette import FIT_COLORS

_DRAW = "Draw the curves of this fit over those of the chosen one"
_SHOWN = 30
_SILENT_S = 15.0
_NOTICES = 100
_OF_FITS = ("Fit", "State", "Priority", "Owner", "Started", "Progress", "Loss", "Rows/s", "Running for", "Time left")
_OF_RANKS = (
    "Rank", "Worker", "Device", "Columns", "Memory in use", "of the plan", "GPU busy", "Last report",
    "Last heartbeat of the worker", "Times lost",
)  # fmt: skip
_REASONS = {
    "max_epochs": "all epochs are done",
    "max_seconds": "the time limit is reached",
    "early_stopping": "the validation score has stopped rising",
    "converged": "the optimum is reached",
    "interrupted": "it was asked to stop",
}


def in_order(fits: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return fits in the order of the list: active ones first, then by age, newest first."""
    newest = sorted(fits, key=lambda status: -status["submitted"])
    return sorted(newest, key=lambda status: not is_active(status))


def done_share(status: Mapping[str, Any]) -> float:
    """Return the completed share of the epochs; NaN if their number is unknown."""
    most, batches = status["card"]["max_epochs"], status["n_batches"]
    if status["state"] == "finished":
        return 1.0
    if not most or not batches:
        return 0.0 if most else math.nan
    return min(1.0, (status["epoch"] - 1 + status["batch"] / batches) / most)


def fits_table(fits: Sequence[Mapping[str, Any]], drawn: Mapping[str, int], now: float) -> str:
    """Return the list of fits as HTML; `drawn` are the places of those whose curves are drawn, the chosen one at 0."""
    if not fits:
        return (
            "<p class='empty'>No fits yet. A fit that is submitted to this cluster, for example with "
            "<code>daskkern fit … --scheduler ADDRESS</code>, is listed here at once.</p>"
        )
    listed = in_order(fits)
    rows = "".join(_fit_row(status, drawn, now) for status in listed[:_SHOWN])
    more = len(listed) - _SHOWN
    return f"<div class='wide'><table class='fits'>{head_of(*_OF_FITS)}{rows}</table></div>" + (
        f"<p class='empty'>and {more} older ones</p>" if more > 0 else ""
    )


def _fit_row(status: Mapping[str, Any], drawn: Mapping[str, int], now: float) -> str:
    metadata, place = status["card"], drawn.get(str(status["card"]["fit"]))
    fit = escape(str(metadata["fit"]), quote=True)
    cells = (
        f"{_over(fit, place)} <b>{escape(str(metadata['name']))}</b> <small>{fit}</small>{_what(metadata)}",
        badge(status),
        str(int(metadata["priority"])),
        submitter(metadata),
        clock(status["started"]) if status["started"] else "-",
        _progress(status),
        number(status["loss"]),
        f"{float(status['rows_per_second']):,.0f}" if status["rows_per_second"] and is_active(status) else "-",
        seconds(ran(status["started"], status["ended"], now)),
        seconds(status["seconds_left"]) if status["state"] == "running" else "-",
    )
    kind = " class='chosen'" if place == 0 else ""
    return f"<tr{kind} data-fit='{fit}' onpointerdown='daskkernChoose(this)'>{cells_of(cells, _OF_FITS)}</tr>"


def _progress(status: Mapping[str, Any]) -> str:
    """Return the completed share of a fit as a bar, and what it waits for."""
    share, most, waits = done_share(status), status["card"]["max_epochs"], str(status.get("waits", ""))
    words = f"<small class='waits'>{escape(waits)}</small>" if waits else ""
    if words and not status["epoch"]:
        return words
    of = f"/{int(most)}" if most else ""
    epoch = f"epoch {int(status['epoch'])}{of}" if status["epoch"] else "-"
    done = "" if math.isnan(share) else f"{100 * share:.0f}%, "
    return f"{bar(share)} <small>{done}{epoch}</small>{'<br>' * bool(words)}{words}"


def _over(fit: str, place: int | None) -> str:
    """Return the color of the curves of a fit, or the button that draws them over those of the chosen one."""
    if place == 0:
        return swatch(0)
    title, color = ("Remove these curves", f" style='background:{FIT_COLORS[place]}'") if place else (_DRAW, "")
    press = "event.stopPropagation(); daskkernCompare(this)"
    return f"<button class='swatch' title='{title}' data-of='{fit}'{color} onpointerdown='{press}'></button>"


def _what(metadata: Mapping[str, Any]) -> str:
    """Return a line with kernel, loss, columns, penalty and the name of the store."""
    parts = (str(metadata["method"]), str(metadata["source"]).rstrip("/").rpartition("/")[2])
    words = " · ".join(escape(part) for part in parts if part)
    return f"<br><small>{words}</small>" if words else ""


def ranks_table(history: Mapping[str, Any], active: bool, now: float) -> str:
    """Return the ranks of a fit as HTML."""
    if not history["ranks"]:
        return "<p class='empty'>The ranks have not reported yet: the fit waits for workers, or the set-up runs.</p>"
    rows = "".join(f"<tr>{cells_of(_rank(rank, history, active, now), _OF_RANKS)}</tr>" for rank in history["ranks"])
    return f"<div class='wide'><table class='ranks'>{head_of(*_OF_RANKS)}{rows}</table></div>"


def _rank(rank: Mapping[str, Any], history: Mapping[str, Any], active: bool, now: float) -> Iterable[str]:
    worker = history["workers"].get(rank["worker"])
    name = f"<b>{escape(str(worker['name']))}</b> " if worker else ""
    used, planned, busy = rank["memory_bytes"], rank["planned_bytes"], rank["gpu_use"]
    share = used / planned if planned else math.nan
    silence = math.nan if worker is None else max(0.0, now - worker["heard"])
    heard = "gone" if worker is None else f"{seconds(silence)} ago"
    late = " class='late'" if active and (worker is None or silence > _SILENT_S) else ""
    lost = history["losses"].get(str(worker["name"]), 0) if worker else "-"
    return (
        str(int(rank["rank"])),
        f"{name}<small>{escape(str(rank['worker']))}</small>",
        escape(str(rank["device"])),
        f"{int(rank.get('columns', 0)):,}" if rank.get("columns") else "-",
        format_bytes(used),
        f"{bar(min(1.0, share))} <small>{100 * share:.0f}% of {format_bytes(planned)}</small>" if planned else "-",
        "-" if math.isnan(busy) else f"{100 * busy:.0f}%",
        f"{seconds(max(0.0, now - rank['time']))} ago",
        f"<span{late}>{heard}</span>",
        escape(str(lost)),
    )


def notices_table(history: Mapping[str, Any]) -> str:
    """Return the notices of a fit as HTML, the latest first."""
    latest = history["notices"][-_NOTICES:]
    lines = [(message["time"], *_notice(message)) for message in reversed(latest)]
    rows = "".join(
        f"<tr><td><small>{clock(at)}</small></td><td><span class='event {kind}'>{name}</span></td><td>{text}</td></tr>"
        for at, kind, name, text in lines
    )
    return f"<table>{rows}</table>" if rows else "<p class='empty'>Nothing has happened yet.</p>"


def _notice(message: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the kind of an event (good, bad or plain), its name, and a line about it."""
    m = message
    match m["event"]:
        case "FitStarted":
            return "good", "started", f"on {ranks_in_words(int(m['size']), int(m.get('groups', 1)))}"
        case "StageFinished":
            took = f" ({seconds(m['seconds'])})" if m["seconds"] else ""
            return "plain", "set-up", f"{escape(str(m['stage']))}{took}: {escape(str(m['detail']))}"
        case "FitQueued":
            return "plain", "waits", escape(str(m["reason"]))
        case "WorkersLost":
            return "bad", "worker lost", f"{escape(str(m['reason']))}; attempt {int(m['attempt'])} to continue begins"
        case "WorkersJoined":
            return "good", "workers joined", f"continuing with {int(m['size'])} rank{plural(m['size'])}"
        case "WorkersLeft":
            return (
                "plain",
                "workers left",
                f"{escape(str(m['reason']))}; continuing with {int(m['size'])} rank{plural(m['size'])}",
            )
        case "FitPreempted":
            return "plain", "preempted", f"{escape(str(m['reason']))}; it has committed, and waits for workers"
        case "FitResumed":
            where = f"after batch {int(m['batch'])} of epoch {int(m['epoch'])}"
            ranks = ranks_in_words(int(m["size"]), int(m.get("groups", 1)))
            return "good", "window redone", f"continues {where} on {ranks}; later work is repeated"
        case "CheckpointWritten":
            where = (
                f"after batch {int(m['batch'])} of epoch {int(m['epoch'])}"
                if m["batch"]
                else f"after epoch {int(m['epoch']) - 1}"
            )
            return "plain", "last checkpoint", f"{where}, written in {seconds(m['seconds'])} in the background"
        case "CheckpointFailed":
            return "bad", "checkpoint failed", escape(str(m["reason"]))
        case "FitFinished":
            reason = escape(_REASONS.get(str(m["reason"]), str(m["reason"])))
            return "good", "ended", f"{reason}, after {int(m['epochs'])} epochs and {seconds(m['seconds'])}"
    return "plain", escape(str(m["event"])), ""


def spectrum_note(history: Mapping[str, Any]) -> str:
    """Return the consequences of the spectrum in a sentence."""
    spectrum = history["spectrum"]
    if not spectrum:
        return "This solver uses no spectrum, or the set-up has not found it yet."
    return (
        f"Batches of <b>{int(spectrum['batch_size']):,} rows</b> "
        f"(beyond {float(spectrum['critical_batch']):,.0f} larger ones gain little), "
        f"step size <b>{number(spectrum['step'])}</b>; measured on {int(spectrum['subsample']):,} rows."
    )


def shares_note(history: Mapping[str, Any]) -> str:
    """Return an explanation of the shares of time, or why there are none."""
    written, took = int(history["checkpoints"]["count"]), float(history["checkpoints"]["seconds"])
    saved = (
        f" {written} checkpoint{plural(written)} took {seconds(took)} to write in the background." if written else ""
    )
    if not history["timed"]:
        return f"Measured at the end of each epoch.{saved}"
    last = history["timed"][-1]
    waited = f" the longest wait of a rank for slower ones was {seconds(last['longest_wait'])}"
    longest = f" In the last epoch{waited}." if last["longest_wait"] else ""
    return f"Means over the ranks. Rows are read ahead: only waiting for them counts.{longest}{saved}"
