"""``daskkern status | watch | cancel``: commands on the fits of a cluster, whoever submitted them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from daskkern.cli.console import listing, say
from daskkern.cli.options.cluster_options import ClusterRequest, scheduler_options
from daskkern.cli.options.json_option import json_option
from daskkern.cli.watching import LogRequest, listening, log_options
from daskkern.cluster.scheduler.fits import PREEMPTED, FitStatus
from daskkern.errors import ClusterError
from daskkern.monitor.formatting import number, ran, seconds
from daskkern.monitor.shares import in_words
from daskkern.training.jobs.handle import FitHandle, attach, find_fit, list_fits

_COLUMNS = ("fit", "name", "state", "progress", "loss", "rows/s", "running for", "priority", "owner", "waits for")


@click.command("status")
@click.argument("fit", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, or a list of them without FIT.")
@scheduler_options
def status_command(fit: str | None, as_json: bool, running: ClusterRequest) -> None:
    """Show the fits of a cluster, or one FIT."""
    with running.attached() as client:
        found = list_fits(client) if fit is None else (find_fit(client, fit),)
    if as_json:
        messages = [_plain(status) for status in found]
        say(json.dumps(messages if fit is None else messages[0]))
    elif fit is not None:
        _show(found[0])
    elif not found:
        say("no fits")
    else:
        listing(_COLUMNS, [_row(status) for status in found])


@click.command("watch")
@click.argument("fit", required=False)
@log_options
@scheduler_options
def watch_command(fit: str | None, log: LogRequest, running: ClusterRequest) -> None:
    """Follow FIT until it ends; Ctrl-C stops following, not the fit. Without FIT: the active one, else the last one."""
    with handle_of(running, fit) as (handle, status):
        try:
            with listening(status.metadata.max_epochs, log) as listener:
                status = handle.watch(listener)
        except KeyboardInterrupt:
            say(f"fit {handle.fit} goes on; follow it again with: daskkern watch {handle.fit} {running.words}")
            return
    _show(status)
    if status.state not in ("finished", "interrupted"):
        raise ClusterError(f"fit {handle.fit} ended as {status.state}{': ' * bool(status.error)}{status.error}")


@click.command("cancel")
@click.argument("fit", required=False)
@click.option("--abort", is_flag=True, help="End it at once, without saving a model.")
@json_option
@scheduler_options
def cancel_command(fit: str | None, abort: bool, running: ClusterRequest) -> dict[str, object]:
    """End FIT after its current step; the model so far is saved, and a checkpoint to --resume from."""
    with handle_of(running, fit) as (handle, status):
        if not handle.cancel(abort=abort):
            raise ClusterError(f"fit {handle.fit} has already ended: {status.state}")
    say(f"fit {handle.fit} will end; see daskkern status {handle.fit} {running.words}")
    return {"fit": handle.fit, "abort": abort}


@contextmanager
def handle_of(running: ClusterRequest, fit: str | None) -> Iterator[tuple[FitHandle, FitStatus]]:
    """Yield the handle of a fit of the named cluster, and its status."""
    with running.attached() as client:
        status = find_fit(client, fit)
        yield attach(client, status.metadata.fit), status


def _plain(status: FitStatus) -> dict[str, Any]:
    """Return `status` for JSON, which has no NaN."""
    message = asdict(status)
    return {**message.pop("metadata"), **{key: None if value != value else value for key, value in message.items()}}


def _row(status: FitStatus) -> tuple[str, ...]:
    return (
        status.metadata.fit,
        status.metadata.name,
        status.state,
        _progress(status),
        _known(number(status.loss)),
        f"{status.rows_per_second:,.0f}" if status.rows_per_second else "",
        _took(status),
        str(status.metadata.priority),
        _submitter(status),
        _waits_for(status),
    )


def _submitter(status: FitStatus) -> str:
    """Return the submitter of a fit, and the user whose quota applies if that is another."""
    owner, user = status.metadata.owner, status.metadata.user
    return f"{owner} for {user}" if user and user != owner.partition("@")[0] else owner


def _waits_for(status: FitStatus) -> str:
    """Return what a fit waits for in a few words; `status.waits` is the sentence."""
    return status.quota.removeprefix("waiting for ") or ", ".join(status.ahead) or _without_waiting(status)


def _without_waiting(status: FitStatus) -> str:
    return status.waits.removeprefix("waiting for ")


def _show(status: FitStatus) -> None:
    metadata = status.metadata
    lines = {
        "fit": f"{metadata.fit} ({metadata.name}), submitted by {_submitter(status)} at {clock(status.submitted)}",
        "state": _state(status),
        "priority": str(metadata.priority) if metadata.priority else "",
        "rows from": metadata.source,
        "model": metadata.out,
        "progress": _progress(status),
        "loss": _known(number(status.loss)),
        "validation": _known(number(status.validation_score)),
        "rate": f"{status.rows_per_second:,.0f} rows/s" if status.rows_per_second else "",
        "queued for": seconds(time.time() - status.submitted) if status.state in ("submitted", "queued") else "",
        "running for": _took(status),
        "time left": _known(seconds(status.seconds_left)) if status.state == "running" else "",
        "last epoch": in_words(status.time_shares),
        "workers": ", ".join(status.workers),
        "waits for": _without_waiting(status),
        "lost workers": str(status.lost) if status.lost else "",
        "preempted": f"{status.preempted} time{'s' * (status.preempted != 1)}" if status.preempted else "",
        "error": status.error,
    }
    for name, text in lines.items():
        if text:
            say(f"{name:<13}{text}")


def _state(status: FitStatus) -> str:
    if status.state == PREEMPTED:
        return "preempted: it has committed, and goes on by itself when workers are free"
    return status.state


def _progress(status: FitStatus) -> str:
    if not status.epoch:
        return ""
    of = f"/{status.metadata.max_epochs}" if status.metadata.max_epochs else ""
    steps = status.batch - status.n_batches
    done = f"step {steps} after its batches" if steps > 0 else f"batch {status.batch}/{status.n_batches}"
    return f"epoch {status.epoch}{of}, {done}"


def _took(status: FitStatus) -> str:
    """Return how long the fit has run, as on the dashboard; "" before it has started."""
    return _known(seconds(ran(status.started, status.ended, time.time())))


def _known(text: str) -> str:
    return "" if text == "-" else text


def clock(seconds: float) -> str:
    """Return a time in seconds since 1970 as the date and the time of day here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
