"""Loggers for MLflow, Weights & Biases and OpenTelemetry, against stand-ins with the documented signatures."""

import sys
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from daskkern import KernelRegressor, Landmarks
from daskkern.errors import SpecError
from daskkern.events import (
    BatchFinished,
    EpochFinished,
    Event,
    FitFinished,
    FitResumed,
    FitStarted,
    RankReported,
    SpectrumFound,
    StageFinished,
    WorkersLost,
)
from daskkern.monitor.loggers import MLflowLogger, OpenTelemetryLogger, RunLogger, WandbLogger

_FIT: list[Event] = [
    FitStarted("eigenpro", 1000, 5, 1, 100, 2, 2),
    StageFinished("kept blocks", 1.5),
    SpectrumFound(80, (0.5,), (0.1,), 32, 64.0, 0.5),
    RankReported(0, "a", "cpu", 30, 100),
    RankReported(1, "b", "cpu", 40, 100),
    BatchFinished(1, 1, 1, 0.9, 50.0),
    EpochFinished(1, 0.8, 2.0),
    WorkersLost("worker b was lost", 2),
    FitStarted("eigenpro", 1000, 5, 1, 100, 1, 2),
    EpochFinished(2, 0.5, 2.0, 0.25, 0.75),
    FitFinished("max_epochs", 2, 9.0),
]
Calls = list[tuple[Any, ...]]


def _mlflow(calls: Calls, active: object = None) -> ModuleType:
    module: Any = ModuleType("mlflow")

    def start_run(run_id: str | None = None, experiment_id: str | None = None, run_name: str | None = None) -> None:
        calls.append(("start_run", run_name))

    def log_params(params: dict[str, Any], synchronous: bool | None = None) -> None:
        calls.append(("log_params", params))

    def log_metrics(metrics: dict[str, float], step: int | None = None) -> None:
        calls.append(("log_metrics", metrics, step))

    def set_tag(key: str, value: Any) -> None:
        calls.append(("set_tag", key, value))

    def end_run(status: str = "FINISHED") -> None:
        calls.append(("end_run", status))

    module.active_run = lambda: active
    module.start_run, module.log_params, module.log_metrics = start_run, log_params, log_metrics
    module.set_tag, module.end_run = set_tag, end_run
    return module  # type: ignore[no-any-return]


def _wandb(calls: Calls) -> ModuleType:
    class Run:
        summary: dict[str, Any] = {}  # noqa: RUF012

        def define_metric(self, name: str, step_metric: str | None = None) -> None:
            calls.append(("define_metric", name, step_metric))

        def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
            calls.append(("log", data))

        def finish(self, exit_code: int | None = None) -> None:
            calls.append(("finish", exit_code, dict(self.summary)))

    def init(project: str | None = None, name: str | None = None, config: dict[str, Any] | None = None) -> Run:
        calls.append(("init", project, name, config))
        return Run()

    module: Any = ModuleType("wandb")
    module.init = init
    return module  # type: ignore[no-any-return]


def _opentelemetry(calls: Calls) -> ModuleType:
    class Gauge:
        def __init__(self, name: str) -> None:
            self._name = name

        def set(self, amount: float, attributes: Mapping[str, Any] | None = None) -> None:
            calls.append((self._name, amount, attributes))

    class Span:
        def add_event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
            calls.append(("add_event", name, attributes))

        def set_attribute(self, key: str, value: Any) -> None:
            calls.append(("set_attribute", key, value))

        def set_status(self, status: Any, description: str | None = None) -> None:
            calls.append(("set_status", status))

        def end(self, end_time: int | None = None) -> None:
            calls.append(("end",))

    def start_span(name: str, context: Any = None, attributes: Mapping[str, Any] | None = None) -> Span:
        calls.append(("start_span", name, attributes))
        return Span()

    module: Any = ModuleType("opentelemetry")
    tracer, meter = SimpleNamespace(start_span=start_span), SimpleNamespace(create_gauge=Gauge)
    module.trace = SimpleNamespace(get_tracer=lambda name: tracer, StatusCode=SimpleNamespace(ERROR="error"))
    module.metrics = SimpleNamespace(get_meter=lambda name: meter)
    return module  # type: ignore[no-any-return]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    heard: Calls = []
    monkeypatch.setitem(sys.modules, "mlflow", _mlflow(heard))
    monkeypatch.setitem(sys.modules, "wandb", _wandb(heard))
    monkeypatch.setitem(sys.modules, "opentelemetry", _opentelemetry(heard))
    return heard


def _named(calls: Calls, name: str) -> Calls:
    return [call for call in calls if call[0] == name]


def test_mlflow_gets_parameters_metrics_by_epoch_and_the_end(calls: Calls) -> None:
    logger = MLflowLogger("first", {"alpha": 0.5})
    for event in _FIT:
        logger(event)
    assert calls[0] == ("start_run", "first")
    (parameters,) = _named(calls, "log_params")  # a gang that is formed anew is the same run
    assert (parameters[1]["solver"], parameters[1]["alpha"], parameters[1]["size"]) == ("eigenpro", "0.5", 2)
    logged = {(name, step): value for _, values, step in _named(calls, "log_metrics") for name, value in values.items()}
    assert logged["setup_seconds.kept_blocks", 0] == 1.5
    assert logged["critical_batch", 0] == 64
    assert logged["loss", 1] == 0.8
    assert logged["memory_bytes", 1] == 40
    assert logged["workers_lost", 1] == 1
    assert ("validation_score", 1) not in logged  # it is NaN there
    assert logged["validation_score", 2] == 0.75
    assert calls[-2:] == [("set_tag", "daskkern.reason", "max_epochs"), ("end_run", "FINISHED")]


