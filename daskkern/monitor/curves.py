"""The history of a fit as numeric columns, for plots."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.monitor.shares import PARTS

Columns: TypeAlias = dict[str, FloatArray]
History: TypeAlias = Mapping[str, Any]

_SPANS = 20
"""Into how many spans of its running mean a curve is divided at least."""
_RATE_S = 5.0
_MOST_SHARES = 60
_UNITS = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (float("inf"), 3600.0, "h"))


def time_unit(history: History) -> tuple[float, str]:
    """Return the unit of time that suits the length of a fit: its seconds and its name."""
    times = [message["time"] for message in history["epochs"]] + list(history["batches"]["time"][-1:])
    span = max(times, default=0.0) - begin_of(history) if times else 0.0
    return next((seconds, name) for limit, seconds, name in _UNITS if span <= limit)


def begin_of(history: History) -> float:
    """Return when a fit began, in seconds since 1970; 0.0 if unknown."""
    known = [float(history["started"].get("time", 0.0)), *history["batches"]["time"][:1]]
    return min((time for time in known if time), default=0.0)


def batch_columns(history: History, smoothing: float) -> Columns:
    """Return ``time`` (in the fit's unit), ``passes`` (epochs done), ``loss``, ``smooth`` and ``rate`` of batches.

    `smoothing` in [0, 1) is the weight of the previous mean in a running mean of the loss. Of few batches it is
    less: the mean goes back over a twentieth of them at most, or a falling curve would end far above its last loss.
    """
    batches = {name: np.asarray(column, float) for name, column in history["batches"].items()}
    loss = batches["loss"]
    passes = batches["epoch"] - 1 + np.minimum(batches["batch"] / np.maximum(batches["n_batches"], 1), 1)
    return {
        "time": (batches["time"] - begin_of(history)) / time_unit(history)[0],
        "passes": passes,
        "loss": loss,
        "smooth": smoothed(loss, min(smoothing, max(0.0, 1 - _SPANS / max(loss.size, 1)))),
        "rate": rates(batches["time"], passes * float(history["started"].get("n_samples", "nan"))),
    }


def rates(time: FloatArray, done: FloatArray) -> FloatArray:
    """Return the growth rate of `done` over at least the last few seconds before each time; NaN at first.

    The reported rate of a batch is the mean of its epoch so far, which is unreliable at the start of an epoch.
    """
    since = np.maximum(np.searchsorted(time, time - _RATE_S, side="right") - 1, 0)
    seconds = time - time[since]
    return np.divide(done - done[since], seconds, out=np.full(time.size, np.nan), where=seconds > 0)


def smoothed(values: FloatArray, share: float) -> FloatArray:
    """Return the running mean ``m_i = share m_{i-1} + (1 - share) v_i``, corrected for its start."""
    mean, weight, means = 0.0, 0.0, np.empty(len(values))
    for i, value in enumerate(values):
        mean, weight = share * mean + (1 - share) * value, share * weight + (1 - share)
        means[i] = mean / weight
    return means


def epoch_columns(history: History) -> Columns:
    """Return ``time``, ``passes``, ``loss``, ``validation_loss`` and ``validation_score`` of whole epochs."""
    epochs = history["epochs"]
    return {
        "time": (_column(epochs, "time") - begin_of(history)) / time_unit(history)[0],
        "passes": _column(epochs, "epoch"),
        **{name: _column(epochs, name) for name in ("loss", "validation_loss", "validation_score")},
    }


def share_columns(history: History) -> Columns:
    """Return ``epoch`` and the shares of its time in percent, of the last 60 epochs."""
    timed = history["timed"][-_MOST_SHARES:]
    seconds = np.maximum(_column(timed, "seconds"), 1e-12)
    return {"epoch": _column(timed, "epoch"), **{name: 100 * _column(timed, name) / seconds for name in PARTS}}


def spectrum_columns(history: History) -> Columns:
    """Return ``number`` (from 1), ``before`` and ``after`` of the leading eigenvalues; empty if none are known."""
    spectrum = history["spectrum"]
    before = np.asarray(spectrum.get("eigenvalues", ()), float)
    after = np.asarray(spectrum.get("flattened", ()), float)
    return {"number": np.arange(1.0, before.size + 1), "before": before, "after": after}


def _column(messages: Sequence[Mapping[str, Any]], name: str) -> FloatArray:
    return np.array([float(message.get(name, np.nan)) for message in messages])
