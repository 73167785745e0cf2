"""The workers that can run fits: those that have loaded the plugin of the scheduler's daskkern and reported it."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from typing import Any

from daskkern.cluster.connect.leaving import LEAVING
from daskkern.cluster.scheduler.hosts import grouped_by_host
from daskkern.cluster.scheduler.sharing.requests import Place


class EquippedWorkers:
    """The workers of `scheduler` that have the plugin; one without daskkern never has.

    A worker that has just joined counts from its own message on: until then it knows no message of fits.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._known: set[str] = set()

    def add(self, address: str) -> bool:
        """Count the worker at `address` from now on; return False if the scheduler does not know it."""
        if address not in self._scheduler.workers:
            return False
        self._known.add(address)
        return True

    def discard(self, address: str) -> None:
        self._known.discard(address)

    def alive(self) -> list[Any]:
        """Return the live workers: one that is paused for memory keeps its ranks."""
        return [worker for worker in self._all() if worker.status.name in ("running", "paused")]

    def listed(self) -> list[Any]:
        """Return the live workers, including those that are about to leave."""
        return [*self.alive(), *(worker for worker in self._all() if worker.status.name == LEAVING)]

    def places(self) -> list[Place]:
        """Return the places for ranks: a worker that is paused for memory starts none, but keeps those that run."""
        running = {worker.address: worker for worker in self.alive() if worker.status.name == "running"}
        workers = [running[address] for address in grouped_by_host(running)]
        return [Place(str(worker.name), int(worker.memory_limit or 0)) for worker in workers]

    def addresses(self) -> dict[str, str]:
        """Return the address of each live one, by name."""
        return {str(worker.name): worker.address for worker in self.alive()}

    def heard(self) -> dict[str, dict[str, Any]]:
        """Return the name of each, and the time of its last heartbeat, by address."""
        return {worker.address: {"name": str(worker.name), "heard": worker.last_seen} for worker in self._all()}

    def _all(self) -> list[Any]:
        return [worker for address, worker in self._scheduler.workers.items() if address in self._known]
