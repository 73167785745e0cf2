"""Fit a model: in this process, or on the workers of a Dask cluster. The place where all rooms meet."""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import Any

import dask
import numpy as np
from distributed import Client, get_client, get_worker, secede

from daskkern.arrays import IntArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.concurrency import compute_threads, cpu_count
from daskkern.backend.namespace import namespace_for
from daskkern.cluster.gang import GangSettings, run_gang
from daskkern.cluster.membership import choose_workers, live_workers
from daskkern.data.csr import gather
from daskkern.errors import ClusterError, DaskkernError
from daskkern.events import EpochFinished, Event, FitFinished, Listener, silent
from daskkern.models import KernelModel
from daskkern.solvers import NystromSGD
from daskkern.training.calibration import calibrate, calibrate_workers
from daskkern.training.features import is_stored, stored_features
from daskkern.training.keeping import disk_room, needs_rates, with_blocks
from daskkern.training.memory import LIMIT_SHARE, MemoryPlan, available_memory, device_memory
from daskkern.training.outlook import PreparedSummary, check, check_before, holds_out, plan_for, summarise
from daskkern.training.prepare import Prepared, prepare
from daskkern.training.rank import RankResult, RankTask, run_rank
from daskkern.training.settings import FitSettings
from daskkern.training.sources import RemoteValue, Source, StoreSource
from daskkern.training.validation import check_comparable


@dataclass(frozen=True, eq=False)
class FitResult:
    """A fitted model, the rows that its points are (None: the user's own), epoch by epoch, and why it ended."""

    model: KernelModel
    indices: IntArray | None
    epochs: tuple[EpochFinished, ...]
    finished: FitFinished


def fit(
    source: Source,
    settings: FitSettings,
    *,
    client: Client | None = None,
    validation: Source | None = None,
    listener: Listener = silent,
    gang: GangSettings | None = None,
) -> FitResult:
    """Fit a model to `source`.

    Parameters
    ----------
    source, settings
        What to fit to, and how.
    client : Client or None
        The cluster whose workers hold the model, one rank each; None runs in this process on all its cores.
    validation : Source or None
        Rows to watch, and for early stopping; must share classes and scaling with `source`.
    listener : callable
        Told of every event, in this thread.
    gang : GangSettings or None
        Which workers, and how long to wait for them.

    Raises
    ------
    DaskkernError
        Whatever is wrong, in one sentence. Nothing is left behind.
    KeyboardInterrupt
        Only before there is a model: later an interrupt ends the fit with the model so far (reason "interrupted").
    """
    check(settings, source)
    if validation is not None:
        check_comparable(validation, source)
    history = _History(listener)
    run = _local if client is None else _distributed
    results, prepared = run(source, settings, validation, history, client, gang)
    if history.finished.reason == "interrupted" and not any(result.coef.any() for result in results):
        raise KeyboardInterrupt  # before the first projection: there is no model so far
    model = _model(source, settings, results, prepared, history)
    return FitResult(model, prepared.row_numbers(), tuple(history.epochs), history.finished)


class _History:
    """Keeps epochs and the end on the way to the listener."""

    def __init__(self, listener: Listener) -> None:
        self.epochs: list[EpochFinished] = []
        self.finished = FitFinished("max_epochs", 0, 0.0)
        self._listener = listener

    def __call__(self, event: Event) -> None:
        if isinstance(event, EpochFinished):
            self.epochs.append(event)
        elif isinstance(event, FitFinished):
            self.finished = event
        self._listener(event)


