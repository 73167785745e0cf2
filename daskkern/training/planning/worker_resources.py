"""What the workers of a cluster may plan with: whether they reach the data, and their memory, cores and disk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from distributed import Client

from daskkern.backend.namespace import namespace_for
from daskkern.cluster.connect.membership import live_workers, run_on
from daskkern.errors import ClusterError
from daskkern.training.feeding.block_cache_policy import disk_room, needs_rates, with_blocks
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.calibration import calibrate_workers
from daskkern.training.planning.memory_by_columns import budget_of_shard
from daskkern.training.planning.memory_plan import LIMIT_SHARE, MemoryPlan, available_memory, device_memory
from daskkern.training.planning.planner import PreparedSummary, check_before, plan_for
from daskkern.training.run.settings import FitSettings


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


@dataclass(frozen=True)
class WorkerResources:
    """What one worker may plan with."""

    threads: int
    budget: int
    device_budget: int | None
    disk: int

    def shared_by(self, shards: int) -> "WorkerResources":
        """Return what each of `shards` virtual ranks of this worker may plan with."""
        device = None if self.device_budget is None else self.device_budget // shards
        budget = budget_of_shard(self.budget, shards)
        return WorkerResources(max(1, self.threads // shards), budget, device, self.disk // shards)


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
        resources.append(WorkerResources(threads, budget, devices[worker], 0))
    disks = run_on(client, workers, disk_room, settings, max(hosts.count(host) for host in hosts))
    whole = [replace(resource, disk=disks[worker]) for resource, worker in zip(resources, workers, strict=True)]
    return [resource.shared_by(settings.shards_each(len(workers))) for resource in whole]


def check_resources(
    source: RowSource, settings: FitSettings, held_out: bool, resources: Sequence[WorkerResources]
) -> None:
    """Refuse a fit that cannot fit, before the set-up begins."""
    if all(resource.device_budget is None for resource in resources):
        least = min(resources, key=lambda resource: resource.budget)
        check_before(source, settings, held_out, settings.shards(len(resources)), least.threads, least.budget)


def cluster_plan(
    client: Client,
    summary: PreparedSummary,
    source: RowSource,
    settings: FitSettings,
    workers: Sequence[str],
    resources: Sequence[WorkerResources],
) -> MemoryPlan:
    """Return the plan that every rank follows: the tightest of all workers'."""
    tightest = tightest_plan(summary, source, settings, settings.shards(len(workers)), resources)
    tightest.check()
    disk = min(resource.disk for resource in resources)
    rates = None
    if tightest.sizes is not None and needs_rates(tightest, settings, disk):
        each = settings.shards_each(len(workers))
        rates = calibrate_workers(client, workers, source, settings, tightest.sizes, not tightest.kept, each)
    decided = with_blocks(tightest, settings, disk, rates)
    decided.check()
    return decided


def tightest_plan(
    summary: PreparedSummary, source: RowSource, settings: FitSettings, ranks: int, resources: Sequence[WorkerResources]
) -> MemoryPlan:
    plans = [
        plan_for(summary, source, settings, ranks, resource.threads, resource.budget, resource.device_budget)
        for resource in resources
    ]
    return min(plans, key=lambda plan: (plan.budget, plan.device_budget, plan.kept))
