"""The resources of a cluster's workers: access to the data, memory, cores and disk."""

from collections.abc import Sequence
from dataclasses import replace
from socket import gethostname

from distributed import Client

from daskkern.backend.namespace import namespace_for
from daskkern.cluster.collectives.gpus import device_name
from daskkern.cluster.connect.membership import live_workers, run_on
from daskkern.errors import ClusterError, MemoryBudgetError
from daskkern.monitor.environment import environment
from daskkern.training.feeding.block_cache_policy import disk_room
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.columns_of_workers import Divider
from daskkern.training.planning.memory_plan import (
    LIMIT_SHARE,
    available_memory,
    device_memory,
    device_size,
    host_memory,
)
from daskkern.training.planning.planner import least_settings, upper_bound_summary
from daskkern.training.planning.rank_plans import RankPlans
from daskkern.training.planning.resources import WorkerResources
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
        source.check_reach(settings.dtype)
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
    free, whole = run_on(client, workers, available_memory), run_on(client, workers, host_memory)
    devices = run_on(client, workers, device_memory, settings.device)
    sizes = run_on(client, workers, device_size, settings.device)
    resources = []
    for worker, host in zip(workers, hosts, strict=True):
        limit = int(known[worker].get("memory_limit") or 0)
        budget, lasting = (
            _budget(settings, limit, memory[worker] // hosts.count(host), share_memory) for memory in (free, whole)
        )
        threads = int(known[worker].get("nthreads", 1))
        resources.append(
            WorkerResources(
                threads, budget, devices[worker], 0, device_size=sizes[worker], address=worker, lasting=lasting
            )
        )
    disks = run_on(client, workers, disk_room, settings, max(hosts.count(host) for host in hosts))
    kinds = run_on(client, workers, _kind_and_machine, settings)
    return [
        replace(
            resource,
            disk=disks[worker],
            kind=f"{resource.threads} threads, {kinds[worker][0]}",
            machine=kinds[worker][1],
        )
        for resource, worker in zip(resources, workers, strict=True)
    ]


def _budget(settings: FitSettings, limit: int, share: int, share_memory: int | None) -> int:
    """Return the bytes that the rank of a worker may plan with, whose `share` of the memory of its host is this."""
    budget = settings.memory_budget or (min(int(LIMIT_SHARE * limit), share) if limit else share)
    return min(budget, share_memory or budget)


def _kind_and_machine(settings: FitSettings) -> tuple[str, str]:
    """Return what this process computes with, the name of the GPU or of the processor, and the name of its host."""
    xp = namespace_for(settings.device)
    kind = device_name(xp) if hasattr(xp, "cuda") else str(environment()["processor"])
    return kind, gethostname()


def check_resources(
    source: RowSource, settings: FitSettings, held_out: bool, resources: Sequence[WorkerResources]
) -> None:
    """Refuse a fit that cannot fit, before the set-up begins. Raises MemoryBudgetError."""
    if all(resource.device_budget is None for resource in resources):
        least = least_settings(settings, held_out)
        summary = upper_bound_summary(source, least)
        checked_plans(Divider(summary, source, least, resources))


def checked_plans(divider: Divider) -> RankPlans:
    """Return the plans of a division that fits.

    Raises MemoryBudgetError where there is none, with the workers without which there is one.
    """
    plans = divider.plans()
    try:
        plans.check()
    except MemoryBudgetError as error:
        small, for_now = divider.too_small(), False
        if small and divider.at_best(small).holds():
            small, for_now = {worker: f"{sentence} at the moment" for worker, sentence in small.items()}, True
        raise MemoryBudgetError(
            f"{error}{divider.refusal()}", too_small=small, for_now=small if for_now else ()
        ) from None
    return plans
