"""Fitting a model, in this process or on the workers of a Dask cluster."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.communicator import SerialCommunicator
from daskkern.backend.concurrency import compute_threads, cpu_count
from daskkern.backend.namespace import namespace_for
from daskkern.cluster.connect.clients import ClusterLike, client_of
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.cluster.scheduler.lease import check_alone
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.data.rows.csr import gather
from daskkern.events import INTERRUPTED, EpochFinished, EpochTimed, FitFinished, Listener, silent
from daskkern.kernels import Mapped
from daskkern.models import KernelModel
from daskkern.monitor.environment import environment
from daskkern.monitor.history import History
from daskkern.monitor.listeners import one_at_a_time
from daskkern.monitor.recorder import Recorder
from daskkern.training.calibration.calibrating import calibrated
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy, Saved
from daskkern.training.checkpoints.claims import Claim
from daskkern.training.checkpoints.fingerprints import named, with_settings
from daskkern.training.checkpoints.partial_fit import PartialFitState, can_go_on, next_run
from daskkern.training.feeding.block_cache_policy import can_keep, disk_room, needs_rates, with_blocks
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.stored_features import features_for
from daskkern.training.planning.device_choices import with_batches_of_devices
from daskkern.training.planning.measured_rates import calibrate
from daskkern.training.planning.memory_by_columns import budget_of_shard
from daskkern.training.planning.memory_plan import device_memory, device_size, memory_here
from daskkern.training.planning.planner import check_before, plan_for, summarise
from daskkern.training.planning.resources import WorkerResources
from daskkern.training.run.best_epoch import used_columns
from daskkern.training.run.job import FitJob
from daskkern.training.run.on_cluster import fit_on
from daskkern.training.run.rank import FitRankResult, run_rank
from daskkern.training.run.rank_task import RankTask
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare
from daskkern.training.setup.prepared import Prepared

_NOTIFY_S = 5.0


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a fit: the model, the rows of its points (None: the user's own), its epochs, and why it ended.

    `saved` is the state that another fit can resume from, where :class:`CheckpointPolicy` requests it, and
    `partial_fit_state` the state to continue from with other rows, where there can be one. `times` says where the time
    of each epoch went. `history` is all of that as a table, which the model keeps. `claim` is that of the fit on its
    checkpoint.
    """

    model: KernelModel
    indices: IntArray | None
    epochs: tuple[EpochFinished, ...]
    finished: FitFinished
    saved: Saved | None = None
    times: tuple[EpochTimed, ...] = ()
    partial_fit_state: PartialFitState | None = None
    history: History = field(default_factory=History)
    claim: Claim | None = None


def fit(
    source: RowSource,
    settings: FitSettings,
    *,
    client: ClusterLike = None,
    validation: RowSource | None = None,
    listener: Listener = silent,
    gang: GangSettings | None = None,
    policy: CheckpointPolicy | None = None,
    metadata: FitMetadata | None = None,
    earlier: PartialFitState | None = None,
) -> FitResult:
    """Fit a model to `source`.

    Parameters
    ----------
    source, settings
        The training rows, and all that defines the fit.
    client : Client, address, path, cluster or None
        The cluster whose workers hold the model, one rank each, as :func:`daskkern.cluster.connect.clients.client_of`
        takes it; None runs in this process on all its cores.
    validation : RowSource or None
        Rows to watch, and for early stopping; must share classes and scaling with `source`.
    listener : callable
        Called with every event, one after the other; with that of Ctrl-C at once, in a separate thread.
    gang : GangSettings or None
        Which workers, how long to wait for them, and what to do when some are lost.
    policy : CheckpointPolicy or None
        Where a checkpoint is written, and whether the fit begins with it.
    metadata : FitMetadata or None
        Its entry in the registry of fits on the scheduler.
    earlier : PartialFitState or None
        The state of a fit on other rows, which this one continues for one epoch.

    Raises
    ------
    DaskkernError
        For all errors, in one sentence. No files are left behind.
    KeyboardInterrupt
        Only before there is a model: later an interrupt ends the fit with the model so far (reason "interrupted").
    """
    job = FitJob(source, settings, validation, policy or CheckpointPolicy())
    return fit_job(job, client=client, listener=listener, gang=gang, metadata=metadata, earlier=earlier)


