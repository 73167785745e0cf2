"""The demand of waiting fits for workers, as reported to adaptive clusters.

Dask's adaptive clusters, the operator for Kubernetes included, ask the scheduler for its ``adaptive_target``, which
follows from tasks. A fit that waits for its workers has no task yet, and one that runs is a few endless ones: what fits
lack is added here.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Callable, Sequence
from typing import Any

from daskkern.cluster.scheduler.sharing.admission import Admission
from daskkern.cluster.scheduler.sharing.requests import Place, WorkerRequest

_QUERIED_S = 60.0
"""A cluster that has asked for its target within this time is adaptive."""
_WANTED_S = 90.0
"""How long a request of a client counts that is not repeated: importing daskkern on a new worker takes its time."""
_RESTARTED_S = 60.0
"""A cluster whose last worker has left within this time probably gets others: nannies and batch systems start them."""


class WorkerDemand:
    """Adds the workers that fits lack to the target of an adaptive cluster.

    Parameters
    ----------
    scheduler : Scheduler
    admission : Admission
    places : callable
        Returns the workers that fits may use.
    """

    def __init__(self, scheduler: Any, admission: Admission, places: Callable[[], Sequence[Place]]) -> None:
        self._scheduler, self._admission, self._places = scheduler, admission, places
        self._wanted: dict[str, tuple[WorkerRequest, float]] = {}  # by client
        self._queried = self._emptied = 0.0

    def install(self) -> None:
        """Answer in place of the scheduler's own method, to its RPC and to its HTTP interface."""
        own = getattr(self._scheduler, "adaptive_target", None)
        if own is None:
            return

        def target(target_duration: Any = None) -> int:
            self._queried = time.time()
            return max(int(own(target_duration=target_duration)), self.workers())

        self._scheduler.adaptive_target = target
        self._scheduler.handlers["adaptive_target"] = target

    def workers(self) -> int:
        """Return how many workers the cluster should have for its fits; 0 if they lack none."""
        now = time.time()
        self._wanted = {client: kept for client, kept in self._wanted.items() if now - kept[1] < _WANTED_S}
        lacking = self._admission.lacking(self._places(), [request for request, _ in self._wanted.values()])
        return len(self._scheduler.workers) + lacking if lacking else 0

    def want(self, asker: str, n_ranks: int | None, user: str = "") -> bool:
        """Record that a fit of the client `asker` will request workers for `user`. Return whether they are expected:
        the cluster is adaptive, or has just lost its last worker."""
        now = time.time()
        since = self._wanted[asker][0].since if asker in self._wanted else now
        self._wanted[asker] = (WorkerRequest(asker, since, n_ranks, user=str(user)), now)
        restarted = not self._scheduler.workers and now - self._emptied < _RESTARTED_S
        return restarted or now - self._queried < _QUERIED_S

    def left(self, worker: str) -> None:
        """Take note of the loss of `worker`, which the scheduler may count still."""
        if not self._scheduler.workers.keys() - {worker}:
            self._emptied = time.time()

    def forget(self, asker: str) -> None:
        """Forget the request of this client: it has a place in the queue, or has left."""
        self._wanted.pop(asker, None)
