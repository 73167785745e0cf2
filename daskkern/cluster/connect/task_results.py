"""Waiting for the result of a task of a client whose messages may have been lost.

A client learns of a task's end by a message of the scheduler, and the scheduler of the task by one of the client. If
either is lost, the future of Dask waits for ever, while the scheduler answers every question.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from typing import Any

from distributed import Client, Future

from daskkern.cluster.connect.membership import BrokenOffError, ask_scheduler

DOUBT_S = 30.0
_ENDED = ("memory", "erred", "forgotten")


class TaskResult:
    """The result of the task of a future.

    Parameters
    ----------
    client : Client
    future : Future
    what : str
        Names the task in an error.
    doubt_s : float
        Seconds between two questions to the scheduler about a task that has not ended. Messages may be on their way,
        so that it takes two answers of the same kind to believe one.
    """

    def __init__(self, client: Client, future: "Future[Any]", what: str, doubt_s: float = DOUBT_S) -> None:
        self._client, self._future, self._what, self._doubt_s = client, future, what, doubt_s
        self._checked_at, self._doubt = time.monotonic(), ""

    def within(self, timeout_s: float) -> Any:
        """Return the result, or raise the task's error.

        Raises
        ------
        TimeoutError
            When it is not there after `timeout_s`.
        BrokenOffError
            When the scheduler does not know the task, or says that it has ended, which this client has not heard.
        ClusterError
            When the scheduler cannot be reached.
        """
        try:
            return self._future.result(timeout=timeout_s)
        except TimeoutError:
            if time.monotonic() - self._checked_at >= self._doubt_s:
                self._check()
            raise

    def _check(self) -> None:
        """Ask the scheduler for the state of the task."""
        key = self._future.key
        state = ask_scheduler(self._client, "get_task_status", keys=[key])[key]
        before, self._doubt, self._checked_at = self._doubt, "", time.monotonic()
        if self._future.done() or not (state is None or state in _ENDED):
            return
        self._doubt = "does not know it" if state is None else "says that it has ended"
        if self._doubt == before:
            raise BrokenOffError(
                f"a message between this process and the scheduler was lost: this process waits for {self._what}, and "
                f"the scheduler {self._doubt}; fit again"
            )
