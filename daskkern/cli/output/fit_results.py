"""The result of a fit, as text and as a JSON record."""

from collections.abc import Sequence

from daskkern.cli.console import say
from daskkern.evaluation.calibration_facts import calibration_of
from daskkern.events import EpochTimed
from daskkern.monitor.formatting import format_bytes
from daskkern.monitor.shares import in_words, shares_of
from daskkern.training.run.fit import FitResult

_WAYS = {
    "direct": "both ranks send and add",
    "star": "one rank adds for all",
    "doubling": "neighbors add, then pairs, then fours",
    "reduce_scatter": "each rank adds one part",
    "halving": "pairs add halves, then quarters",
    "nccl": "NCCL",
    "shared memory": "in memory that the ranks share",
    "shared memory and doubling": "in memory that the ranks of a host share, and by recursive doubling between hosts",
}
"""How ranks add their sums, in words."""


def fit_record(result: FitResult, out: str) -> dict[str, object]:
    """Return how the fit went as JSON values; times in seconds, sizes in bytes, None for what was not measured."""
    model, history = result.model, result.history
    ended = [epoch for epoch in history if epoch.epoch == result.finished.best_epoch] or list(history)[-1:]
    last = ended[0] if ended else None
    return {
        "model": out,
        "task": model.task,
        "reason": result.finished.reason,
        "note": result.finished.note,
        "n_epochs": len(result.epochs),
        "best_epoch": result.finished.best_epoch or None,
        "seconds": result.finished.seconds,
        "loss": None if last is None else _known(last.loss),
        "validation_loss": None if last is None else _known(last.validation_loss),
        "validation_score": None if last is None else _known(last.validation_score),
        "n_points": int(model.points.shape[0]),
        "n_features": model.n_features,
        "n_outputs": model.n_outputs,
        "n_bytes": model.nbytes,
    }


def _known(value: float) -> float | None:
    return float(value) if value == value else None


def finish(result: FitResult, out: str) -> None:
    """Print how the fit went, and where its model is."""
    size = format_bytes(result.model.nbytes)
    seconds = [epoch.seconds for epoch in result.epochs]
    endings = {
        "interrupted": "interrupted: the model so far",
        "max_seconds": "the time is over: the model so far",
        "early_stopping": "stopped early: the model",
        "converged": "converged: the model",
    }
    rest = sum(seconds) / max(len(seconds), 1)
    say(f"1 epoch, {rest:.2g} s" if len(seconds) == 1 else f"{len(seconds)} epochs, {rest:.2g} s each on average")
    if result.times:
        say(time_breakdown(result.times))
    if result.finished.note:
        say(in_options(result.finished.note))
    for name, value in calibration_of(result.model)[:2]:
        say(f"{name} {value}")
    best = f" of epoch {result.finished.best_epoch}, the best one," if result.finished.best_epoch else ""
    say(f"{endings.get(result.finished.reason, 'the model')}{best} is in {out} ({size})")


def in_options(note: str) -> str:
    """Return a note of a fit with the options of the command line in place of the parameters of Python."""
    words = note.replace("raise solver.", "raise --set solver.")
    return words.replace("max_epochs", "--epochs").replace("max_seconds", "--max-seconds")


def time_breakdown(times: Sequence[EpochTimed]) -> str:
    """Return one line on where the time of all epochs went, as a mean over the ranks."""
    words = [_WAYS.get(way, way) for way in times[-1].ways.split(", ") if way]
    ways = f" ({'; '.join(words)})" if words else ""
    return f"time of the epochs: {in_words(shares_of(times))}{ways}"