def fit_job(
    job: FitJob,
    *,
    client: ClusterLike = None,
    listener: Listener = silent,
    gang: GangSettings | None = None,
    metadata: FitMetadata | None = None,
    earlier: PartialFitState | None = None,
) -> FitResult:
    """Fit the model of a job. Parameters and errors are as for :func:`fit`."""
    job.check()
    requested = job.settings
    job = (job.without_copies() if earlier is None else next_run(job, earlier)).kept_on_disk()
    numbers_of = job.source.original_numbers
    with client_of(client) as connected:
        if connected is not None and metadata is not None:
            check_alone(connected, metadata)
        if earlier is None:
            job = named(job)
        history = Recorder(listener, job.policy.saved_epochs())
        if connected is None:
            job, results, prepared = _local(job, history)
        else:
            metadata = metadata or job.metadata()
            job, results, prepared = fit_on(connected, job, history, gang or GangSettings(), metadata)
    first = results[0]
    history.complete(first.history, first.reason, first.epochs, first.best_epoch, first.note)
    if history.finished.reason == "interrupted" and not any(result.coef.any() for result in results):
        raise KeyboardInterrupt  # before the first projection: there is no model so far
    if first.offset is not None:
        prepared = prepared.with_offset(first.offset, labelled=job.settings.multilabel)
    kept = history.history(sum(stage.seconds for stage in prepared.stages))
    used = None
    if job.settings.solver.drops_zeros:
        used = used_columns(gather([result.coef for result in results], [result.ids for result in results]))
    model = _model(job, results, prepared, kept, used)
    model = calibrated(model, prepared, job.scaled(prepared.scaling), used)
    if metadata is not None and connected is not None:
        model = replace(model, provenance={**model.provenance, "fit": metadata.fit})
    commits = [result.saved for result in results if result.saved is not None]
    saved = Saved(commits[0], job.policy.fingerprint) if commits else None
    epochs, times = tuple(history.epochs), tuple(history.times)
    onwards, numbers = None, prepared.row_numbers()
    indices = numbers if numbers is None or used is None else numbers[used]
    if saved is not None and job.policy.carry and can_go_on(requested):
        points = _points(results) if isinstance(prepared.basis.kernel, Mapped) else model.points
        onwards = PartialFitState(_onwards(prepared, job.before, points), saved.data, job.source.info, requested)
    return FitResult(
        model,
        None if indices is None else numbers_of(indices),
        epochs,
        history.finished,
        saved,
        times,
        onwards,
        kept,
        job.policy.claim,
    )


