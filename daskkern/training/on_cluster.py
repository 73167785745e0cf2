"""A fit on the workers of a cluster: what they are asked before, what they are given, and again when they change."""

import itertools
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
import numpy as np
from distributed import Client, get_client, get_worker, secede

from daskkern.backend.communicator import Communicator
from daskkern.backend.concurrency import compute_threads
from daskkern.backend.namespace import namespace_for
from daskkern.cluster.desk import Desk, Regroup
from daskkern.cluster.fits import FitCard
from daskkern.cluster.gang import GangSettings, run_gang
from daskkern.cluster.lease import Lease, admitted
from daskkern.cluster.membership import ask_scheduler, choose_workers, live_workers
from daskkern.errors import ClusterError, DaskkernError, FitCancelledError
from daskkern.events import Listener
from daskkern.training.calibration import calibrate_workers
from daskkern.training.features import features_for
from daskkern.training.keeper import Safety
from daskkern.training.keeping import disk_room, needs_rates, with_blocks
from daskkern.training.memory import LIMIT_SHARE, MemoryPlan, available_memory, device_memory
from daskkern.training.outlook import PreparedSummary, check_before, holds_out, plan_for, summarise
from daskkern.training.prepare import Prepared, prepare
from daskkern.training.rank import RankResult, RankTask, run_rank
from daskkern.training.settings import FitSettings
from daskkern.training.sources import RemoteValue, Source, StoreSource

_COPIES = 3 * 3  # of the state's arrays (iterate, mean, best), and of each while a commit is made
_KEPT_SHARE = 0.05
_LOOK_S = 0.5
_AGAIN_S = 3600.0
"""How long the set-up may take when it must be made again."""


def fit_on(
    client: Client,
    source: Source,
    settings: FitSettings,
    validation: Source | None,
    listener: Listener,
    gang: GangSettings,
    safety: Safety,
    card: FitCard,
) -> tuple[list[RankResult], Prepared]:
    """Fit on the workers of a cluster, one rank each, when it is this fit's turn. See
    :func:`daskkern.training.fit.fit`."""
    if settings.solver.deals == "nothing":
        gang = replace(gang, n_ranks=1)
    choose_workers(client, gang.n_ranks, gang.workers, rank_main)
    asked = (gang.n_ranks, gang.workers, gang.share_memory, gang.idle_s)
    with admitted(client, card, *asked, listener) as lease:
        return _fit_admitted(client, source, settings, validation, listener, gang, safety, lease)