def _local(
    source: Source,
    settings: FitSettings,
    validation: Source | None,
    listener: Listener,
    client: Client | None,
    gang: GangSettings | None,
) -> tuple[list[RankResult], Prepared]:
    del client, gang
    namespace_for(settings.device)  # a device that is not there is refused before the work
    threads, budget = cpu_count(), settings.memory_budget or available_memory()
    if namespace_for(settings.device) is np:
        check_before(source, settings, holds_out(settings, validation), 1, threads, budget)
    prepared = prepare(source, settings, holds_out(settings, validation))
    plan = plan_for(summarise(prepared, settings), source, settings, 1, threads, budget, device_memory(settings.device))
    plan.check()
    room = disk_room(settings)
    rates = None
    if plan.sizes is not None and needs_rates(plan, settings, room):
        rates = calibrate(source, settings, plan.sizes, 1, True)
    plan = with_blocks(plan, settings, room, rates)
    plan.check()
    with compute_threads(threads), _features(source, settings, prepared) as features, _interrupts() as pressed:
        task = RankTask(source, settings, prepared, validation, plan, threads, features)
        result = run_rank(SerialCommunicator(), task, listener, pressed)
    return [result], prepared


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C was pressed since. The first press only asks; a second one interrupts at once."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set  # only the main thread may set handlers, and only it is interrupted
        return
    previous = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        if pressed.is_set() and callable(previous):
            previous(number, frame)
        pressed.set()

    signal.signal(signal.SIGINT, ask)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _features(source: Source, settings: FitSettings, prepared: Prepared) -> Iterator[str | None]:
    if isinstance(settings.solver, NystromSGD) and is_stored(settings.solver, prepared, settings):
        with stored_features(source, settings, prepared) as path:
            yield path
    else:
        yield None


def _distributed(
    source: Source,
    settings: FitSettings,
    validation: Source | None,
    listener: Listener,
    client: Client | None,
    gang: GangSettings | None,
) -> tuple[list[RankResult], Prepared]:
    assert client is not None
    gang = gang or GangSettings()
    workers = choose_workers(client, gang.n_ranks, gang.workers, rank_main)
    source, keep = source.for_cluster(client)
    validation, keep_too = (None, ()) if validation is None else validation.for_cluster(client)
    _check_reach(client, [source, *([] if validation is None else [validation])], settings, workers)
    rooms = _rooms(client, settings, workers)
    _check_before(source, settings, holds_out(settings, validation), rooms)
    ticket = client.submit(
        _prepare_on_cluster,
        source,
        settings,
        holds_out(settings, validation),
        key=_key("prepare"),
        pure=False,
        workers=list(workers),
        retries=0,
    )
    try:
        prepared: Prepared = _outcome(client.submit(_unwrap, ticket, pure=False))
        summary = summarise(prepared, settings)
        plan = _cluster_plan(client, summary, source, settings, workers, rooms)
        with client.as_current(), _features(source, settings, prepared) as features:
            task = RankTask(source, settings, RemoteValue(str(ticket.key)), validation, plan, 0, features)
            results = run_gang(
                client,
                rank_main,
                task,
                name=settings.solver.name,
                settings=replace(gang, workers=workers),
                listener=listener,
            )
    finally:
        for future in (ticket, *keep, *keep_too):
            future.release()
    return results, prepared


_COUNTER = itertools.count()


def _key(stage: str) -> str:
    return f"daskkern_{stage}-{time.time_ns():x}-{next(_COUNTER)}"


def _prepare_on_cluster(source: Source, settings: FitSettings, held_out: bool) -> Any:
    """Run :func:`prepare` in a task that left the worker's pool, with Dask arrays computed by the whole cluster.

    Not ``worker_client``, which rejoins the pool at its end and waits for a free thread.
    """
    client = get_client()
    secede()
    # The subsample that K_SS is made of travels in the graph once a block row: a few megabytes, and meant.
    quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    with quiet, client.as_current():
        try:
            return prepare(source, settings, held_out)
        except DaskkernError as error:
            return error  # Dask would wrap the traceback of a task around it


def _unwrap(outcome: Any) -> Any:
    if isinstance(outcome, DaskkernError):
        raise outcome
    return outcome


def _outcome(future: Any) -> Any:
    try:
        return future.result()
    finally:
        future.release()


def rank_main(comm: Communicator, task: RankTask, emit: Listener, should_stop: Any) -> RankResult:
    """Run a rank on a worker, on the worker's threads."""
    threads = max(1, get_worker().state.nthreads)
    with compute_threads(threads):
        return run_rank(comm, replace(task, threads=threads), emit, should_stop)