def test_an_active_run_of_mlflow_stays_open(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", _mlflow(calls, active=object()))
    logger = MLflowLogger()
    for event in _FIT:
        logger(event)
    assert _named(calls, "start_run") == _named(calls, "end_run") == []


def test_wandb_gets_values_over_epochs(calls: Calls) -> None:
    logger = WandbLogger("kernels", "first")
    for event in _FIT:
        logger(event)
    assert calls[0][:3] == ("init", "kernels", "first")
    assert ("define_metric", "*", "epoch") in calls
    losses = [(call[1]["epoch"], call[1]["loss"]) for call in _named(calls, "log") if "loss" in call[1]]
    assert losses == [(1, 0.8), (2, 0.5)]
    assert calls[-1] == ("finish", 0, {"reason": "max_epochs"})


def test_opentelemetry_gets_a_span_and_gauges(calls: Calls) -> None:
    logger = OpenTelemetryLogger()
    for event in _FIT:
        logger(event)
    assert calls[0][:2] == ("start_span", "daskkern.fit")
    assert calls[0][2]["daskkern.n_samples"] == 1000
    assert [call[1] for call in _named(calls, "daskkern.loss")] == [0.8, 0.5]
    assert [call[2]["epoch"] for call in _named(calls, "add_event") if call[1] == "epoch"] == [1, 2]
    assert calls[-1] == ("end",)


@pytest.mark.parametrize(
    ("make", "end"),
    [
        (MLflowLogger, ("end_run", "FAILED")),
        (WandbLogger, ("finish", 1, {"reason": "failed"})),
        (OpenTelemetryLogger, ("set_status", "error")),
    ],
)
def test_an_exception_marks_the_run_as_failed(make: Callable[[], RunLogger], end: object, calls: Calls) -> None:
    logger = make()
    logger(_FIT[0])
    logger.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert end in calls


@pytest.mark.parametrize(
    "between",
    [
        [],
        [WorkersLost("worker b was lost", 1), FitResumed(2, 0, 1)],
        [WorkersLost("worker b was lost", 1), _FIT[0]],
    ],
)
def test_the_fit_after_one_that_raised_is_a_run_of_its_own(between: list[Event], calls: Calls) -> None:
    logger = MLflowLogger()
    for event in (_FIT[0], *between, *_FIT):
        logger(event)
    assert [call[1] for call in _named(calls, "end_run")] == ["FAILED", "FINISHED"]
    assert len(_named(calls, "start_run")) == 2
    logger(_FIT[0])
    logger(WorkersLost("worker b was lost", 1))
    logger(FitStarted("sgd", 5, 5, 1, 100, 2, 2))  # another fit
    assert len(_named(calls, "start_run")) == 4


def test_a_service_that_fails_ends_the_logging_and_not_the_fit(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = MLflowLogger()

    def fails(params: object) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(sys.modules["mlflow"], "log_params", fails)
    with pytest.warns(UserWarning, match="MLflowLogger stopped logging: ConnectionError: nobody answers"):
        logger(_FIT[0])
    for event in _FIT:
        logger(event)
    assert _named(calls, "log_metrics") == []


@pytest.mark.parametrize(
    ("make", "extra"), [(MLflowLogger, "mlflow"), (WandbLogger, "wandb"), (OpenTelemetryLogger, "opentelemetry")]
)
def test_a_missing_package_is_named_with_its_extra(
    make: Callable[[], RunLogger], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(SpecError, match=rf"install daskkern\[{extra}\]"):
        make()


def test_callbacks_of_estimators_hear_every_event(calls: Calls) -> None:
    heard: list[Event] = []
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = KernelRegressor(
        "gaussian:1", basis=Landmarks(20), max_epochs=2, device="cpu", callbacks=[heard.append, WandbLogger()]
    )
    model.fit(X, X[:, 0])
    assert sum(isinstance(event, FitStarted) for event in heard) == 1
    assert isinstance(heard[-1], FitFinished)
    assert sum(isinstance(event, EpochFinished) for event in heard) == 2
    assert calls[-1][0] == "finish"
    assert clone(model).callbacks is model.callbacks
    assert model.__getstate__()["callbacks"] is None


def test_callbacks_that_cannot_be_told_are_refused() -> None:
    X = np.zeros((10, 2))
    with pytest.raises(SpecError, match="got callbacks that cannot be called"):
        KernelRegressor(callbacks=["mlflow"]).fit(X, X[:, 0])
    with pytest.raises(SpecError, match=r"handle\.watch"):
        KernelRegressor(callbacks=[print], client="tcp://127.0.0.1:1").fit(X, X[:, 0], detach=True, out="m.zarr")
