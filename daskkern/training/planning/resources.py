"""The resources that a rank may use on its worker, and whether workers are about equal."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from daskkern.training.planning.memory_by_columns import budget_of_shard
from daskkern.training.planning.memory_plan import LIMIT_SHARE

_SAME = 1.25
"""Workers whose memory differs by less are the same: what is free changes from one moment to the next."""


@dataclass(frozen=True)
class WorkerResources:
    """What one worker may plan with: threads, bytes of memory, of its device and of disk; its kind, its
    address, the bytes that its device has in all, 0 without one, and the name of its machine; and the bytes of memory
    that it may plan with when no other program uses any, 0 where that is not known."""

    threads: int
    budget: int
    device_budget: int | None
    disk: int
    kind: str = ""
    address: str = field(default="", compare=False)
    device_size: int = 0
    machine: str = field(default="", compare=False)
    lasting: int = field(default=0, compare=False)

    def at_best(self) -> "WorkerResources":
        """Return what it may plan with when no other program uses memory of its host or its device."""
        device = None if self.device_budget is None else max(self.device_budget, int(LIMIT_SHARE * self.device_size))
        return replace(self, budget=max(self.budget, self.lasting), device_budget=device)

    def shared_by(self, shards: int) -> "WorkerResources":
        """Return what each of `shards` virtual ranks of this worker may plan with."""
        device = None if self.device_budget is None else self.device_budget // shards
        budget, threads = budget_of_shard(self.budget, shards), max(1, self.threads // shards)
        return replace(self, threads=threads, budget=budget, device_budget=device, disk=self.disk // shards)


def is_mixed(resources: Sequence[WorkerResources]) -> bool:
    """Return whether workers are of several kinds, or differ in memory by more than what changes anyway."""
    if len({resource.kind for resource in resources}) > 1:
        return True
    budgets = [resource.budget for resource in resources]
    devices = [resource.device_budget or 0 for resource in resources]
    return max(budgets) > _SAME * min(budgets) or max(devices) > _SAME * min(devices)


def with_most_memory(resources: Sequence[WorkerResources]) -> int:
    """Return the number of the worker with the most memory, of several the first."""
    return max(range(len(resources)), key=lambda rank: (resources[rank].budget, -rank))


def relative_room(resources: Sequence[WorkerResources]) -> list[float]:
    """Return the memory of each worker as a part of the most of one: of its own or of its device, whichever is less."""
    most = max(resource.budget for resource in resources)
    most_device = max(resource.device_budget or 0 for resource in resources) or 1
    return [
        min(each.budget / most, 1.0 if each.device_budget is None else each.device_budget / most_device)
        for each in resources
    ]
