"""A client's copy of the list of live workers, kept up to date by changes alone."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from distributed import Client

from daskkern.cluster.scheduler.client import ask_fits


class WorkerList:
    """The live workers of the cluster of `client`, whose scheduler must have daskkern's plugin.

    Attributes
    ----------
    interval_s : float
        Seconds between two heartbeats of one worker; they grow with the number of workers.
    """

    def __init__(self, client: Client, ask: Callable[..., Any] = ask_fits) -> None:
        self.interval_s = 0.0
        self._client, self._ask = client, ask
        self._version = 0
        self._known: dict[str, Mapping[str, Any]] = {}
        self._polls = count(1)

    def alive(self) -> dict[str, Mapping[str, Any]]:
        """Return the name and status of each live worker, by address, in the order in which they joined.

        ``last_seen`` differs from that of the last call if the scheduler has heard of the worker since then, or if its
        next heartbeat is not due yet.
        """
        answer = self._ask(self._client, "workers", known=self._version)
        self._version, self.interval_s = int(answer["version"]), float(answer["interval"])
        if answer["workers"] is not None:
            self._known = {a: {"name": name, "status": status} for a, name, status in answer["workers"]}
        number, quiet = -float(next(self._polls)), answer["quiet"]
        return {a: {**worker, "last_seen": quiet.get(a, number)} for a, worker in self._known.items()}
