"""A live progress line of a fit: stage or epoch, batch, loss, validation score, rows per second, time left and memory.

Without a terminal, whole lines are printed. In notebooks the line is live if ipywidgets is installed.
"""

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from daskkern.events import (
    BatchFinished,
    EpochFinished,
    Event,
    FitFinished,
    FitPreempted,
    FitQueued,
    FitResumed,
    FitStarted,
    Listener,
    RankReported,
    StageFinished,
    StopRequested,
    WorkersLost,
)
from daskkern.monitor.event_text import line_of
from daskkern.monitor.formatting import format_bytes, whole_seconds

_BAR, _CLOCK, _GAPS = 16, 7, 3
"""Widths of the bar and of the clock, and the columns between the four parts of the line."""


@contextmanager
def progress(max_epochs: int, console: Console | None = None) -> Iterator[Listener]:
    """Yield a listener that shows the fit of `max_epochs` epochs on `console` (stderr).

    The number that a fit reports when it starts takes precedence: a resumed fit may run to a later epoch.
    """
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=_BAR),
        TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=_CLOCK)),
    )
    with Progress(*columns, console=console, transient=True, disable=not _is_live(console)) as bar:
        yield _Line(bar, bar.add_task("preparing", total=None, state="landmarks and spectrum"), max_epochs)


def _is_live(console: Console) -> bool:
    """Return whether a line can be redrawn in place, for which a notebook needs widgets."""
    if console.quiet:
        return False
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


class _Line:
    """Keeps the line up to date; finished stages and epochs stay above it."""

    def __init__(self, bar: Progress, task: TaskID, max_epochs: int) -> None:
        self._bar, self._task, self._max_epochs = bar, task, max_epochs
        self._begun: tuple[float, int] | None = None
        """Time of the first batch event of this run, and the number of batches done by then."""
        self._score = float("nan")
        self._memory: dict[int, int] = {}
        self._stopping = False

    def __call__(self, event: Event) -> None:
        match event:
            case BatchFinished():
                self._batch(event)
                return
            case RankReported():
                self._memory[event.rank] = event.memory_bytes
                return
            case FitFinished():
                self._bar.update(self._task, state=f"ended: {event.reason}")
                return
            case FitQueued():
                self._bar.update(self._task, description="queued", state="waiting for workers")
            case FitStarted():
                self._max_epochs, self._begun = event.max_epochs or self._max_epochs, None
                self._bar.update(self._task, description="setting up", state="")
            case StageFinished() if self._begun is None:
                self._bar.update(self._task, description="setting up", state=f"{event.stage}: done")
            case WorkersLost():
                self._memory.clear()
                self._bar.update(self._task, description="recovering", state="re-forming the gang")
            case FitPreempted():
                self._memory.clear()
                self._bar.update(self._task, description="preempted", state="waiting for workers")
            case FitResumed():
                self._begun = None
            case EpochFinished():
                self._score = event.validation_score
            case StopRequested():
                self._stopping = True
                self._bar.update(self._task, description="stopping")
        line = line_of(event, self._max_epochs)
        if line is not None:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _batch(self, event: BatchFinished) -> None:
        now = time.monotonic()
        done = (event.epoch - 1) * event.n_batches + event.batch
        self._begun = self._begun or (now, done)
        total = self._max_epochs * event.n_batches if event.epoch <= self._max_epochs else 0
        done = min(done, total) if total else done
        where = f"epoch {event.epoch}/{self._max_epochs}" if total else f"epoch {event.epoch}"
        where = f"stopping, {where}" if self._stopping else where
        self._bar.update(
            self._task,
            description=where,
            total=total or None,
            completed=done,
            state=self._state(event, now, done, total, self._bar.console.width - len(where) - _BAR - _CLOCK - _GAPS),
        )

    def _state(self, event: BatchFinished, now: float, done: int, total: int, width: int) -> str:
        """Return the numbers that fit `width` columns, of the most important ones first."""
        assert self._begun is not None
        steps = event.batch - event.n_batches
        parts = [f"step {steps}" if steps > 0 else f"batch {event.batch}/{event.n_batches}"]
        if event.measure:
            parts.append(f"{event.measure} {event.optimality:.3g}, to end at {event.tol:.3g}")
        parts.append(f"loss {event.loss:.4g}")
        if self._score == self._score:
            parts.append(f"score {self._score:.4f}")
        if done > self._begun[1] and total and steps <= 0:
            parts.append(f"{whole_seconds((now - self._begun[0]) / (done - self._begun[1]) * (total - done))} left")
        if steps <= 0:
            parts.append(f"{event.rows_per_second:,.0f} rows/s")
        if self._memory:
            parts.append(f"{format_bytes(max(self._memory.values()))}{' a rank' if len(self._memory) > 1 else ''}")
        while len(parts) > 1 and len("  ".join(parts)) > width:
            parts.pop()
        return "  ".join(parts)
