"""Monitoring of a fit from the command line: live progress, JSON lines, Dask's performance report."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from distributed import Client, performance_report

from daskkern.backend.current import current
from daskkern.cli.console import REMARKS, output_to_stderr, say
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.errors import ClusterError, SpecError
from daskkern.events import Listener
from daskkern.monitor.json_lines import check_log, json_lines
from daskkern.monitor.listeners import all_of
from daskkern.monitor.progress import progress


@dataclass(frozen=True)
class LogRequest:
    """Where to write events as JSON lines: stdout, a file, both, or nowhere."""

    stdout: bool
    file: str | None

    def __bool__(self) -> bool:
        return self.stdout or self.file is not None


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--log-json`` and ``--log-file`` to a command, which receives them as one `log`.

    A file that is not a log of events is refused before anything runs. With ``--log-json``, output for people goes
    to stderr.
    """

    @click.option(
        "--log-json", is_flag=True, help="Write events as JSON lines to stdout; all other output goes to stderr."
    )
    @click.option("--log-file", metavar="FILE", help="Append events as JSON lines to FILE.")
    @functools.wraps(command)
    def wrapped(*args: Any, log_json: bool, log_file: str | None, **others: Any) -> Any:
        if log_file is not None:
            if log_file in ("", "-"):
                raise SpecError(f"got --log-file {log_file!r}; give the name of a file, or --log-json for stdout")
            check_log(log_file)
        with output_to_stderr() if log_json else ExitStack():
            return command(*args, log=LogRequest(log_json, log_file), **others)

    return wrapped


@contextmanager
def listening(max_epochs: int, log: LogRequest) -> Iterator[Listener]:
    """Yield a listener that shows progress, and writes the requested JSON lines."""
    with ExitStack() as opened:
        listeners = [opened.enter_context(progress(max_epochs, REMARKS))]
        places = ["-"] * log.stdout + ([] if log.file is None else [log.file])
        listeners += [opened.enter_context(json_lines(place)) for place in places]
        yield all_of(listeners)


@contextmanager
def dask_report(client: Client | None, path: str | None) -> Iterator[None]:
    """Record Dask's work inside the context and write its performance report to `path`, a self-contained HTML file.

    Raises
    ------
    SpecError
        Without a cluster, or if `path` cannot be written.
    ClusterError
        When the scheduler cannot make a report.
    """
    if path is None:
        yield
        return
    if client is None:
        raise SpecError(
            "got --report with --workers 0, where there are no Dask tasks to report on; leave one of them out, and see "
            "'daskkern report MODEL' for a report on the model"
        )
    target = check_file(path, FileKind.DASK_REPORT, option="--report")
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    report = performance_report(filename=str(partial), mode="inline")
    with current(client):
        try:
            report.__enter__()
        except Exception as error:
            raise _no_report(error) from None
    failed = True
    try:
        yield
        failed = False
    finally:
        _finish(report, client, partial, target, failed)


def _finish(report: Any, client: Client, partial: Path, target: Path, failed: bool) -> None:
    """Write the report, also of a failed fit, without masking the error of the fit by one of the report."""
    try:
        with current(client):
            report.__exit__(None, None, None)
        partial.replace(target)
    except Exception as error:
        partial.unlink(missing_ok=True)
        if not failed:
            raise _no_report(error) from None
    else:
        say(f"Dask's report is in {target}")


def _no_report(error: Exception) -> ClusterError:
    what = f"{type(error).__name__}: {error}"
    return ClusterError(
        f"the scheduler cannot make a report ({what}); it needs bokeh where the scheduler runs, or leave --report out"
    )
