"""How a fit is watched from the command line: live progress, JSON lines, Dask's report."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from distributed import Client, performance_report

from daskkern.backend.current import current
from daskkern.cli.console import aside, say
from daskkern.errors import ClusterError, SpecError
from daskkern.events import Listener, all_of
from daskkern.monitor.json_lines import json_lines
from daskkern.monitor.progress import progress


def log_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--log-json`` to a command."""
    return click.option(
        "--log-json",
        is_flag=False,
        flag_value="-",
        metavar="[FILE]",
        help="Write events as JSON lines to FILE, at its end, or without one to stdout; words for people go to stderr.",
    )(command)


@contextmanager
def listening(max_epochs: int, log_json: str | None) -> Iterator[Listener]:
    """Yield a listener that shows progress, and writes JSON lines where they were asked for."""
    with ExitStack() as opened:
        listeners = [opened.enter_context(progress(max_epochs))]
        if log_json is not None:
            listeners.append(opened.enter_context(json_lines(log_json)))
        yield all_of(listeners)


@contextmanager
def people(log_json: str | None) -> Iterator[None]:
    """Inside, what people read goes to stderr where stdout carries JSON lines."""
    with aside() if log_json == "-" else ExitStack():
        yield


@contextmanager
def dask_report(client: Client | None, path: str | None) -> Iterator[None]:
    """Inside, Dask records what it does; then its report is at `path`, one HTML file that needs nothing else.

    Raises
    ------
    SpecError
        Without a cluster, or for a place that cannot be written.
    ClusterError
        When the scheduler cannot make one.
    """
    if path is None:
        yield
        return
    if client is None:
        raise SpecError(
            "--report was given with --workers 0, where there are no Dask tasks to report on; leave one of them out, "
            "and see 'daskkern report MODEL' for a report on the model"
        )
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise SpecError(f"--report {path} was given, which is no place for an HTML file; give one in a folder there is")
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
    """Write the report, also of a fit that failed, whose own error must not be hidden by another."""
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
