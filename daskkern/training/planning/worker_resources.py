"""What the workers of a cluster may plan with: whether they reach the data, and their memory, cores and disk."""

from collections.abc import Sequence
from dataclasses import replace

from distributed import Client

from daskkern.backend.namespace import namespace_for
from daskkern.backend.task_names import task_name
from daskkern.cluster.collectives.gpus import device_name
from daskkern.cluster.collectives.probe import MessageTimes, message_times
from daskkern.cluster.connect.membership import live_workers, run_on
from daskkern.errors import ClusterError, MemoryBudgetError
from daskkern.monitor.environment import environment
from daskkern.training.feeding.block_cache_policy import disk_room, needs_rates
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.calibration import Rates, calibrate_workers, product_rate, worst
from daskkern.training.planning.divider import Divider
from daskkern.training.planning.dividing import relative_speeds
from daskkern.training.planning.grids import StepRates
from daskkern.training.planning.memory_plan import LIMIT_SHARE, available_memory, device_memory
from daskkern.training.planning.planner import least_settings, upper_bound_summary
from daskkern.training.planning.rank_plans import RankPlans, with_blocks_of_all
from daskkern.training.planning.resources import WorkerResources
from daskkern.training.planning.sizes_of_fits import PreparedSummary
from daskkern.training.run.settings import FitSettings

MEASURE_FROM_VALUES = 3e9
"""Kernel values of a fit from which the speed of different workers is measured: they take some ten seconds."""


def check_reach(client: Client, sources: Sequence[RowSource], settings: FitSettings, workers: Sequence[str]) -> None:
    """Refuse a source that a worker cannot open, and a device that it does not have, naming the worker."""
    for source in sources:
        for worker, problem in run_on(client, workers, _probe, source, settings).items():
            if problem is not None:
                raise ClusterError(
                    f"worker {worker} cannot run the fit: {problem}; give a path or URL that every worker can reach, "
                    "and a device that it has"
                )


def _probe(source: RowSource, settings: FitSettings) -> str | None:
    try:
        namespace_for(settings.device)
        source.open(settings.dtype)
    except Exception as error:
        return str(error)
    return None


def resources_of(
    client: Client, settings: FitSettings, workers: Sequence[str], share_memory: int | None
) -> list[WorkerResources]:
    """Ask the workers for what each may plan with; those of one host share what is free there."""
    known = live_workers(client)
    gone = [worker for worker in workers if worker not in known]
    if gone:
        raise ClusterError(f"worker {gone[0]} left the cluster while its memory was asked for; fit again")
    hosts = [known[worker].get("host", worker) for worker in workers]
    free = run_on(client, workers, available_memory)
    devices = run_on(client, workers, device_memory, settings.device)
    resources = []
    for worker, host in zip(workers, hosts, strict=True):
        limit = int(known[worker].get("memory_limit") or 0)
        share = free[worker] // hosts.count(host)
        budget = settings.memory_budget or (min(int(LIMIT_SHARE * limit), share) if limit else share)
        budget = min(budget, share_memory or budget)
        threads = int(known[worker].get("nthreads", 1))
        resources.append(WorkerResources(threads, budget, devices[worker], 0, address=worker))
    disks = run_on(client, workers, disk_room, settings, max(hosts.count(host) for host in hosts))
    kinds = run_on(client, workers, _kind, settings)
    return [
        replace(resource, disk=disks[worker], kind=f"{resource.threads} threads, {kinds[worker]}")
        for resource, worker in zip(resources, workers, strict=True)
    ]


def _kind(settings: FitSettings) -> str:
    """Return what this process computes with: the name of the GPU, or of the processor."""
    xp = namespace_for(settings.device)
    return device_name(xp) if hasattr(xp, "cuda") else str(environment()["processor"])


def check_resources(
    source: RowSource, settings: FitSettings, held_out: bool, resources: Sequence[WorkerResources]
) -> None:
    """Refuse a fit that cannot fit, before the set-up begins. Raises MemoryBudgetError."""
    if all(resource.device_budget is None for resource in resources):
        least = least_settings(settings, held_out)
        summary = upper_bound_summary(source, least)
        _checked(Divider(summary, source, least, resources))


def _checked(divider: Divider) -> RankPlans:
    """Return the plans of a division that fits. Raises MemoryBudgetError where there is none."""
    plans = divider.plans()
    try:
        plans.check()
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"{error}{divider.refusal()}") from None
    return plans


def rank_plans(
    client: Client,
    summary: PreparedSummary,
    source: RowSource,
    settings: FitSettings,
    workers: Sequence[str],
    resources: Sequence[WorkerResources],
    step_rates: StepRates | None = None,
) -> RankPlans:
    """Return the plans of all ranks, with columns divided by memory and measured speed where their workers differ.

    Blocks are not decided yet. `step_rates` were measured before, for the choice of groups.
    """
    return _checked(divider_of(client, summary, source, settings, workers, resources, step_rates))