def _local(job: FitJob, listener: Listener) -> tuple[FitJob, list[FitRankResult], Prepared]:
    settings = job.settings
    namespace_for(settings.device)  # a missing device is refused before any work
    shards = settings.shards(1)
    threads, budget = cpu_count(), budget_of_shard(settings.memory_budget or memory_here(), shards)
    if namespace_for(settings.device) is np:
        check_before(job.source, settings, job.holds_out, shards, max(1, threads // shards), budget)
    device = device_memory(settings.device)
    mine = WorkerResources(threads, budget, device, 0, device_size=device_size(settings.device))
    begun = job = with_settings(job, with_batches_of_devices(settings, job.source, [mine]))
    settings = job.settings
    prepared = prepare(job.source, settings, job.holds_out, job.before)
    job = job.scaled(prepared.scaling)
    summary = summarise(prepared, settings)
    device = None if device is None else device // shards
    plan = plan_for(summary, job.source, settings, shards, max(1, threads // shards), budget, device)
    plan.check()
    carry = job.policy.carry and can_keep(plan, settings, summary.p, summary.n_outputs)
    job = replace(job, policy=replace(job.policy, carry=carry))
    room = disk_room(settings) // shards
    rates = None
    if plan.sizes is not None and needs_rates(plan, settings, room):
        rates = calibrate(job.source, settings, plan.sizes, shards, not plan.kept)
    plan = with_blocks(plan, settings, room, rates)
    plan.check()
    listener = one_at_a_time(listener)
    with (
        compute_threads(threads),
        features_for(job.source, settings, prepared) as features,
        _interrupts(listener) as pressed,
    ):
        task = RankTask(job, prepared, plan, threads, features)
        result = run_rank(SerialCommunicator(), task, RankContext(listener, pressed, report=listener))
    assert isinstance(result, FitRankResult)  # without a cluster nothing requests regrouping
    return begun, [result], prepared


@contextmanager
def _interrupts(listener: Listener) -> Iterator[Callable[[], bool]]:
    """Yield a call that returns whether Ctrl-C was pressed. The first press requests a stop, a second interrupts."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set  # only the main thread may set handlers, and only it is interrupted
        return
    previous = signal.getsignal(signal.SIGINT)
    # In a separate thread: the signal may interrupt the listener in this one, in the middle of a line.
    notifier = threading.Thread(target=_notify, args=(listener,), name="daskkern-interrupt", daemon=True)

    def ask(number: int, frame: FrameType | None) -> None:
        if not pressed.is_set():
            pressed.set()
            notifier.start()
        elif callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGINT, ask)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
        if pressed.is_set():
            notifier.join(_NOTIFY_S)


def _notify(listener: Listener) -> None:
    with suppress(Exception):  # a failing listener fails again at the next event, which ends the fit
        listener(INTERRUPTED)


def _points(results: Sequence[FitRankResult]) -> Any:
    return gather([result.points for result in results], [result.ids for result in results])


def _onwards(prepared: Prepared, before: Prepared | None, points: Any) -> Prepared:
    """Return the set-up for other rows: points in place of row numbers, and the first plan, whose batches are full."""
    return replace(prepared, plan=(before or prepared).plan, points=points, indices=None, stages=(), held=None)


def _model(
    job: FitJob, results: Sequence[FitRankResult], prepared: Prepared, history: History, used: IntArray | None
) -> KernelModel:
    settings, targets, info = replace(job.settings, alpha=prepared.alpha), prepared.targets, job.source.info
    p, is_labelled = prepared.basis.n_columns, settings.multilabel or targets.n_classes > 0
    points = _points(results)
    coef = np.empty((p, targets.n_outputs * settings.solver.scores_each), settings.dtype)
    for result in results:
        coef[result.ids] = result.coef
    if used is not None:
        points, coef = points[used], coef[used]
    kernel = prepared.basis.kernel
    if isinstance(kernel, Mapped):
        points, coef, kernel = kernel.centres, points.T @ coef, kernel.kernel
    return KernelModel(
        kernel=kernel,
        points=points,
        coef=coef,
        loss=settings.loss.spec(),
        task="multilabel" if settings.multilabel else "classification" if targets.n_classes else "regression",
        classes=info.classes,
        scaling=prepared.scaling,
        target_shift=targets.constant if is_labelled else targets.model_shift,
        target_scale=None if is_labelled else targets.of_outputs(targets.scale),
        feature_names=info.feature_names,
        target_names=info.target_names,
        encoding=info.encoding,
        single_target=info.single_target,
        scores_each=settings.solver.scores_each,
        provenance={
            "settings": settings.summary(),
            **history.to_json(),
            "reason": "" if history.finished is None else history.finished.reason,
            "data": job.source.description() | {"scaling": prepared.scaling.kind},
            "environment": environment(),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )
