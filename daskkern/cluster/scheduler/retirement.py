"""The retirement of workers by the scheduler: ranks on them commit first, so that the fits lose no step."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections.abc import Collection
from typing import Any

from daskkern.cluster.connect.leaving import LEAVING, let_go

_OF_FITS = "daskkern_"
"""Prefix of the keys of all tasks of fits."""


class Retirement:
    """Replaces ``Scheduler.retire_workers``: Dask removes a worker from its list as soon as its results are elsewhere,
    and starts its tasks on others, without waiting for those that it runs."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._retire = scheduler, scheduler.retire_workers

    def install(self) -> None:
        """Take the place of the scheduler's method and of its handler for clients, workers and clusters."""
        self._scheduler.retire_workers = self.retire
        self._scheduler.handlers["retire_workers"] = self.retire

    async def retire(
        self,
        workers: Collection[str] | None = None,
        *,
        names: Collection[Any] | None = None,
        close_workers: bool = False,
        remove: bool = True,
        stimulus_id: str | None = None,
        **choice: Any,
    ) -> dict[str, Any]:
        """Let go the workers that fits use, then retire all of them. The parameters are those of Dask."""
        if workers is None and names is None:
            workers, choice = self._scheduler.workers_to_close(**choice), {}
        leaving = [ws.address for ws in self._used() if _is_named(ws, workers, names)]
        await asyncio.gather(*(let_go(self._scheduler.rpc, address) for address in leaving))
        retired: dict[str, Any] = await self._retire(
            workers=workers, names=names, close_workers=close_workers, remove=remove, stimulus_id=stimulus_id, **choice
        )
        self._stay([address for address in leaving if address not in retired])
        return retired

    def _used(self) -> list[Any]:
        """Return the workers that run tasks of fits."""
        return [
            worker
            for worker in self._scheduler.workers.values()
            if any(str(task.key).startswith(_OF_FITS) for task in (*worker.processing, *worker.has_what))
        ]

    def _stay(self, addresses: Collection[str]) -> None:
        """Resume workers that could not be retired, because no other worker can take their data."""
        for address in addresses:
            worker = self._scheduler.workers.get(address)
            if worker is not None and worker.status.name == LEAVING:
                change = {"op": "worker-status-change", "status": "running", "stimulus_id": f"daskkern-{time.time()}"}
                self._scheduler.stream_comms[address].send(change)


def _is_named(worker: Any, addresses: Collection[str] | None, names: Collection[Any] | None) -> bool:
    if names is not None:
        return str(worker.name) in {str(name) for name in names}
    return addresses is not None and worker.address in addresses
