"""Events as lines of text, for the terminal and the log of a fit."""

from daskkern.events import (
    CheckpointFailed,
    EpochFinished,
    EpochTimed,
    Event,
    FitFinished,
    FitPreempted,
    FitQueued,
    FitResumed,
    FitStarted,
    OptimalityMeasured,
    StageFinished,
    StopRequested,
    WorkersJoined,
    WorkersLeft,
    WorkersLost,
)
from daskkern.monitor.shares import in_words, shares_of

_MOSTLY = 0.9
"""The time breakdown gets a line if computing took less than this share, and the epoch is not over in a moment."""
_MOMENT_S = 1.0


def ranks_in_words(size: int, groups: int) -> str:
    """Return how many ranks there are, and in how many groups if these are several."""
    return f"{size:,} rank{_s(size)}" + (f" in {groups} groups" if groups > 1 else "")


def line_of(event: Event, max_epochs: int) -> str | None:
    """Return one line for `event`, or None if it is too minor for one. `max_epochs` 0 means unknown."""
    match event:
        case FitQueued() | StopRequested() | CheckpointFailed():
            return event.reason
        case FitStarted():
            return (
                f"{event.solver}: {event.n_samples:,} rows x {event.n_features} features, {event.n_columns:,} columns, "
                f"{event.n_outputs} output{_s(event.n_outputs)}, on {ranks_in_words(event.size, event.groups)}"
            )
        case StageFinished():
            return f"  {event.stage:<12} {event.seconds:6.1f} s   {event.detail}".rstrip()
        case EpochFinished():
            return _epoch(event, max_epochs)
        case EpochTimed() if event.computing < _MOSTLY * event.seconds and event.seconds >= _MOMENT_S:
            return f"            {in_words(shares_of([event]))}"
        case OptimalityMeasured():
            end = f", to end at {event.tol:.3g}" if event.tol > 0 else ""
            return f"            {event.measure} {event.value:.3g}{end}{event.note and f': {event.note}'}"
        case FitResumed():
            where = f"batch {event.batch} of epoch {event.epoch}"
            return f"  going on after {where}, on {ranks_in_words(event.size, event.groups)}"
        case WorkersLost():
            return f"  {event.reason}; re-forming the gang (attempt {event.attempt})"
        case WorkersJoined():
            return f"  more workers have joined: continuing with {event.size} ranks"
        case WorkersLeft():
            return f"  {event.reason}; committed, and continuing with {event.size} rank{_s(event.size)}"
        case FitPreempted():
            return f"  preempted: {event.reason}; committed, and going on by itself when workers are free"
        case FitFinished():
            note = f"; {event.note}" if event.note else ""
            return f"ended ({event.reason}) after {event.epochs} epoch{_s(event.epochs)}, {event.seconds:.1f} s{note}"
    return None


def _epoch(event: EpochFinished, max_epochs: int) -> str:
    of = f"/{max_epochs}" if event.epoch <= max_epochs else ""
    line = f"  epoch {event.epoch:>3}{of} {event.seconds:6.1f} s   loss {event.loss:.5g}"
    if event.validation_score == event.validation_score:
        line += f"   validation loss {event.validation_loss:.5g}, score {event.validation_score:.4f}"
    if event.bytes_sent:
        line += f"   {event.bytes_sent / 1e6:.1f} MB sent by rank 0"
    return line


def _s(number: int) -> str:
    return "s" * (number != 1)
