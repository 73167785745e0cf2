"""Detached fits: they continue without the process that submitted them, driven by a task of the cluster.

The task, the fit's driver, runs :func:`daskkern.training.run.fit.fit` as a client of its own cluster, and writes the
model. The scheduler holds the task. When its worker is lost, Dask runs it again on another one, and it resumes from the
checkpoint; the gang of the lost driver has ended with its connection.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from distributed import Client, Reschedule, Worker, get_worker, secede

from daskkern.cluster.connect.connecting import connected
from daskkern.cluster.connect.membership import NOTICE_S, BrokenOffError, has_left, run_on
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.gang.hanging_workers import equip, usable_workers
from daskkern.cluster.gang.worker_logs import LOG, logged_as
from daskkern.cluster.gang.worker_plugin import await_task
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.cluster.scheduler.detached_drivers import driver_key
from daskkern.cluster.scheduler.fits import CANCELLED, FAILED, FINISHED
from daskkern.cluster.scheduler.lease import check_alone
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.task_placement import tasks_of
from daskkern.cluster.scheduler.worker_list import WorkerList
from daskkern.data.remote.stores import absolute, is_url
from daskkern.errors import ClusterError, DaskkernError, DataError, FitCancelledError, ModelError, SupersededError
from daskkern.models import KernelModel, load_model, save_model
from daskkern.models.write_errors import lacks_room
from daskkern.training.checkpoints.checkpoint import remove_checkpoint_of
from daskkern.training.checkpoints.claims import Claim
from daskkern.training.checkpoints.fingerprints import check_model_place, named
from daskkern.training.checkpoints.model_guard import ModelGuard
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.jobs.handle import FitHandle
from daskkern.training.jobs.install_dashboard import show_fits
from daskkern.training.run.fit import fit_job
from daskkern.training.run.job import FitJob
from daskkern.training.run.on_cluster import within_shards

_LARGEST = 64 << 20
_CONNECT_S = 60.0
_PRIORITY = 20
_ROOM_S, _LONGEST_PAUSE_S = 600.0, 30.0


@dataclass(frozen=True, eq=False)
class Order:
    """The order for a driver: what to fit, how, and where to write it."""

    metadata: FitMetadata
    out: str = field(repr=False)
    """Where the model is written, with the credentials of a URL, which the metadata lack."""
    job: FitJob
    gang: GangSettings
    keeps_checkpoint: bool


def submit(
    job: FitJob, client: Client, out: str, *, gang: GangSettings | None = None, name: str | None = None
) -> FitHandle:
    """Submit a fit to a cluster and return at once. The fit continues when this process ends.

    Parameters
    ----------
    job : FitJob
        Its default checkpoint is ``<out>.checkpoint``, which is removed at the end.
    out : str
        Path or URL where a worker writes the model. An older one is refused, unless there is a checkpoint to resume
        from, or ``job.policy.overwrite`` is true: it is then replaced when the new one is complete.
    gang : GangSettings or None
        As of :func:`daskkern.training.run.fit.fit`.
    name : str or None
        Its name on the dashboard; by default that of the solver.

    Raises
    ------
    DaskkernError
        Errors that can be found before the fit begins.
    """
    gang, policy = gang or GangSettings(), job.policy
    job.check()
    within_shards(gang, job.settings, 0)
    _check_size(job.sources)
    job = job.without_copies()
    out = absolute(out)
    keeps = policy.checkpoint is not None
    place = absolute(policy.checkpoint or f"{out}.checkpoint")
    check_model_place(out, place, overwrite=policy.overwrite, resume=policy.resume)
    job = replace(job, policy=replace(policy, checkpoint=place, hand_back=False))
    metadata = job.metadata(name, out, detached=True).submitted_with(gang.priority, gang.user)
    usable_workers(client, gang, drive)
    equip(client, gang.silence_s)
    _check_place(client, "model", out)
    if keeps:
        _check_place(client, "checkpoint", place)
    show_fits(client)
    check_alone(client, metadata)
    named(job)  # refuses or removes the checkpoint of an earlier fit
    driven = replace(job, policy=replace(job.policy, resume=True, overwrite=False, run=metadata.fit))
    order = Order(metadata, out, driven, gang, keeps)
    key = driver_key(metadata.fit)
    with tasks_of(metadata.fit):
        future = client.submit(drive, order, key=key, pure=False, retries=0, priority=_PRIORITY)
    try:
        problem = ask_fits(client, "hold", fields=asdict(metadata), task=key)
        if problem:
            raise ClusterError(problem)
    finally:
        future.release()
    return FitHandle(metadata.fit, str(client.scheduler_info(n_workers=0)["address"]), out, client)


def drive(order: Order) -> None:
    """Run a detached fit to its end, and report how it ended. The body of its task."""
    secede()
    worker = get_worker()
    task = str(worker.get_current_task())
    # The scheduler numbers the runs of tasks. A worker that was given up meanwhile knows its tasks no longer.
    state = worker.state.tasks.get(task)
    run = -1 if state is None else state.run_id
    await_task(worker, order.gang.drain_s)
    with logged_as(order.metadata.fit, "driver", worker.address):
        LOG.info("the driver has begun; the model will be in %s", order.metadata.out)
        _drive(worker, order, task, run)


def _drive(worker: Worker, order: Order, task: str, run: int) -> None:
    address, security = worker.scheduler.address, worker.security

    def connect() -> Client:
        return Client(address, security=security, timeout=_CONNECT_S, set_as_default=False)

    with connected(connect) as client:
        try:
            if not ask_fits(client, "drive", fields=asdict(order.metadata), task=task, run=run, asker=client.id):
                LOG.warning("the scheduler has given this driver up, and another one has followed; it ends")
            elif _is_done(order):
                _finish(order, client, None, interrupted=False)
            else:
                _run(order, client)
        except Reschedule:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if _moves(order, client):
                raise Reschedule from error
            _report(order, client, error)


def _report(order: Order, client: Client, error: BaseException) -> None:
    """Report why a fit has no model."""
    LOG.error("the fit has no model", exc_info=error)
    if isinstance(error, FitCancelledError | KeyboardInterrupt):
        _tell(client, order, CANCELLED, "it was cancelled before there was a model")
    else:
        _tell(
            client,
            order,
            FAILED,
            str(error) if isinstance(error, DaskkernError) else f"{type(error).__name__}: {error}",
        )


def _moves(order: Order, client: Client) -> bool:
    """Return whether the fit continues on another worker, because that of this driver is about to leave."""
    return _stop_request(order, client) == "move"


def _stop_request(order: Order, client: Client) -> str:
    """Return how the fit was requested to end; "" where it was not, or the scheduler does not answer."""
    with suppress(ClusterError):
        return str(ask_fits(client, "asked_to_stop", fit=order.metadata.fit, asker=client.id))
    return ""


def _run(order: Order, client: Client) -> None:
    guard = ModelGuard.of(order.out)
    result = fit_job(order.job, client=client, gang=order.gang, metadata=order.metadata)
    if result.finished.reason == "interrupted" and _moves(order, client):
        raise Reschedule
    claim = _save(result.model, order, client, guard, result.claim)
    _finish(order, client, claim, interrupted=result.finished.reason == "interrupted")


def _save(model: KernelModel, order: Order, client: Client, guard: ModelGuard, claim: Claim | None) -> Claim | None:
    """Write the model, and retry for a while where the disk is full: others may make room. Return the last claim.

    A driver of this fit that was given up may have claimed the checkpoint after this one, and not know it yet.
    """
    until, pause_s = time.monotonic() + _ROOM_S, 1.0
    while True:
        try:
            save_model(model, order.out, check=partial(guard.check, claim))
        except SupersededError:
            if claim is None or ask_fits(client, "given_up", fit=order.metadata.fit, asker=client.id):
                raise
            with suppress(FileNotFoundError):
                claim = claim.renewed()
                continue
            raise
        except ModelError as error:
            if not lacks_room(error.__cause__) or time.monotonic() > until:
                raise
            LOG.warning("no space to write the model (%s); trying again in %g s", error, pause_s)
        else:
            return claim
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        request = _stop_request(order, client)
        if request == "move":
            raise Reschedule
        if request == "abort":
            raise FitCancelledError("the fit was cancelled before its model was written")


def _finish(order: Order, client: Client, claim: Claim | None, *, interrupted: bool) -> None:
    try:
        if not order.keeps_checkpoint and not interrupted:
            assert order.job.policy.checkpoint is not None
            remove_checkpoint_of(order.job.policy.checkpoint, order.metadata.fit, claim)
    finally:  # reported last, so that the files no longer change then
        _tell(client, order, FINISHED, "")


def _tell(client: Client, order: Order, state: str, error: str) -> None:
    with suppress(ClusterError):
        ask_fits(client, "ended", fit=order.metadata.fit, state=state, error=error, asker=client.id)


def _is_done(order: Order) -> bool:
    """Return whether the model is written: the worker of the task may have been lost right after that."""
    try:
        return bool(load_model(order.out).provenance.get("fit") == order.metadata.fit)
    except ModelError:
        return False


def _check_size(sources: Sequence[RowSource]) -> None:
    """Refuse arrays that are too large to travel with a task."""
    size = max(source.local_bytes for source in sources)
    if size > _LARGEST:
        raise DataError(
            f"got {size / 1e6:.0f} MB of arrays of this process for a detached fit, which may outlive the process; "
            "write them to a store that the workers can reach, and pass its path"
        )


def _check_place(client: Client, what: str, place: str) -> None:
    """Raise ClusterError for a folder that is not writable or not shared by the workers. URLs are not tried."""
    if is_url(place):
        return
    for worker, problem in _tried(client, place).items():
        if problem:
            raise ClusterError(
                f"worker {worker} cannot write the {what} to {place}: {problem}; give a place that all workers share"
            )


def _tried(client: Client, place: str) -> dict[str, str]:
    """Return the problem that each worker has with `place`, "" for none; repeated when a worker leaves meanwhile."""
    probe = os.path.join(os.path.dirname(place), f".daskkern-probe-{uuid.uuid4().hex[:8]}")
    for last in (False, False, True):
        workers = list(WorkerList(client).alive())
        try:
            found = run_on(client, workers[:1], _write_probe, probe) | run_on(client, workers[1:], _see_probe, probe)
            run_on(client, workers[:1], _remove_probe, probe)
        except BrokenOffError:
            if last or not has_left(client, workers, NOTICE_S):
                raise
        else:
            return found
    raise AssertionError("unreachable")


def _write_probe(probe: str) -> str:
    try:
        with open(probe, "w"):
            return ""
    except OSError as error:
        return str(error.strerror)


def _see_probe(probe: str) -> str:
    return "" if os.path.exists(probe) else "it does not see a file that another worker wrote there"


def _remove_probe(probe: str) -> None:
    with suppress(OSError):
        os.remove(probe)
