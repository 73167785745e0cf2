"""A fit on the workers of a cluster: checks, set-up, plan and gang, and new plans when workers change."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
from dask.base import annotate, get_annotations
from distributed import Client, Future, get_worker, secede, span

from daskkern.backend.communicator import Communicator
from daskkern.backend.concurrency import compute_threads
from daskkern.backend.current import current
from daskkern.backend.task_names import task_name
from daskkern.cluster.connect.connecting import own_client
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.gang.hanging_workers import removing_hung, usable_workers
from daskkern.cluster.gang.rank_context import RankContext, Regroup
from daskkern.cluster.scheduler.lease import GivenUpError, Lease, admitted, check_current, narrowed
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.task_placement import tasks_of
from daskkern.cluster.scheduler.task_results import LostTaskError, resubmitting, set_up_result
from daskkern.errors import DaskkernError, SpecError
from daskkern.events import Listener
from daskkern.training.checkpoints.claims import Claim
from daskkern.training.checkpoints.fingerprints import with_settings
from daskkern.training.feeding.block_cache_policy import can_keep
from daskkern.training.feeding.remote_values import RemoteValue
from daskkern.training.feeding.sent_rows import SentRows
from daskkern.training.feeding.stored_features import features_for
from daskkern.training.jobs.install_dashboard import show_fits
from daskkern.training.planning.cluster_planner import ClusterPlanner
from daskkern.training.planning.device_choices import with_batches_of_devices
from daskkern.training.planning.planner import summarise
from daskkern.training.planning.rank_plans import RankPlans
from daskkern.training.planning.resources import WorkerResources, is_mixed, with_most_memory
from daskkern.training.planning.worker_resources import check_reach, check_resources, resources_of
from daskkern.training.run.job import FitJob
from daskkern.training.run.lease_retries import steadily
from daskkern.training.run.metric_pass import MetricTask, metric_on_cluster
from daskkern.training.run.rank import FitRankResult, run_rank
from daskkern.training.run.rank_task import RankTask, reform
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import begin, finish, prepare
from daskkern.training.setup.prepared import Draft, Prepared

_SPAN = "daskkern"


def fit_on(
    client: Client, job: FitJob, listener: Listener, gang: GangSettings, metadata: FitMetadata
) -> tuple[FitJob, list[FitRankResult], Prepared]:
    """Fit on the workers of a cluster, one rank each, once the fit is admitted. See
    :func:`daskkern.training.run.fit.fit`. Returned with the job as it was run, for these workers."""
    if job.settings.solver.is_serial:
        gang = replace(gang, n_ranks=1)
    with ExitStack() as until:
        until.enter_context(_claim_withdrawn(job.policy.claim))
        check_current(client, metadata)
        usable = usable_workers(client, gang, rank_main, listener)
        gang = within_shards(gang, job.settings, len(usable))
        show_fits(client)
        until.enter_context(_spanned(metadata))
        until.enter_context(tasks_of(metadata.fit))
        lease = until.enter_context(admitted(client, metadata, gang, listener))
        lease = narrowed(client, lease, job.settings.virtual_shards)  # workers may have joined since they were counted
        return _fit_admitted(client, job, listener, gang, lease)


def within_shards(gang: GangSettings, settings: FitSettings, usable: int) -> GangSettings:
    """Return the gang with at most as many ranks as virtual shards; `usable` is the number of workers.

    Raises SpecError when more were requested.
    """
    most = settings.virtual_shards
    if most is None or (gang.n_ranks or usable) <= most:
        return gang
    if gang.n_ranks is not None:
        raise SpecError(
            f"got {gang.n_ranks} ranks with virtual_shards={most}; each rank needs a shard: request more shards, or "
            "fewer ranks"
        )
    return replace(gang, n_ranks=int(most))


@contextmanager
def _claim_withdrawn(claim: Claim | None) -> Iterator[None]:
    """Withdraw the claim of a driver that finds itself followed by another one, which may have claimed before it."""
    try:
        yield
    except GivenUpError:
        if claim is not None:
            claim.withdraw()
        raise


@contextmanager
def _spanned(metadata: FitMetadata) -> Iterator[None]:
    """Put the tasks of a fit into one Dask span, so that the dashboard can show them separately."""
    if _SPAN in (get_annotations().get("span") or {}).get("name", ()):  # the driver has opened it
        yield
        return
    with span(_SPAN, f"{metadata.name} {metadata.fit[:6]}"):
        yield


def _fit_admitted(
    client: Client, job: FitJob, listener: Listener, gang: GangSettings, lease: Lease
) -> tuple[FitJob, list[FitRankResult], Prepared]:
    with ExitStack() as set_up:
        set_up.enter_context(removing_hung(client, gang.silence_s, listener, lease.metadata.fit))
        remote, keep = job.for_cluster(client, lease.addresses)
        try:
            return _fit_sent(client, job, remote, listener, gang, lease, set_up.close)
        finally:
            for one in keep:
                one.release()


def _fit_sent(
    client: Client,
    begun: FitJob,
    job: FitJob,
    listener: Listener,
    gang: GangSettings,
    lease: Lease,
    end_set_up: Callable[[], None],
) -> tuple[FitJob, list[FitRankResult], Prepared]:
    """Fit a job whose rows the workers can open; `begun` is the job as this process has it."""
    settings = job.settings

    def look(lease: Lease) -> list[WorkerResources]:
        check_reach(client, job.sources, settings, lease.addresses)
        resources = resources_of(client, settings, lease.addresses, gang.share_memory)
        check_resources(job.source, settings, job.holds_out, resources)
        return resources

    lease, resources = steadily(client, gang, lease, look, listener)
    known = lease
    settings = with_batches_of_devices(settings, job.source, resources)
    begun = with_settings(begun, settings)
    job = replace(job, settings=settings, policy=begun.policy)
    home = lease.addresses[with_most_memory(resources)] if is_mixed(resources) else None
    with _set_up(client, job, listener, gang, lease, home) as (lease, ticket, prepared):
        scaled = job.scaled(prepared.scaling)
        machines = {each.machine for each in resources}
        summary = summarise(prepared, settings, machines)

        def decide(lease: Lease) -> RankPlans:
            found = resources if lease is known else look(lease)
            return ClusterPlanner(client, scaled.source, settings, lease.addresses, found).with_blocks(summary)

        lease, plans = steadily(client, gang, lease, decide, listener)
        with current(client), features_for(scaled.source, settings, prepared, machines) as features:
            whole = RemoteValue(str(ticket.key))
            keeps = can_keep(plans.tightest, settings, summary.p, summary.n_outputs)
            policy = replace(job.policy, in_memory=gang.retries > 0 and keeps, carry=job.policy.carry and keeps)
            commits = policy.in_memory or policy.checkpoint is not None
            work = replace(scaled, policy=policy, before=None)
            task = RankTask(work, whole, plans.tightest, 0, features, summary, ranks=plans)
            end_set_up()
            results = run_gang(
                client,
                rank_main,
                task,
                name=settings.solver.name,
                settings=replace(gang, n_ranks=gang.n_ranks or settings.virtual_shards),  # the most that may join
                listener=listener,
                reform=partial(reform, share_memory=gang.share_memory),
                lease=lease,
                commits=commits,
            )
    return begun, results, prepared


@contextmanager
def _set_up(
    client: Client,
    job: FitJob,
    listener: Listener,
    gang: GangSettings,
    lease: Lease,
    home: str | None,
) -> Iterator[tuple[Lease, Future[Any], Prepared]]:
    """Yield the lease, the set-up as a future, by which workers get it, and the set-up.

    The future is kept meanwhile, and released in the end. It runs on the worker `home` while that
    is there, if it is given: the memory plans of other workers do not count the set-up then.
    """
    source, settings, held_out = job.source, job.settings, job.holds_out
    with ExitStack() as until:
        tasks = _SetUpTasks(client, lease, home, gang.idle_s, until)

        def in_one_task() -> tuple[Future[Any], Prepared]:
            before = None if job.before is None else tasks.sent(job.before)
            return tasks.once(prepare, source, settings, held_out, before, name="prepare")

        if settings.learn_features is None or not settings.learn_features.of_all_rows or job.before is not None:
            ticket, prepared = resubmitting(in_one_task)
        else:
            begun = partial(tasks.once, begin, source, settings, held_out, name="begin", part=_is_pending)
            (draft, pending), found = resubmitting(begun), None
            if pending:
                task = MetricTask(source, settings, RemoteValue(str(draft.key)))
                lease, found = metric_on_cluster(client, task, listener, gang, lease, until)
            ticket, prepared = resubmitting(partial(tasks.once, finish, source, draft, found, name="prepare"))
        yield lease, ticket, prepared


@dataclass(frozen=True)
class _SetUpTasks:
    """Runs the parts of a set-up as tasks. What they need and return stays in the cluster until `until` ends."""

    client: Client
    lease: Lease
    home: str | None
    idle_s: float
    until: ExitStack

    def sent(self, value: Any) -> RemoteValue:
        """Send a value that a task fetches: as an argument of its own it would be lost, and the task with it."""
        sending = SentRows(self.client, {task_name("earlier"): lambda: value}, self.lease.addresses)
        self.until.callback(sending.release)
        return RemoteValue(sending.keys[0])

    def once(
        self, work: Callable[..., Any], *arguments: Any, name: str, part: Callable[[Any], Any] | None = None
    ) -> tuple[Future[Any], Any]:
        """Return a part of the set-up as a future, and what `part` takes of it. Raises LostTaskError."""
        future = self._submitted(work, *arguments, name=name)

        def its_part() -> Any:
            seen = self.client.submit(_unwrapped, future, part, key=task_name("prepared"), pure=False)
            return set_up_result(self.client, seen, self.lease.metadata, self.idle_s)

        try:
            return future, resubmitting(its_part)
        except LostTaskError:
            future.release()  # else its result would stay in memory together with that of the next submission
            raise

    def _submitted(self, work: Callable[..., Any], *arguments: Any, name: str) -> Future[Any]:
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):  # a metric may be some MB
            future = self.client.submit(
                _on_worker,
                self.lease.metadata.fit,
                self.home is not None,
                work,
                *arguments,
                key=task_name(name),
                workers=None if self.home is None else [self.home],
                allow_other_workers=self.home is not None,
                pure=False,
                retries=0,
            )
        self.until.callback(future.release)
        return future


def _on_worker(fit: str, here: bool, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run a part of the set-up in a task that has seceded from its worker, with Dask arrays computed by the cluster.

    They are computed on the workers of `fit`; on this one as long as it lives with `here`, because the plan counts
    their memory on no other.

    ``worker_client`` is not used: it rejoins the pool at its end and waits for a free thread.
    """
    client = own_client()
    secede()
    # The graph has the subsample of K_SS once for each block row, on purpose: a few megabytes.
    quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    place = annotate(workers=[get_worker().address], allow_other_workers=True) if here else nullcontext()
    with quiet, current(client), tasks_of(fit), place:
        try:
            return work(*(one.fetch() if isinstance(one, RemoteValue) else one for one in arguments))
        except DaskkernError as error:
            return error  # raised, it would come with the traceback of a task


def _unwrapped(outcome: Any, part: Callable[[Any], Any] | None) -> Any:
    if isinstance(outcome, DaskkernError):
        raise outcome
    return outcome if part is None else part(outcome)


def _is_pending(draft: Draft) -> bool:
    return draft.pending is not None


def rank_main(comm: Communicator, task: RankTask, context: RankContext) -> FitRankResult | Regroup:
    """Run a rank on a worker with the worker's number of threads."""
    worker = get_worker()
    threads = max(1, worker.state.nthreads)
    # The scheduler numbers the runs of tasks: that of a later gang's rank 0 is higher, also when an earlier one wakes.
    run = worker.state.tasks[str(worker.get_current_task())].run_id
    with compute_threads(threads):
        return run_rank(comm, replace(task, threads=threads, gang=run), context)
