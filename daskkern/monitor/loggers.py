"""Loggers of fits to MLflow, Weights & Biases and OpenTelemetry: listeners for ``callbacks=`` of the estimators.

Each handles the events of successive fits. A service that fails ends the logging with a warning, but not the fit.
The packages are extras: ``daskkern[mlflow]``, ``daskkern[wandb]``, ``daskkern[opentelemetry]``.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, TypeAlias

from daskkern.errors import SpecError
from daskkern.events import (
    BatchFinished,
    EpochFinished,
    EpochTimed,
    Event,
    FitFinished,
    FitResumed,
    FitStarted,
    OptimalityMeasured,
    RankReported,
    SpectrumFound,
    StageFinished,
    WorkersJoined,
    WorkersLost,
)
from daskkern.monitor.shares import shares_of

Values: TypeAlias = dict[str, float]
_FAILED = "failed"


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
            self.end("interrupted" if kind is None or issubclass(kind, KeyboardInterrupt) else _FAILED)

    def _handle(self, event: Event) -> None:
        match event:
            case FitStarted():
                self._start(event)
            case FitFinished() if self._runs:
                self._log({"seconds": event.seconds})
                self._runs = False
                self.end(event.reason)
            case WorkersJoined():
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
            self.end(_FAILED)  # an exception ended the previous fit, which is not reported to callbacks
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
    return started is not None and replace(event, size=started.size) == started


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


class MLflowLogger(RunLogger):
    """Logs each fit as a run of MLflow: in the active run if there is one, which then stays open, else in a new one.

    The tracking server and the experiment are set by ``mlflow.set_tracking_uri`` and ``mlflow.set_experiment``.

    Parameters
    ----------
    run_name : str, optional
    settings : mapping, optional
        Further parameters of the run.

    Raises
    ------
    SpecError
        When MLflow is not installed.
    """

    def __init__(self, run_name: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        try:
            import mlflow
        except ImportError:
            raise _missing("MLflow", "mlflow") from None
        self._mlflow, self._name = mlflow, run_name
        self._owns = False

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Begin a run, or use the active one."""
        self._owns = self._mlflow.active_run() is None
        if self._owns:
            self._mlflow.start_run(run_name=self._name)
        self._mlflow.log_params(dict(facts))

    def log(self, values: Values, epoch: int) -> None:
        """Log metrics; the step is the epoch."""
        self._mlflow.log_metrics(values, step=epoch)

    def end(self, reason: str) -> None:
        """Tag the run with the reason, and end it if this logger began it."""
        self._mlflow.set_tag("daskkern.reason", reason)
        if self._owns:
            self._mlflow.end_run(status={"interrupted": "KILLED", _FAILED: "FAILED"}.get(reason, "FINISHED"))


class WandbLogger(RunLogger):
    """Logs each fit as a new run of Weights & Biases, with the epoch as the horizontal axis.

    Parameters
    ----------
    project, name : str, optional
    settings : mapping, optional
        Further entries of the run's configuration.

    Raises
    ------
    SpecError
        When wandb is not installed.
    """

    def __init__(
        self, project: str | None = None, name: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(settings)
        try:
            import wandb
        except ImportError:
            raise _missing("Weights & Biases", "wandb") from None
        self._wandb, self._project, self._name = wandb, project, name
        self._run: Any = None

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Begin a run."""
        self._run = self._wandb.init(project=self._project, name=self._name, config=dict(facts))
        self._run.define_metric("epoch")
        self._run.define_metric("*", step_metric="epoch")

    def log(self, values: Values, epoch: int) -> None:
        """Log values with their epoch."""
        self._run.log({**values, "epoch": epoch})

    def end(self, reason: str) -> None:
        """Store the reason in the summary and end the run."""
        self._run.summary["reason"] = reason
        self._run.finish(exit_code=1 if reason == _FAILED else 0)


class OpenTelemetryLogger(RunLogger):
    """Logs each fit as a span ``daskkern.fit`` with one event per epoch, and its numbers as gauges ``daskkern.*``.

    The tracer and the meter come from the providers that the application has set.

    Parameters
    ----------
    settings : mapping, optional
        Further attributes of the span.

    Raises
    ------
    SpecError
        When opentelemetry-api is not installed.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise _missing("OpenTelemetry", "opentelemetry") from None
        self._trace = trace
        self._tracer, self._meter = trace.get_tracer("daskkern"), metrics.get_meter("daskkern")
        self._gauges: dict[str, Any] = {}
        self._span: Any = None
        self._solver = ""

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Begin a span."""
        self._solver = str(facts["solver"])
        attributes = {f"daskkern.{name}": value for name, value in facts.items()}
        self._span = self._tracer.start_span("daskkern.fit", attributes=attributes)

    def log(self, values: Values, epoch: int) -> None:
        """Set gauges and add an event to the span."""
        for name, value in values.items():
            if name not in self._gauges:
                self._gauges[name] = self._meter.create_gauge(f"daskkern.{name}")
            self._gauges[name].set(value, {"daskkern.solver": self._solver})
        self._span.add_event("epoch" if "loss" in values else "progress", {**values, "epoch": epoch})

    def end(self, reason: str) -> None:
        """End the span."""
        self._span.set_attribute("daskkern.reason", reason)
        if reason == _FAILED:
            self._span.set_status(self._trace.StatusCode.ERROR)
        self._span.end()


def _missing(name: str, extra: str) -> SpecError:
    return SpecError(f"logging to {name} needs a package that is not installed; install daskkern[{extra}]")
