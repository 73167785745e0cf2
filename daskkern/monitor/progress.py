"""A live progress line of a fit: stage or epoch, batch, loss, validation score, rows per second, time left and memory.

Without a terminal, whole lines are printed. In notebooks lines and bar are one output of the cell, which is replaced.
"""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from html import escape

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
_REDRAW_S = 0.25
_FIRST_LINES, _LAST_LINES = 20, 20
"""How many lines a notebook shows of a fit with many epochs."""
_PRE = (
    "margin:0;white-space:pre-wrap;word-break:normal;overflow-wrap:break-word;"
    "line-height:1.3;background:none;color:inherit"
)


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
    in_notebook = console.is_jupyter and not console.quiet
    live = console.is_terminal and not console.is_jupyter and not console.quiet
    with Progress(*columns, console=console, transient=True, disable=not live) as bar:
        task = bar.add_task("preparing", total=None, state="landmarks and spectrum")
        if not in_notebook:
            yield _Line(bar, task, max_epochs, lambda line: _print(console, line))
            return
        with _NotebookOutput(bar) as output:
            line = _Line(bar, task, max_epochs, output.add)
            yield lambda event: output.end(event) if isinstance(event, FitFinished) else line(event)


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


class _NotebookOutput:
    """One output of a notebook's cell: finished lines and, while the fit runs, the bar. It is replaced as a whole.

    It needs no widgets, and what is left in the notebook is text. Rich's own output needs them, has an output for each
    line, and leaves nothing of the bar in a notebook that is opened again.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar, self._lines = bar, list[str]()
        self._stop = threading.Event()

    def __enter__(self) -> "_NotebookOutput":
        from IPython.display import display

        self._shown = display(self._content(), raw=True, display_id=True)
        # In the context of the cell, whose output this remains while other cells run.
        self._thread = threading.Thread(target=copy_context().run, args=(self._redraw,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._shown.update(self._content(), raw=True)

    def add(self, line: str) -> None:
        """Keep a line above the bar."""
        self._lines.append(line)

    def end(self, event: FitFinished) -> None:
        """Replace the bar by a line that says how the fit has ended."""
        self._lines.append(line_of(event, 0) or "")
        self._stop.set()

    def _redraw(self) -> None:
        while not self._stop.wait(_REDRAW_S):
            self._shown.update(self._content(), raw=True)

    def _content(self) -> dict[str, str]:
        lines = self._lines[:]
        if len(lines) > _FIRST_LINES + _LAST_LINES:
            left_out = f"  ... {len(lines) - _FIRST_LINES - _LAST_LINES:,} lines ..."
            lines = [*lines[:_FIRST_LINES], left_out, *lines[-_LAST_LINES:]]
        plain, html = "\n".join(lines), escape("\n".join(lines))
        if not self._stop.is_set():
            drawn = Console(
                file=io.StringIO(), record=True, width=self._bar.console.width, force_terminal=True, force_jupyter=False
            )
            drawn.print(self._bar, end="")
            html += ("\n" if lines else "") + drawn.export_html(inline_styles=True, code_format="{code}", clear=False)
            plain += ("\n" if lines else "") + drawn.export_text()
        return {
            "text/html": f'<pre class="daskkern" style="{_PRE}">{html.rstrip()}</pre>',
            "text/plain": plain.rstrip(),
        }


class _Line:
    """Keeps the line up to date; finished stages and epochs go to `keep`, above it."""

    def __init__(self, bar: Progress, task: TaskID, max_epochs: int, keep: Callable[[str], None]) -> None:
        self._bar, self._task, self._max_epochs, self._keep = bar, task, max_epochs, keep
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
            self._keep(line)

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
