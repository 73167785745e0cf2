"""Rows of the papers that show losses or errors over epochs: some points of each curve."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from contest.data import Data

from daskkern import KernelClassifier
from daskkern.arrays import HostArray
from daskkern.events import BatchFinished, EpochFinished, Event
from daskkern.losses import parse_loss
from daskkern.solvers import EigenPro, NystromSGD
from papers.compared import finite_sums
from papers.form import PaperRow, points_of

LOSSES = ("squared", "hinge", "squared_hinge")
_VANILLA_TIMES = 10
"""Epochs without conditioning for each one with it, as in table 5 and figure 2 of Pfahler and Morik."""


def mean_loss(loss: str, model: KernelClassifier, X: HostArray, y: HostArray) -> float:
    """Return the mean loss of a model on rows, summed over its outputs; the squared one without its half.

    Two classes have one output.
    """
    scores = np.asarray(model.decision_function(X), np.float64).reshape(len(y), -1)
    own = model.classes_[1:] if scores.shape[1] == 1 else model.classes_
    signs = np.where(np.asarray(y)[:, None] == own, 1.0, -1.0)
    factor = 2.0 if loss == "squared" else 1.0
    return factor * float(parse_loss(loss).value(scores, signs).mean())


def errors_by_epoch(row: PaperRow, data: Data, rows: tuple[Any, Any], watched: tuple[Any, Any]) -> list[float]:
    """Return the error on the watched rows after each epoch of a fit to `rows`."""
    model = row.estimator(data, early_stopping=True, n_iter_no_change=row.n_epochs)
    model.fit(*rows, validation=watched)
    return [1 - float(value) for value in model.history_["validation_score"]]


def descent(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return losses and errors of gradient descent after some iterations, each a fit of its own from 0.

    Losses are mean squares over rows and outputs, of targets 1 and -1.
    """
    points = [count for count in (1, 80, 1280, 10_240, 81_920) if count <= row.n_epochs]
    values: dict[str, list[float]] = {"training loss": [], "test loss": [], "test error": []}
    for count in points:
        made = replace(row, n_epochs=count).estimator(data, calibrate=False, fit_intercept=False)
        model = made.fit(data.X, data.y)
        assert isinstance(model, KernelClassifier)
        n_outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
        values["training loss"].append(mean_loss(row.loss, model, data.X, data.y) / n_outputs)
        values["test loss"].append(mean_loss(row.loss, model, data.X_test, data.y_test) / n_outputs)
        values["test error"].append(data.error(model.predict(data.X_test)))
    return points_of(points, values)


def losses_compared(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return training errors of each loss, and the epochs after which each has that of the worst after all of them."""
    rows = (data.X, data.y)
    errors = {loss: errors_by_epoch(replace(row, loss=loss), data, rows, rows) for loss in LOSSES}
    reference = max(values[-1] for values in errors.values())
    reached = [next(count for count, error in enumerate(values, 1) if error <= reference) for values in errors.values()]
    points = [count for count in (1, 2, 5, 10) if count <= row.n_epochs]
    shown = {f"{loss.replace('_', ' ')} loss, training error": _at(points, errors[loss]) for loss in LOSSES}
    return {**points_of(points, shown), "reference_error": reference, "n_reached_each": reached}


def conditioning(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return errors on training and test rows with conditioning, and ten times as long without."""
    vanilla = replace(row, solver=NystromSGD(n_directions=0, averaging=0.0), n_epochs=_VANILLA_TIMES * row.n_epochs)
    rows = (data.X, data.y)
    points = [count for count in (1, 2, 5, 10, 20, 50, 100, 200) if count <= vanilla.n_epochs]
    shown = {}
    for name, each in (("conditioned", row), ("vanilla", vanilla)):
        for kind, watched in (("training", rows), ("test", (data.X_test, data.y_test))):
            found = errors_by_epoch(each, data, rows, watched)
            shown[f"{name}, {kind} error"] = _at([count for count in points if count <= each.n_epochs], found)
    return points_of(points, shown)


def overhead(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return the processor seconds of each epoch of a fit with directions, and of one without; not of the set-up."""
    assert isinstance(row.solver, EigenPro)
    values: dict[str, list[float]] = {}
    for n_directions in (row.solver.n_directions, 0):
        each = replace(row, solver=replace(row.solver, n_directions=n_directions))
        values[f"{n_directions} directions, processor seconds"] = _processor_seconds(each, data)
    return points_of(list(range(1, row.n_epochs + 1)), values)


def phases(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return the processor seconds of the set-up, to the end of the first batch, and of the median epoch."""
    begun = time.process_time()
    starts, seconds = _epoch_times(row, data)
    return {
        "our_setup_processor_seconds": round(starts[0] - begun, 2),
        "our_epoch_processor_seconds": round(sorted(seconds)[len(seconds) // 2], 3),
        "n_our_epochs": len(seconds),
    }


def _processor_seconds(row: PaperRow, data: Data) -> list[float]:
    """Return the processor seconds from the first batch of each epoch to its end."""
    return _epoch_times(row, data)[1]


def _epoch_times(row: PaperRow, data: Data) -> tuple[list[float], list[float]]:
    """Return the processor time after the first batch of each epoch, and the processor seconds from there to its end.

    Of all threads together.
    """
    starts, seconds = [], []

    def listen(event: Event) -> None:
        if isinstance(event, BatchFinished) and event.batch == 1:
            starts.append(time.process_time())
        if isinstance(event, EpochFinished):
            seconds.append(time.process_time() - starts[-1])

    row.estimator(data, calibrate=False, keep_blocks="never", callbacks=[listen]).fit(data.X, data.y)
    return starts, seconds


def _at(points: Sequence[int], values: Sequence[float]) -> list[float]:
    return [values[min(count, len(values)) - 1] for count in points]


def curves_in_words(row: Any) -> str:
    """Return the points of each curve."""
    said = []
    for number, name in enumerate(row["curves"], 1):
        kind = name.split()[-1]
        each = row[f"curve_{number}_{kind}"]
        said.append(f"{name} {', '.join(f'{value:.1%}' if kind == 'error' else f'{value:.3g}' for value in each)}")
    after = f"after {', '.join(f'{count:,}' for count in row['n_epochs_each'])} epochs"
    reached = ""
    if "reference_error" in row:
        counts = ", ".join(map(str, row["n_reached_each"]))
        reached = f". They reach that of the slowest, {row['reference_error']:.1%}, after {counts} epochs"
    return f"{'; '.join(said)}; {after}{reached}"


CURVES: dict[str, Callable[[PaperRow, Data], dict[str, Any]]] = {
    "descent": descent,
    "losses": losses_compared,
    "conditioning": conditioning,
    "overhead": overhead,
    "finite sums": finite_sums,
}
"""How the points of a figure are found."""