def divider_of(
    client: Client,
    summary: PreparedSummary,
    source: RowSource,
    settings: FitSettings,
    workers: Sequence[str],
    resources: Sequence[WorkerResources],
    step_rates: StepRates | None = None,
) -> Divider:
    """Return what divides the columns between these workers, with the measurements that are worth their time.

    Speeds of workers are measured where they differ; kernel values and messages, unless `step_rates` have them, where
    what is usual says that groups of ranks are faster.
    """
    speeds = speeds_of(client, summary, source, settings, workers, resources)
    divider = Divider(summary, source, settings, resources, speeds, step_rates)
    expected = divider.grid()
    work = float(summary.n) * summary.p * settings.passes
    if step_rates is not None or not expected.chosen or expected.groups == 1 or work < MEASURE_FROM_VALUES:
        return divider
    rates = worst(rates_of(client, divider.plans(), source, settings, workers))
    messages = _messages_of(client, workers)
    measured = StepRates(1e-9 * rates.block_ns, 1e-9 * rates.product_ns, messages).rounded()
    return Divider(summary, source, settings, resources, speeds, measured)


def _messages_of(client: Client, workers: Sequence[str]) -> MessageTimes:
    """Measure messages between the first worker and the last: ranks of a host follow each other."""
    name, first = task_name("measure_messages"), workers[0]
    call = client.submit(message_times, workers[-1], key=name, workers=[first], pure=False, retries=0, priority=10)
    try:
        found: MessageTimes = call.result()
        return found
    finally:
        call.release()


def cluster_plan(
    client: Client,
    summary: PreparedSummary,
    source: RowSource,
    settings: FitSettings,
    workers: Sequence[str],
    resources: Sequence[WorkerResources],
) -> RankPlans:
    """Return the plans of all ranks, and with them the division of the columns and the place of kernel blocks."""
    plans = rank_plans(client, summary, source, settings, workers, resources)
    disks, rates = rank_disks(plans, settings, resources), None
    if any(needs_rates(plan, settings, disk) for plan, disk in zip(plans.different, disks, strict=True)):
        rates = worst(rates_of(client, plans, source, settings, workers))
    decided = with_blocks_of_all(plans, settings, disks, rates)
    decided.check()
    return decided


def rates_of(
    client: Client, plans: RankPlans, source: RowSource, settings: FitSettings, workers: Sequence[str]
) -> list[Rates]:
    """Measure on all workers at once what their ranks reach, in rank order."""
    planned = [plans.of(rank) for rank in range(len(workers))]
    sizes = [plan.sizes for plan in planned if plan.sizes is not None]
    with_disk = not plans.tightest.kept
    return calibrate_workers(
        client, workers, source, settings, sizes, with_disk, _ranks_each(plans, settings, len(workers))
    )


def _ranks_each(plans: RankPlans, settings: FitSettings, n_workers: int) -> list[int]:
    """Return how many ranks each worker has: more than one where they are virtual."""
    if plans.shares and settings.virtual_shards is not None:
        return list(plans.shares)
    return [settings.shards_each(n_workers)] * n_workers


def still_fit(plans: RankPlans, settings: FitSettings, resources: Sequence[WorkerResources]) -> bool:
    """Return whether the plans are for workers of these kinds, and within what these may plan with, without a GPU."""
    kinds = tuple(resource.kind for resource in resources)
    if kinds != plans.kinds or any(resource.device_budget is not None for resource in resources):
        return False
    each = _ranks_each(plans, settings, len(resources))
    shared = [resource.shared_by(count) for resource, count in zip(resources, each, strict=True)]
    planned = [plans.of(rank) for rank in range(len(shared))]
    return all(
        resource.budget >= plan.total + plan.kept and resource.disk >= plan.disk
        for resource, plan in zip(shared, planned, strict=True)
    )


def rank_disks(plans: RankPlans, settings: FitSettings, resources: Sequence[WorkerResources]) -> list[int]:
    """Return the bytes of disk of each rank, or of each of its virtual ranks: with equal shares, the least of all."""
    each = _ranks_each(plans, settings, len(resources))
    disks = [room.disk // count for room, count in zip(resources, each, strict=True)]
    return disks if plans.shares else [min(disks)]


def speeds_of(
    client: Client,
    summary: PreparedSummary,
    source: RowSource,
    settings: FitSettings,
    workers: Sequence[str],
    resources: Sequence[WorkerResources],
) -> tuple[float, ...]:
    """Return how fast the workers are, the slowest 1: measured at once on all, where they are of several kinds.

    All are 1 for a fit of fewer kernel values than the measurement is worth.
    """
    kinds = [resource.kind for resource in resources]
    work = float(summary.n) * summary.p * settings.passes
    if len(set(kinds)) == 1 or work < MEASURE_FROM_VALUES or settings.solver.parallelism != "columns":
        return (1.0,) * len(resources)
    calls = {
        worker: client.submit(
            product_rate,
            source,
            settings,
            summary.n_outputs,
            resource.threads,
            key=task_name("measure_speed"),
            workers=[worker],
            pure=False,
            retries=0,
            priority=10,
        )
        for worker, resource in zip(workers, resources, strict=True)
    }
    try:
        return relative_speeds(kinds, [calls[worker].result() for worker in workers])
    finally:
        for call in calls.values():
            call.release()
