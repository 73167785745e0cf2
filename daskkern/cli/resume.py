"""``daskkern resume``: continue interrupted fits with the options of the commands that started them."""

import json
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import asdict

import click

from daskkern.cli.console import in_words, quieted, say, say_json
from daskkern.cli.fit import fit_command
from daskkern.cli.options.cluster_options import ClusterRequest, cluster_options
from daskkern.cli.options.row_options import ROW_OPTIONS
from daskkern.data.remote.stores import absolute, public
from daskkern.errors import DaskkernError, StoreError
from daskkern.training.checkpoints.listing import SUFFIX, FoundFit, find_fits, inspect_checkpoint
from daskkern.training.checkpoints.recorded_command import Resumption
from daskkern.training.jobs.handle import list_fits

RESUMED, RUNNING, FINISHED, DAMAGED, FAILED = "resumed", "still running", "finished", "damaged", "failed"


@click.command("resume")
@click.argument("place")
@click.option(
    "--all", "every", is_flag=True, help="PLACE is a folder or URL: continue all fits with checkpoints in it."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, with an object for each fit.")
@cluster_options
def resume_command(place: str, every: bool, as_json: bool, where: ClusterRequest) -> None:
    """Continue the fit of a checkpoint PLACE, or --all unfinished fits of a folder or URL.

    PLACE may also be the model next to the checkpoint; --all takes the checkpoints directly in the folder. Fits run as
    the commands that began them said, on the cluster that is named here; on a running cluster they run detached. Prints
    a line for each fit.
    """
    found = find_fits(place) if every else (_named(place),)
    with quieted(everything=True) if as_json else nullcontext():
        active = _active(where)
        outcomes = [(fit, *_report(fit, *_outcome(fit, where, active))) for fit in found]
        if not outcomes:
            say(f"no checkpoints are in {public(place)}")
    if as_json:
        say_json(
            [{"place": public(fit.location), "outcome": outcome, "detail": text} for fit, outcome, text in outcomes]
        )
    said = [outcome for _, outcome, _ in outcomes]
    failed = [outcome for outcome in said if outcome in (DAMAGED, FAILED)]
    if failed:
        raise StoreError(f"{len(failed)} of {len(said)} fits cannot be continued; the lines above say why")


def _report(fit: FoundFit, outcome: str, detail: str) -> tuple[str, str]:
    say(f"{outcome:<14}{public(fit.location)}{detail and f': {detail}'}")
    return outcome, detail


def _named(place: str) -> FoundFit:
    """Return the fit of a checkpoint, or of the model next to it. Raises StoreError where neither is there."""
    location = absolute(place).rstrip("/")
    fits = [inspect_checkpoint(location)]
    if fits[0].problem and not location.endswith(SUFFIX):
        fits.insert(0, inspect_checkpoint(f"{location}{SUFFIX}"))
    for fit in fits:
        if fit.exists:
            return fit
    raise StoreError(f"{fits[-1].problem}; give a checkpoint, or the model next to it")


def _active(where: ClusterRequest) -> set[str]:
    """Return where the fits of the named cluster write that have not ended."""
    if not where.named:
        return set()
    with where.attached() as client:
        return {status.metadata.out for status in list_fits(client) if status.active}


def _outcome(fit: FoundFit, where: ClusterRequest, active: Collection[str]) -> tuple[str, str]:
    """Continue a fit if that is possible and needed; return the outcome and its message."""
    record = fit.record
    unclear = bool(fit.problem) or (record is None and not fit.is_finished)
    if (
        unclear and fit.exists and not inspect_checkpoint(fit.location).exists
    ):  # it was being removed, by a fit that has ended
        return FINISHED, "its checkpoint was removed meanwhile"
    if fit.problem:
        return DAMAGED, fit.problem
    if fit.is_finished:
        return FINISHED, f"the model is in {public(fit.out)}"
    if public(fit.out) in active or (record is not None and record.runs):
        return RUNNING, ""
    if record is None or not fit.out:
        return FAILED, "it was begun in Python, with --auto, or by an older version; continue it as it was begun"
    if record.detached and not where.named:
        return FAILED, "it was detached; name a running cluster with --scheduler or --scheduler-file"
    try:
        fit_command.main([*_words(fit, record, where)], prog_name="daskkern fit", standalone_mode=False)
    except DaskkernError as error:
        return FAILED, str(error)
    except click.ClickException as error:
        return FAILED, error.format_message()
    except Exception as error:  # a bug, a disk that fails: the other fits go on
        return FAILED, in_words(error)
    return RESUMED, f"it runs detached, and its model will be in {public(fit.out)}" if where.named else ""


def _words(fit: FoundFit, record: Resumption, where: ClusterRequest) -> Iterator[str]:
    """Yield the words of the command line after ``daskkern fit``. Values are never parsed as options."""
    yield f"--out={fit.out}"
    yield "--resume"
    if record.out is not None:
        yield f"--checkpoint={fit.location}"
    for option, value in (("validation", record.validation), ("name", record.name), ("ranks", record.ranks)):
        if value is not None:
            yield f"--{option}={value}"
    if record.share:
        yield "--share"
    if record.priority and where.workers != 0:
        yield f"--priority={record.priority}"
    if record.user and where.workers != 0:
        yield f"--user={record.user}"
    for key, names in record.rows.items():
        if key in ROW_OPTIONS:
            yield f"--{key.replace('_', '-')}={names}"
    for key, setting in record.options.items():
        yield f"--set={key}={json.dumps(setting)}"
    if where.named:
        yield "--detach"
    tls = {} if where.tls is None else asdict(where.tls)
    places = {"scheduler": where.scheduler, "scheduler-file": where.scheduler_file, "gpus": where.gpus}
    for option, value in {**places, "workers": where.workers, **{f"tls-{name}": tls[name] for name in tls}}.items():
        if value is not None:
            yield f"--{option}={value}"
    yield "--"
    yield record.store
