"""Loggers of fits to MLflow, Weights & Biases and OpenTelemetry: listeners for ``callbacks=`` of the estimators.

The packages are extras: ``daskkern[mlflow]``, ``daskkern[wandb]``, ``daskkern[opentelemetry]``.
"""

from collections.abc import Mapping
from typing import Any

from daskkern.errors import SpecError
from daskkern.monitor.run_logger import FAILED, RunLogger, Values

__all__ = ["MLflowLogger", "OpenTelemetryLogger", "RunLogger", "WandbLogger"]


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
            self._mlflow.end_run(status={"interrupted": "KILLED", FAILED: "FAILED"}.get(reason, "FINISHED"))


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
        self._run.finish(exit_code=1 if reason == FAILED else 0)


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
        if reason == FAILED:
            self._span.set_status(self._trace.StatusCode.ERROR)
        self._span.end()


def _missing(name: str, extra: str) -> SpecError:
    return SpecError(f"logging to {name} needs a package that is not installed; install daskkern[{extra}]")
