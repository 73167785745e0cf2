"""Results held by a cluster, which may be lost with their workers and recomputed."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future, get_worker
from distributed.client import FutureCancelledError

from daskkern.cluster.connect.connecting import own_client
from daskkern.cluster.connect.membership import ask_scheduler, live_workers
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.errors import ClusterError, DaskkernError

_PATIENCE_S = (3.0, 10.0, 30.0, 60.0)
_LOOK_S = 0.5
_AGAIN_S = 3600.0
"""Most seconds that a repeated set-up, or a block that is computed again, may take."""
_RETRIES = 3


@dataclass(frozen=True)
class RemoteValue:
    """A finished result on the cluster; unlike a Future it can be sent within a record.

    Attributes
    ----------
    key : str
    again_s : float
        Seconds in which a value that was lost with its workers must be sent again.
    """

    key: str
    again_s: float = 30.0

    def fetch(self) -> Any:
        """Return the value, copied to this worker from one that has it. Raises the error of its task.

        Raises
        ------
        ClusterError
            When no worker sends it, because those that had it are gone.
        """
        try:
            outcome: Any = get_worker().data[self.key]
        except KeyError:
            outcome = self._gathered()
        if isinstance(outcome, DaskkernError):
            raise outcome
        return outcome

    def _gathered(self) -> Any:
        """Retry with timeouts: when a worker is lost during the transfer, Dask may wait forever."""
        client = own_client()
        for patience_s in _PATIENCE_S:
            # A Future constructed here needs the state of its finished task; else it waits forever.
            future: Future[Any] = Future(self.key, client, state="memory")  # type: ignore[arg-type]
            try:
                return future.result(timeout=patience_s)
            except (TimeoutError, FutureCancelledError):
                future.release()
            if not _held_again(client, self.key, self.again_s):
                break
        raise ClusterError(
            f"worker {get_worker().address} requested {self.key}, but no worker sends it: those that had it are gone; "
            "fit again, or put the rows into a store, which other workers can read"
        )


def _held_again(client: Client, key: str, again_s: float) -> bool:
    """Wait while the value of `key` is computed again, or sent again by the process that sent it.

    Return whether there is one. The scheduler forgets values that were sent when their workers leave, and knows
    nothing of the process that may send them again: it has `again_s`.
    """
    forgotten = time.monotonic() + again_s
    deadline = time.monotonic() + _AGAIN_S
    task = _RepeatedTask(client, key, "a value that the fit needs")
    while time.monotonic() < min(forgotten, deadline):
        state = task.state()
        if state == "memory":
            return True
        if state not in ("", "released", "forgotten"):
            forgotten = time.monotonic() + again_s
        time.sleep(_LOOK_S)
    return False


class _RepeatedTask:
    """A task that runs again because its result was lost with a worker, and is retried where it fails.

    Workers that have just started, or are about to leave, may fail where others would not.
    """

    def __init__(self, client: Client, key: str, what: str) -> None:
        self._client, self._key, self._what, self._failures = client, key, what, 0

    def state(self) -> str:
        """Return the task's state, "" for an unknown one, after starting it once more if it has failed.

        Raises
        ------
        ClusterError
            With the error of the task, after `_RETRIES` retries.
        """
        state = ask_scheduler(self._client, "get_task_status", keys=[self._key])[self._key]
        if state == "erred":
            self._failures += 1
            if self._failures > _RETRIES:
                raise ClusterError(
                    f"{self._what} was lost with its worker, and cannot be computed again{self._error()}; fit again"
                )
            with suppress(KeyError):  # forgotten meanwhile
                ask_scheduler(self._client, "retry", keys=[self._key])
        return str(state or "")

    def _error(self) -> str:
        with suppress(ClusterError):  # without a fit, nothing answers
            return ": " + str(ask_fits(self._client, "task_state", key=self._key)[2])
        return ""


def wait_for(client: Client, key: str) -> None:
    """Wait until a worker has the value of `key`, which may be recomputed after the loss of its worker.

    Raises
    ------
    ClusterError
        When it fails each time, or takes an hour.
    """
    deadline = time.monotonic() + _AGAIN_S
    task = _RepeatedTask(client, key, "the set-up of the fit")
    while time.monotonic() < deadline:
        if task.state() == "memory":
            holders = ask_scheduler(client, "who_has", keys=[key]).get(key, ())
            if set(holders) & live_workers(client).keys():
                return
        time.sleep(_LOOK_S)
    raise ClusterError(
        f"the set-up of the fit was lost with its worker, and not recomputed in {_AGAIN_S:g} s; fit again"
    )


def remote_values(keys: Iterable[Any]) -> tuple[RemoteValue, ...]:
    return tuple(RemoteValue(str(key)) for key in keys)
