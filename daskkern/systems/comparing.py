"""Comparison of several systems on one store within one budget: error against time."""

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

from daskkern.cluster.connect.clients import ClusterLike
from daskkern.data.remote.stores import public
from daskkern.data.transactions.atomic import write_text
from daskkern.display import html_table
from daskkern.errors import DaskkernError, SpecError
from daskkern.evaluation.score import score_store
from daskkern.events import EpochFinished, Event, StageFinished
from daskkern.kernels import Kernel
from daskkern.systems.named import System
from daskkern.systems.warm_up import warm_up
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.feeding.validation import check_comparable
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

OnEvent = Callable[[str, Event | None], None]
"""Called with a system's name and each event of its fit; None when it begins."""


@dataclass(frozen=True)
class Curve:
    """The result of one system.

    Attributes
    ----------
    system, group, solver, basis : str
    seconds : float
        Time of the whole fit, with set-up, without scoring, and without the small fit before it that compiles kernels.
    epochs : int
    error : float or None
        Classification: share of wrong labels on the test rows. Regression: root of the mean squared error.
    points : tuple of (seconds, error)
        After each epoch; the error of regression relative to the spread of the targets, ``(1 - R2)^(1/2)``.
    reason : str
        Why it ended, "refused", "failed", or "interrupted" (Ctrl-C).
    problem : str
        The error message, where the system was refused or failed.
    """

    system: str
    group: str
    solver: str
    basis: str
    seconds: float
    epochs: int
    error: float | None
    points: tuple[tuple[float, float], ...] = ()
    reason: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`compare`: the systems in the given order, and their data."""

    store: str
    test: str
    task: str
    measure: str
    budget_s: float | None
    n_rows: int
    n_features: int
    kernel: str
    curves: tuple[Curve, ...]
    machine: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.curves)} systems on {public(self.test)}: {self.measure}>"

    def _repr_html_(self) -> str:
        rows = [
            (curve.system, "-" if curve.error is None else f"{curve.error:.4g}", f"{curve.seconds:.2f}", curve.epochs)
            for curve in self.curves
        ]
        title = f"{self.n_rows:,} rows, {self.n_features} features, kernel {self.kernel}"
        return html_table(title, ("system", self.measure, "seconds", "epochs"), rows)

    def save(self, path: str | Path) -> None:
        """Write everything as JSON to a new file that appears only when complete."""
        write_text(Path(path), json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> "Comparison":
        """Read what :meth:`save` wrote. SpecError when the file is missing or has other content."""
        try:
            values = json.loads(Path(path).read_text())
            curves = [{**curve, "points": tuple(map(tuple, curve["points"]))} for curve in values["curves"]]
            return cls(**{**values, "curves": tuple(Curve(**curve) for curve in curves)})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise SpecError(f"{path} is not a comparison that 'daskkern compare --out' wrote: {error}") from None


def compare(
    store: str,
    systems: Sequence[System],
    *,
    test: str | None = None,
    budget_s: float | None = None,
    kernel: Kernel | None = None,
    alpha: float | None = None,
    columns: int | None = None,
    seed: int = 0,
    client: ClusterLike = None,
    on_event: OnEvent | None = None,
) -> Comparison:
    """Fit `systems` to `store`, one after the other, and watch their errors on the rows of `test`.

    Parameters
    ----------
    store : str
        Path or URL of the training rows.
    systems : sequence of System
        In the order of the result.
    test : str, optional
        Path or URL of the rows to score. Without it the training rows are scored, and the comparison says so.
    budget_s : float, optional
        Seconds that each system may take; a longer fit is stopped, and its model so far is scored. By default each
        system runs its own number of epochs.
    kernel : Kernel, optional
        For all systems that have one; a Gaussian with the median distance by default.
    alpha : float, optional
        Ridge penalty for all; each system's own by default.
    columns : int, optional
        Landmarks or features for all systems that let them be chosen.
    seed : int
        Seed of all random draws.
    client
        A cluster; this process by default.
    on_event : callable, optional
        Called with the name of a system and each event of its fit; None as the event when it begins.

    Returns
    -------
    Comparison
        A system that refuses the data or fails has a curve with the error message, and the others continue. Ctrl-C ends
        the comparison with the results so far, and so does stopping the current fit: its curve is that of the model so
        far, if there is one, and all later systems are "interrupted".

    Raises
    ------
    DaskkernError
        When a store cannot be read, or the two do not match.
    """
    if not systems:
        raise SpecError("no systems were named to compare; give one or more")
    source = StoreSource.at(store)
    if source.info.task is None:
        raise SpecError(f"the store {store} has no targets, so nothing can be compared; ingest it with --target")
    watched = source if test is None else StoreSource.at(test)
    check_comparable(watched, source)
    changes = {"kernel": kernel, "alpha": alpha, "seed": seed, "max_seconds": budget_s}

    def one(chosen: System) -> Curve:
        return _curve(chosen, source, watched, columns, changes, client, on_event)

    curves = _curves(systems, one, on_event)
    info = source.info
    return Comparison(
        store,
        test or store,
        str(info.task),
        "error" if info.task == "classification" else "rmse",
        budget_s,
        info.n_rows,
        info.n_features,
        "gaussian:median" if kernel is None else repr(kernel),
        curves,
        {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
    )


def settings_of(chosen: System, task: str, columns: int | None, changes: dict[str, Any]) -> FitSettings:
    """Return the settings of a system with the changes for all systems."""
    settings = replace(chosen.for_task(task, columns).fit_settings(), calibrate=False)
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})


def _curves(systems: Sequence[System], one: Callable[[System], Curve], on_event: OnEvent | None) -> tuple[Curve, ...]:
    """Return the curve of each system, made by `one`; after an interrupt all later ones are unfinished."""
    curves: list[Curve] = []
    for chosen in systems:
        if on_event is not None:
            on_event(chosen.name, None)
        begun = time.perf_counter()
        try:
            curves.append(one(chosen))
        except KeyboardInterrupt:
            if not curves:
                raise
            curves.append(_unfinished(chosen, begun))
        if curves[-1].reason == "interrupted":  # an interrupted fit with a model returns it, and does not raise
            curves += [_unfinished(each, None) for each in systems[len(curves) :]]
            break
    return tuple(curves)


def _curve(
    chosen: System,
    source: StoreSource,
    watched: StoreSource,
    columns: int | None,
    changes: dict[str, Any],
    client: ClusterLike,
    on_event: OnEvent | None,
) -> Curve:
    named = (chosen.name, chosen.group, chosen.solver.name, chosen.space)
    begun = time.perf_counter()
    watch = _BudgetWatch(chosen.name, source.info.task == "classification", on_event)
    try:
        settings = settings_of(chosen, str(source.info.task), columns, changes)
        warm_up(source, settings, client)  # the first system would pay for all
        begun = time.perf_counter()
        result = fit(source, settings, client=client, validation=watched, listener=watch)
        seconds = time.perf_counter() - begun
        score = score_store(result.model, watched.store())
        error = score.error if score.error is not None else score.rmse
    except DaskkernError as problem:
        return Curve(*named, time.perf_counter() - begun, 0, None, reason="refused", problem=str(problem))
    except Exception as problem:  # an unexpected error ends one curve, and not the others
        text = f"{type(problem).__name__}: {problem}"
        return Curve(*named, time.perf_counter() - begun, 0, None, reason="failed", problem=text)
    return Curve(*named, seconds, result.finished.epochs, error, tuple(watch.points), result.finished.reason)


def _unfinished(chosen: System, begun: float | None) -> Curve:
    """Return the curve of a system that was interrupted, or not started."""
    named = (chosen.name, chosen.group, chosen.solver.name, chosen.space)
    seconds = 0.0 if begun is None else time.perf_counter() - begun
    return Curve(*named, seconds, 0, None, reason="interrupted", problem="interrupted" if begun else "not run")


class _BudgetWatch:
    """Records the error after each epoch, and its time."""

    def __init__(self, name: str, counts: bool, on_event: OnEvent | None) -> None:
        self.points: list[tuple[float, float]] = []
        self._name, self._counts, self._on_event, self._seconds = name, counts, on_event, 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished):
            self._seconds += event.seconds
        elif isinstance(event, EpochFinished):
            self._seconds += event.seconds
            score = event.validation_score
            if not isnan(score):  # it is NaN for an epoch that the budget cut short
                error = 1 - score if self._counts else max(0.0, 1 - score) ** 0.5
                self.points.append((round(self._seconds, 3), error))
        if self._on_event is not None:
            self._on_event(self._name, event)
