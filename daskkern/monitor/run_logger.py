"""The base class of loggers to tracking services: which numbers of which events are logged, and when.

A logger handles the events of successive fits. A service that fails ends the logging with a warning, but not the fit.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, TypeAlias

from daskkern.events import (
    BatchFinished,
    EpochFinished,
    EpochTimed,
    Event,
    FitFinished,
    FitPreempted,
    FitResumed,
    FitStarted,
    OptimalityMeasured,
    RankReported,
    SpectrumFound,
    StageFinished,
    WorkersJoined,
    WorkersLeft,
    WorkersLost,
)
from daskkern.monitor.shares import shares_of

Values: TypeAlias = dict[str, float]
FAILED = "failed"


class RunLogger(ABC):
    """The base of the loggers, which decides which numbers of a fit are logged at which epoch.

    Parameters
    ----------
    settings : mapping, optional
        Logged as parameters of the run in addition to its sizes, such as ``estimator.get_params()``.

    As a context manager, it marks a run that was ended by an exception as failed.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._settings = {str(key): str(value) for key, value in (settings or {}).items()}
        self._runs = self._broken = self._gang_is_new = False
        self._started: FitStarted | None = None
        self._epoch, self._lost, self._rate = 0, 0, math.nan
        self._memory: dict[int, int] = {}

    @abstractmethod
    def begin(self, facts: Mapping[str, Any]) -> None:
        """Begin a run with these parameters."""

    @abstractmethod
    def log(self, values: Values, epoch: int) -> None:
        """Log finite numbers at an epoch; 0 is before the first."""

    @abstractmethod
    def end(self, reason: str) -> None:
        """End the run: a reason of :class:`~daskkern.events.FitFinished`, or "failed"."""

    def __call__(self, event: Event) -> None:
        """Log `event`."""
        if self._broken:
            return
        try:
            self._handle(event)
        except Exception as error:  # whatever a service raises must not end a fit of hours
            self._broken = True
            warnings.warn(f"{type(self).__name__} stopped logging: {type(error).__name__}: {error}", stacklevel=2)

    def __enter__(self) -> "RunLogger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._runs and not self._broken:
            self._runs = False
            self.end("interrupted" if kind is None or issubclass(kind, KeyboardInterrupt) else FAILED)

    def _handle(self, event: Event) -> None:
        match event:
            case FitStarted():
                self._start(event)
            case FitFinished() if self._runs:
                self._log({"seconds": event.seconds})
                self._runs = False
                self.end(event.reason)
            case WorkersJoined() | WorkersLeft() | FitPreempted():
                self._gang_is_new = True
            case FitResumed():
                self._gang_is_new = False
            case BatchFinished():
                self._rate = event.rows_per_second
            case RankReported():
                self._memory[event.rank] = event.memory_bytes
            case EpochFinished():
                self._epoch = event.epoch
                self._log(_epoch_values(event, self._rate, self._memory))
            case WorkersLost():
                self._lost += 1
                self._gang_is_new = True
                self._log({"workers_lost": float(self._lost)})
            case _:
                self._log(_values(event))

    def _start(self, event: FitStarted) -> None:
        if self._runs:
            if self._gang_is_new and _same(event, self._started):
                self._gang_is_new = False  # a gang that is re-formed before its first commit reports a start again
                return
            self._runs = False
            self.end(FAILED)  # an exception ended the previous fit, which is not reported to callbacks
        self._epoch, self._lost, self._rate = 0, 0, math.nan
        self._memory.clear()
        self._runs, self._gang_is_new, self._started = True, False, event
        self.begin({**asdict(event), **self._settings})

    def _log(self, values: Values) -> None:
        known = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if self._runs and known:
            self.log(known, self._epoch)


def _same(event: FitStarted, started: FitStarted | None) -> bool:
    """Return whether two starts belong to one fit, whose gang may have changed its size."""
    return started is not None and replace(event, size=started.size, groups=started.groups) == started


def _epoch_values(event: EpochFinished, rate: float, memory: Mapping[int, int]) -> Values:
    values = {
        "loss": event.loss,
        "validation_loss": event.validation_loss,
        "validation_score": event.validation_score,
        "epoch_seconds": event.seconds,
        "rows_per_second": rate,
    }
    return {**values, "memory_bytes": float(max(memory.values()))} if memory else values


def _values(event: Event) -> Values:
    """Return the numbers of an event other than the end of an epoch; empty if it has none."""
    match event:
        case StageFinished() if event.seconds > 0:
            return {f"setup_seconds.{event.stage.replace(' ', '_')}": event.seconds}
        case SpectrumFound():
            return {
                "batch_size": float(event.batch_size),
                "critical_batch": event.critical_batch,
                "step_size": event.step,
            }
        case EpochTimed() if event.seconds > 0:
            return {f"share.{part}": share for part, share in shares_of([event]).items()}
        case OptimalityMeasured():
            return {event.measure.replace(" ", "_"): event.value}
    return {}