def _check_reach(client: Client, sources: Sequence[Source], settings: FitSettings, workers: Sequence[str]) -> None:
    """Refuse a source that a worker cannot open, and a device that it does not have, naming the worker."""
    for source in sources:
        for worker, problem in client.run(_probe, source, settings, workers=list(workers)).items():
            if problem is not None:
                raise ClusterError(
                    f"worker {worker} cannot run the fit: {problem}; give a path or URL that every worker can reach, "
                    "and a device that it has"
                )


def _probe(source: Source, settings: FitSettings) -> str | None:
    try:
        namespace_for(settings.device)
        if isinstance(source, StoreSource):
            source.open(settings.dtype)
    except Exception as error:
        return str(error)
    return None


@dataclass(frozen=True)
class _Room:
    """What one worker may plan with."""

    threads: int
    budget: int
    device_budget: int | None
    disk: int


def _rooms(client: Client, settings: FitSettings, workers: Sequence[str]) -> list[_Room]:
    """Ask the workers for what each may plan with; those of one host share what is free there."""
    known = live_workers(client)
    hosts = [known[worker].get("host", worker) for worker in workers]
    free = client.run(available_memory, workers=list(workers))
    devices = client.run(device_memory, settings.device, workers=list(workers))
    rooms = []
    for worker, host in zip(workers, hosts, strict=True):
        limit = int(known[worker].get("memory_limit") or 0)
        share = free[worker] // hosts.count(host)
        budget = settings.memory_budget or (min(int(LIMIT_SHARE * limit), share) if limit else share)
        threads = int(known[worker].get("nthreads", 1))
        rooms.append(_Room(threads, budget, devices[worker], 0))
    disks = client.run(disk_room, settings, max(hosts.count(host) for host in hosts), workers=list(workers))
    return [replace(room, disk=disks[worker]) for room, worker in zip(rooms, workers, strict=True)]


def _check_before(source: Source, settings: FitSettings, held_out: bool, rooms: Sequence[_Room]) -> None:
    """Refuse a fit that cannot fit, before the set-up begins."""
    if all(room.device_budget is None for room in rooms):
        least = min(rooms, key=lambda room: room.budget)
        check_before(source, settings, held_out, len(rooms), least.threads, least.budget)


def _cluster_plan(
    client: Client,
    summary: PreparedSummary,
    source: Source,
    settings: FitSettings,
    workers: Sequence[str],
    rooms: Sequence[_Room],
) -> MemoryPlan:
    """Return the plan that every rank follows: the tightest of all workers'."""
    plans = [
        plan_for(summary, source, settings, len(workers), room.threads, room.budget, room.device_budget)
        for room in rooms
    ]
    tightest = min(plans, key=lambda plan: (plan.budget, plan.device_budget, plan.kept))
    tightest.check()
    disk = min(room.disk for room in rooms)
    rates = None
    if tightest.sizes is not None and needs_rates(tightest, settings, disk):
        rates = calibrate_workers(client, workers, source, settings, tightest.sizes, True)
    decided = with_blocks(tightest, settings, disk, rates)
    decided.check()
    return decided


def _json(record: dict[str, Any]) -> dict[str, Any]:
    """Return `record` with None for NaN, which JSON does not have."""
    return {key: None if value != value else value for key, value in record.items()}


def _model(
    source: Source, settings: FitSettings, results: Sequence[RankResult], prepared: Prepared, history: _History
) -> KernelModel:
    targets, info = prepared.targets, source.info
    p = prepared.basis.n_columns
    points = gather([result.points for result in results], [result.ids for result in results])
    coef = np.empty((p, targets.n_outputs), settings.dtype)
    for result in results:
        coef[result.ids] = result.coef
    return KernelModel(
        kernel=prepared.basis.kernel,
        points=points,
        coef=coef,
        loss=settings.loss.name,
        task="classification" if targets.n_classes else "regression",
        classes=info.classes,
        scaling=info.scaling,
        target_shift=targets.shift,
        target_scale=targets.scale,
        feature_names=info.feature_names,
        single_target=info.single_target,
        provenance={
            "settings": settings.summary(),
            "history": [_json(asdict(epoch)) for epoch in history.epochs],
            "reason": history.finished.reason,
        },
    )
