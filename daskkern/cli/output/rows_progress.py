"""The progress of commands that pass over rows, on stderr: rows done, rows per second, time left.

On a terminal a live line; elsewhere, as in the log of a batch job, a line every half minute. Neither with --quiet.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from daskkern.cli.console import REMARKS
from daskkern.monitor.formatting import whole_seconds

RowsDone: TypeAlias = Callable[[int, int | None], None]

LINE_SECONDS = 30.0


@contextmanager
def rows_progress(what: str, first: str = "reading the columns") -> Iterator[RowsDone]:
    """Yield a function that is called with the rows done, and the rows in all or None, and shows both.

    Parameters
    ----------
    what : str
        A verb, such as "ingesting".
    first : str
        What a terminal shows before the first rows are done.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    is_live = REMARKS.is_terminal and not REMARKS.quiet
    with Progress(*columns, console=REMARKS, transient=True, disable=not is_live) as bar:
        yield _RowsLine(bar, bar.add_task(what, total=None, state=first), what)


class _RowsLine:
    """Keeps the line up to date; a pass that starts again from fewer rows has a rate of its own."""

    def __init__(self, bar: Progress, task: TaskID, what: str) -> None:
        self._bar, self._task, self._what = bar, task, what
        self._begun: tuple[float, int] | None = None
        self._last, self._printed = 0, time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._begun is None or done < self._last:
            self._begun = (now, done)
        self._last = done
        state = rows_state(done, total, now - self._begun[0], done - self._begun[1])
        self._bar.update(self._task, completed=done, total=total, state=state)
        if self._bar.disable and not REMARKS.quiet and now - self._printed >= LINE_SECONDS:
            self._printed = now
            print(f"{self._what}: {state}", file=sys.stderr, flush=True)


def rows_state(done: int, total: int | None, seconds: float, rows: int) -> str:
    """Return the numbers of a line: `done` of `total` rows, of which `rows` took `seconds`."""
    parts = [f"{done:,} rows" if total is None else f"{done:,}/{total:,} rows"]
    if rows > 0 and seconds > 0:
        parts.append(f"{rows / seconds:,.0f} rows/s")
        if total is not None:
            parts.append(f"{whole_seconds(seconds / rows * (total - done))} left")
    return "  ".join(parts)
