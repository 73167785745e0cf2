"""``daskkern fit``: train a model on a store, here, on a cluster, or detached from this process."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import click
from distributed import Client

from daskkern.cli.auto import searched, show_trials, without_limit
from daskkern.cli.console import InterruptedJobError, say
from daskkern.cli.options.cluster_options import ClusterRequest, cluster_options
from daskkern.cli.options.fit_options import fit_options
from daskkern.cli.options.fit_request import FitRequest
from daskkern.cli.options.json_option import json_option
from daskkern.cli.options.row_options import open_rows, row_options
from daskkern.cli.options.submission_options import Submission, submission_options
from daskkern.cli.output.fit_results import finish, fit_record
from daskkern.cli.watching import LogRequest, dask_report, listening, log_options
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.scheduler.lease import concluded
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.data.remote.stores import absolute
from daskkern.data.shuffle.detection import order_note
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.errors import (
    ClusterError,
    DataError,
    MemoryBudgetError,
    ModelError,
    SpecError,
    StoreError,
    SupersededError,
)
from daskkern.model_selection import Budget, with_trials
from daskkern.models import save_model
from daskkern.training.checkpoints.checkpoint import (
    is_checkpoint,
    open_checkpoint,
    read_fingerprint,
    remove_begun_checkpoint,
    remove_checkpoint_of,
)
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.fingerprints import check_model_place
from daskkern.training.checkpoints.model_guard import ModelGuard
from daskkern.training.checkpoints.recorded_command import Resumption, resumption_of
from daskkern.training.direct.roles import RowRoles
from daskkern.training.jobs.detached import submit
from daskkern.training.planning.planner import device_pool
from daskkern.training.run.fit import FitResult, fit_job
from daskkern.training.run.job import FitJob


@click.command("fit")
@click.argument("store")
@click.option(
    "--out",
    required=True,
    metavar="MODEL",
    help="Where to write the model; an existing model is replaced only with --overwrite.",
)
@click.option(
    "--validation", metavar="STORE", help="Validation rows, scored after each epoch and used by --early-stopping."
)
@click.option(
    "--checkpoint",
    metavar="PLACE",
    help="Where to save progress; all workers must reach it.  [default: MODEL.checkpoint, removed at the end]",
)
@click.option(
    "--resume", is_flag=True, help="Continue from the checkpoint, if there is one, and replace the partial model."
)
@click.option("--overwrite", is_flag=True, help="Start over, and replace the model and checkpoint of an earlier fit.")
@click.option(
    "--auto",
    is_flag=True,
    help="Search for kernel, length scale, scaling, metric, penalty, loss and solver first, on sampled rows; with "
    "--max-seconds, search and fit take that long together.",
)
@click.option("--detach", is_flag=True, help="Submit the fit to --scheduler and exit; it continues there.")
@submission_options
@row_options
@log_options
@click.option("--report", metavar="FILE", help="Write Dask's performance report on the cluster's work to an HTML file.")
@fit_options
@json_option
@cluster_options
def fit_command(
    store: str,
    out: str,
    validation: str | None,
    checkpoint: str | None,
    resume: bool,
    overwrite: bool,
    auto: bool,
    detach: bool,
    submission: Submission,
    roles: RowRoles,
    log: LogRequest,
    report: str | None,
    request: FitRequest,
    where: ClusterRequest,
) -> dict[str, object]:
    """Train a kernel machine on STORE and write the model.

    With --target, STORE is a table, a Dataset or a pair of arrays, which is read in place. Most fits need no more than
    --out, --landmarks for more than 10,000 rows, --workers or --scheduler, and --auto to search for minutes.
    """
    _check_together(detach, resume, overwrite, log, report)
    budget = None
    if auto:
        request, budget = without_limit(request, detach=detach)
    whole_out = absolute(out)
    place = checkpoint or f"{whole_out}.checkpoint"
    check_model_place(out, place, overwrite=overwrite, resume=resume)
    guard = ModelGuard.of(whole_out)
    request.check()
    source = open_rows(store, roles)
    earlier = read_fingerprint(place).get("settings", {}) if resume else {}
    info = source.info
    settings = request.settings(info.task, info.n_rows, earlier, info.n_features, len(info.classes or ()))
    watched = None if validation is None else open_rows(validation, roles, source.info)
    note = order_note(source.open("float32"))
    if note is not None:
        say(f"note: {note}")
    record = None
    if not auto:  # no command line says what a search has chosen
        record = _record(store, validation, checkpoint and out, request, roles, submission, detach)
    policy = CheckpointPolicy(
        checkpoint=checkpoint if detach else place, resume=resume, overwrite=overwrite, record=record
    )
    job = FitJob(source, settings, watched, policy)
    gang = submission.gang(job.settings, where)
    if detach:
        return _detach(job, out, gang, submission.name, where)
    metadata = job.metadata(submission.name, whole_out).submitted_with(submission.priority, submission.user)
    with (
        where.client(partial(device_pool, job.source, job.settings)) as client,
        dask_report(client, report),
        _progress_kept(place),
        concluded(client, metadata),
    ):
        result = _fitted(job, budget, client, log, gang, metadata)
        _save(result, out, place, guard)
    finish(result, out)
    if result.finished.reason == "interrupted":
        raise InterruptedJobError(_interrupted(place))
    if checkpoint is None:
        remove_checkpoint_of(place, None, result.claim)
    return fit_record(result, out)


def _check_together(detach: bool, resume: bool, overwrite: bool, log: LogRequest, report: str | None) -> None:
    if detach and (log or report):
        raise SpecError(
            "--log-json, --log-file and --report record what this process sees of a fit, and --detach exits at once; "
            "leave them out, and follow the fit with: daskkern watch FIT --log-json"
        )
    if resume and overwrite:
        raise SpecError("got both --resume and --overwrite; continue from the checkpoint, or start over")
    if report is not None:
        check_file(report, FileKind.DASK_REPORT, option="--report")


def _record(
    store: str,
    validation: str | None,
    out: str | None,
    request: FitRequest,
    roles: RowRoles,
    submission: Submission,
    detached: bool,
) -> Resumption | None:
    """Return what ``daskkern resume`` needs to run this command again."""
    return resumption_of(
        store,
        request.values,
        validation=validation,
        out=out,
        name=submission.name,
        ranks=submission.ranks,
        share=submission.share,
        detached=detached,
        priority=submission.priority,
        user=submission.owner,
        rows=roles.given,
    )


def _fitted(
    job: FitJob,
    budget: Budget | None,
    client: Client | None,
    log: LogRequest,
    gang: GangSettings,
    metadata: FitMetadata,
) -> FitResult:
    """Return the result of a fit, of what a search finds where it has a time budget."""
    trials = None
    with listening(job.settings.max_epochs, log) as listener:
        if budget is not None:
            job, trials = searched(job, budget, client, listener)
        result = fit_job(job, client=client, listener=listener, gang=gang, metadata=metadata)
    if trials is None:
        return result
    show_trials(trials)
    return with_trials(result, trials)


def _interrupted(place: str) -> str:
    return f"interrupted; continue with --resume: the progress is in {place}"


@contextmanager
def _progress_kept(place: str) -> Iterator[None]:
    """Name the checkpoint at `place` in an interrupt or the loss of the cluster within the context, if it was begun.

    If nothing was saved, a checkpoint that has begun within the context is removed; so it is where rows or settings
    cannot be used or need more memory, which another run would not change.
    """
    is_new = open_checkpoint(place) is None
    try:
        yield
    except (KeyboardInterrupt, DataError, SpecError, MemoryBudgetError, ClusterError) as error:
        with suppress(StoreError):
            if is_checkpoint(place):
                if isinstance(error, KeyboardInterrupt):
                    raise InterruptedJobError(_interrupted(place)) from None
                if isinstance(error, ClusterError):
                    raise ClusterError(f"{error}; the progress is in {place}: continue with --resume") from error
            elif is_new and not isinstance(error, StoreError):
                remove_begun_checkpoint(place)
        raise


def _detach(job: FitJob, out: str, gang: GangSettings, name: str | None, where: ClusterRequest) -> dict[str, object]:
    if not where.named:
        raise SpecError(
            "got --detach without a running cluster; give --scheduler, since a cluster that this command starts ends "
            "with it"
        )
    with where.client() as client:
        assert client is not None
        handle = submit(job, client, out, gang=gang, name=name)
    say(f"fit {handle.fit} runs detached; its model will be in {handle.out}")
    for verb in ("watch", "status", "logs", "cancel"):
        say(f"  daskkern {verb} {handle.fit} {where.words}")
    return {"fit": handle.fit, "out": handle.out}


def _save(result: FitResult, out: str, place: str, guard: ModelGuard) -> None:
    try:
        save_model(result.model, out, check=partial(guard.check, result.claim))
    except SupersededError:
        raise
    except Exception as error:  # storage back ends raise exceptions of their own
        reason = str(error).removeprefix(f"{out} cannot be written: ")
        raise ModelError(
            f"the fit has ended, but its model could not be written to {out}: {reason}; fix that, and run again with "
            f"--resume, which continues from {place}"
        ) from error