def _fit_admitted(
    client: Client,
    source: Source,
    settings: FitSettings,
    validation: Source | None,
    listener: Listener,
    gang: GangSettings,
    safety: Safety,
    lease: Lease,
) -> tuple[list[RankResult], Prepared]:
    workers = lease.addresses
    source, keep = source.for_cluster(client)
    validation, keep_too = (None, ()) if validation is None else validation.for_cluster(client)
    _check_reach(client, [source, *([] if validation is None else [validation])], settings, workers)
    rooms = _rooms(client, settings, workers, gang.share_memory)
    _check_before(source, settings, holds_out(settings, validation), rooms)
    ticket = client.submit(
        _prepare_on_cluster,
        source,
        settings,
        holds_out(settings, validation),
        key=_key("prepare"),
        pure=False,
        workers=None if gang.workers is None else list(workers),  # pinned, it could not run again when they are gone
        retries=0,
    )
    try:
        prepared: Prepared = _outcome(client, client.submit(_unwrap, ticket, pure=False), lease.card)
        summary = summarise(prepared, settings)
        plan = _cluster_plan(client, summary, source, settings, workers, rooms)
        with client.as_current(), features_for(source, settings, prepared) as features:
            whole = RemoteValue(str(ticket.key))
            safety = replace(safety, in_memory=gang.retries > 0 and _can_keep(summary, settings, plan))
            task = RankTask(source, settings, whole, validation, plan, 0, features, safety, summary)
            results = run_gang(
                client,
                rank_main,
                task,
                name=settings.solver.name,
                settings=gang,
                listener=listener,
                reform=partial(reform, share_memory=gang.share_memory),
                lease=lease,
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


def _outcome(client: Client, future: Any, card: FitCard) -> Any:
    """Return what the set-up gave, unless somebody cancels the fit before."""
    try:
        while True:
            with suppress(TimeoutError):
                return future.result(timeout=_LOOK_S)
            if ask_scheduler(client, "daskkern_asked_to_stop", fit=card.fit):
                raise FitCancelledError(f"fit '{card.name}' ({card.fit}) was cancelled; nothing was written")
    finally:
        future.release()


def rank_main(comm: Communicator, task: RankTask, desk: Desk) -> RankResult | Regroup:
    """Run a rank on a worker, on the worker's threads."""
    threads = max(1, get_worker().state.nthreads)
    with compute_threads(threads):
        return run_rank(comm, replace(task, threads=threads), desk)


def reform(client: Client, workers: tuple[str, ...], task: RankTask, share_memory: int | None = None) -> RankTask:
    """Return the task for other workers, whose memory decides on tiles and kept blocks anew.

    With as many workers as before the plan stays, where it fits: the same plan gives the same bits.

    Raises
    ------
    MemoryBudgetError
        When a worker has too little memory.
    ClusterError
        When a worker cannot open the data.
    """
    assert task.summary is not None
    if isinstance(task.prepared, RemoteValue):
        _wait_for(client, task.prepared.key)
    sources = [task.source, *([] if task.validation is None else [task.validation])]
    _check_reach(client, sources, task.settings, workers)
    rooms = _rooms(client, task.settings, workers, share_memory)
    before = task.memory
    fits = all(
        room.budget >= before.total + before.kept and room.disk >= before.disk and room.device_budget is None
        for room in rooms
    )
    if before.sizes is not None and before.sizes.ranks == len(workers) and fits:
        return task
    plan = _tightest(task.summary, task.source, task.settings, len(workers), rooms)
    plan = with_blocks(plan, task.settings, min(room.disk for room in rooms), None)
    plan.check()
    return replace(task, memory=plan)


def _wait_for(client: Client, key: str) -> None:
    """Wait until a worker has the value of `key`: it may have gone with its worker, and be computed again."""
    deadline = time.monotonic() + _AGAIN_S
    while time.monotonic() < deadline:
        holders = ask_scheduler(client, "who_has", keys=[key]).get(key, ())
        if set(holders) & live_workers(client).keys():
            return
        time.sleep(_LOOK_S)
    raise ClusterError(
        f"the set-up of the fit was lost with its worker, and not made again in {_AGAIN_S:g} s; fit again"
    )


def _can_keep(summary: PreparedSummary, settings: FitSettings, plan: MemoryPlan) -> bool:
    """Return whether every worker has room for the whole state, three times while it is gathered."""
    return _COPIES * summary.p * summary.n_outputs * np.dtype(settings.dtype).itemsize <= _KEPT_SHARE * plan.budget


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


def _rooms(client: Client, settings: FitSettings, workers: Sequence[str], share_memory: int | None) -> list[_Room]:
    """Ask the workers for what each may plan with; those of one host share what is free there."""
    known = live_workers(client)
    gone = [worker for worker in workers if worker not in known]
    if gone:
        raise ClusterError(f"worker {gone[0]} left the cluster while its memory was asked for; fit again")
    hosts = [known[worker].get("host", worker) for worker in workers]
    free = client.run(available_memory, workers=list(workers))
    devices = client.run(device_memory, settings.device, workers=list(workers))
    rooms = []
    for worker, host in zip(workers, hosts, strict=True):
        limit = int(known[worker].get("memory_limit") or 0)
        share = free[worker] // hosts.count(host)
        budget = settings.memory_budget or (min(int(LIMIT_SHARE * limit), share) if limit else share)
        budget = min(budget, share_memory or budget)
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
    tightest = _tightest(summary, source, settings, len(workers), rooms)
    tightest.check()
    disk = min(room.disk for room in rooms)
    rates = None
    if tightest.sizes is not None and needs_rates(tightest, settings, disk):
        rates = calibrate_workers(client, workers, source, settings, tightest.sizes, True)
    decided = with_blocks(tightest, settings, disk, rates)
    decided.check()
    return decided


def _tightest(
    summary: PreparedSummary, source: Source, settings: FitSettings, ranks: int, rooms: Sequence[_Room]
) -> MemoryPlan:
    plans = [
        plan_for(summary, source, settings, ranks, room.threads, room.budget, room.device_budget) for room in rooms
    ]
    return min(plans, key=lambda plan: (plan.budget, plan.device_budget, plan.kept))
