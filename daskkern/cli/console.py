"""Console output, one-line errors and exit codes, shared by all commands."""

import errno
import json
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from daskkern.errors import DaskkernError, SpecError, whole_name, without_secrets

OUT = Console(highlight=False, soft_wrap=True)
"""Where results go."""
REMARKS = Console(stderr=True)
"""Where progress goes."""
_IN_PYTHON = re.compile(r"(--[a-z-]+) \([a-z_]+=\w+\)")
"""An option with the argument of Python that does the same."""
OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


class InterruptedJobError(Exception):
    """An interrupted job whose progress was saved; the message says how to continue."""


def say(line: str = "") -> None:
    """Print one line on stdout, unwrapped and without markup. URLs lose user, password, query and fragment."""
    OUT.print(without_secrets(line), markup=False)


def show_notes(notes: Iterable[str]) -> None:
    """Print remarks, one a line, unless --quiet was given."""
    for note in notes:
        remark(f"note: {note}")


def remark(line: str) -> None:
    """Print one line like :func:`say`, unless --quiet was given."""
    if not REMARKS.quiet:
        say(line)


@contextmanager
def quieted(*, everything: bool) -> Iterator[None]:
    """Print neither progress nor notes within the context; with `everything`, no results either, only errors."""
    before = REMARKS.quiet, OUT.quiet
    REMARKS.quiet, OUT.quiet = True, everything or OUT.quiet
    try:
        yield
    finally:
        REMARKS.quiet, OUT.quiet = before


def say_json(record: object) -> None:
    """Print a record as one line of JSON on stdout. URLs lose user, password, query and fragment."""
    click.echo(without_secrets(json.dumps(record)))


@contextmanager
def output_to_stderr() -> Iterator[None]:
    """Redirect human-readable output to stderr, because stdout carries machine-readable output."""
    OUT.stderr = True
    try:
        yield
    finally:
        OUT.stderr = False


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table; all columns but the first are right-aligned."""
    grid = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        grid.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        grid.add_row(*(escape(without_secrets(text)) for text in row))
    OUT.print(grid)


def listing(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows of text below their column names; as unwrapped plain text where stdout is not a terminal."""
    if OUT.is_terminal:
        grid = Table(box=None, pad_edge=False)
        for number, column in enumerate(columns):
            grid.add_column(column, no_wrap=number == 0, overflow="fold")
        for row in rows:
            grid.add_row(*(escape(without_secrets(text)) for text in row))
        OUT.print(grid)
        return
    widths = [max(map(len, texts)) for texts in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        say("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def progress_bar() -> Progress:
    """Return a live progress bar over rows on stderr, disabled where stderr is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("rows"))
    return Progress(*columns, TimeElapsedColumn(), console=REMARKS, transient=True, disable=not _is_live())


def _is_live() -> bool:
    return REMARKS.is_terminal and not REMARKS.quiet


def run(command: Callable[[], object], debug: bool) -> int:
    """Run `command`, report an exception as one line on stderr, and return the exit code.

    0 is success, 1 a failed job, 2 a wrong command line, 130 an interrupt, whether or not the job saved its progress.
    With `debug` the traceback is printed as well. SIGTERM interrupts as Ctrl-C does.
    """
    try:
        with _sigterm_interrupts():
            command()
        return OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(without_secrets(error.message), file=sys.stderr)
        return WRONG_USE
    except (click.MissingParameter, click.NoSuchOption) as error:
        about = f"; see '{error.ctx.command_path} --help'" if error.ctx is not None else ""
        return _fail(error.format_message().rstrip(".") + about, WRONG_USE, debug)
    except click.UsageError as error:
        unexpected = error.ctx is not None and error.message.startswith("Got unexpected extra")
        about = f"; see '{error.ctx.command_path} --help'" if unexpected and error.ctx is not None else ""
        return _fail(error.format_message() + about, WRONG_USE, debug)
    except click.ClickException as error:
        return _fail(error.format_message(), WRONG_USE, debug)
    except (KeyboardInterrupt, click.Abort) as end:
        if isinstance(end.__cause__, EOFError):  # of a damaged file: click takes it for the end of what a user types
            return _fail(_unexpected(end.__cause__), FAILED, debug)
        left: list[str] = getattr(end.__cause__ or end, "__notes__", [])
        return _fail(f"interrupted; {left[0] if left else 'nothing was written'}", INTERRUPTED, debug)
    except InterruptedJobError as end:
        return _fail(str(end), INTERRUPTED, debug)
    except SpecError as error:
        return _fail(str(error), WRONG_USE, debug)
    except DaskkernError as error:
        return _fail(str(error), FAILED, debug)
    except BrokenPipeError:
        return FAILED
    except Exception as error:  # a bug or an unforeseen input: still one line
        if isinstance(error.__cause__, KeyboardInterrupt):  # while a module was imported: Python wraps it
            return _fail("interrupted; nothing was written", INTERRUPTED, debug)
        return _fail(in_words(error), FAILED, debug)


def _unexpected(error: BaseException) -> str:
    return f"{type(error).__name__}: {error} (run again with --debug for the traceback)"


def in_words(error: Exception) -> str:
    """Return an error that is none of ours in one line; of the operating system what it refused, and what may help."""
    if not isinstance(error, OSError) or error.strerror is None:  # raised by a library, with a sentence of its own
        return _unexpected(error)
    name = "" if error.filename is None else str(error.filename)
    place = whole_name(name)
    where = f"{place}: " if place else ""
    remedies = {
        errno.ENOSPC: "make room, or write to another disk",
        errno.EDQUOT: "make room, or write to another disk",
        errno.EROFS: "write to another place",
        errno.EACCES: "change its permissions, or choose another place",
        errno.EPERM: "change its permissions, or choose another place",
        errno.EMFILE: "raise the limit, for example with: ulimit -n 4096",
    }
    otherwise = "run again with --debug for the traceback" if place == name else "choose another place"
    remedy = remedies.get(error.errno or 0, otherwise)
    return f"{where}{error.strerror[:1].lower()}{error.strerror[1:]}; {remedy}"


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Handle SIGTERM as SIGINT is handled at that moment, within the context: batch systems end jobs by it."""
    if threading.current_thread() is not threading.main_thread():  # only that may set handlers
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # a job in the background of a script ignores SIGINT
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)


def _fail(message: str, code: int, debug: bool) -> int:
    message = _IN_PYTHON.sub(r"\1", message)
    if debug:
        print(without_secrets(traceback.format_exc()), end="", file=sys.stderr)
    print(without_secrets(f"daskkern: error: {' '.join(message.split())}"), file=sys.stderr)
    return code
