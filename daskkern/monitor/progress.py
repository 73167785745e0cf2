"""A live line for a fit: epoch, batch, loss, rows per second and the time left. Whole lines when not on a terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from daskkern.events import BatchFinished, Event, FitFinished, FitQueued, FitResumed, Listener
from daskkern.monitor.lines import line_of


@contextmanager
def progress(max_epochs: int, console: Console | None = None) -> Iterator[Listener]:
    """Yield a listener that shows the fit of `max_epochs` epochs on `console` (stderr)."""
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Line(bar, bar.add_task("preparing", total=None, state="landmarks and spectrum"), max_epochs)


class _Line:
    """Keeps the line up to date; finished stages and epochs stay above it."""

    def __init__(self, bar: Progress, task: TaskID, max_epochs: int) -> None:
        self._bar, self._task, self._max_epochs = bar, task, max_epochs
        self._begun: tuple[float, int] | None = None
        """When this run was first heard of in an epoch, and how many batches were behind it then."""

    def __call__(self, event: Event) -> None:
        match event:
            case BatchFinished():
                self._batch(event)
                return
            case FitQueued():
                self._bar.update(self._task, description="queued", state="waiting for workers")
            case FitResumed():
                self._begun = None
            case FitFinished():
                self._bar.update(self._task, state=f"ended: {event.reason}")
                return
        line = line_of(event, self._max_epochs)
        if line is not None:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _batch(self, event: BatchFinished) -> None:
        now = time.monotonic()
        done = (event.epoch - 1) * event.n_batches + event.batch
        self._begun = self._begun or (now, done)
        total = self._max_epochs * event.n_batches
        left = (now - self._begun[0]) / max(done - self._begun[1], 1) * (total - done)
        self._bar.update(
            self._task,
            description=f"epoch {event.epoch}/{self._max_epochs}",
            total=total,
            completed=done,
            state=(
                f"batch {event.batch}/{event.n_batches}  loss {event.loss:.4g}  {event.rows_per_second:,.0f} rows/s  "
                f"{_clock(left)} left"
            ),
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
