"""Graceful shutdown of a worker: its ranks commit first, and its supervisors and drivers move to other workers.

A worker that leaves has Dask's status ``closing_gracefully``: it starts no more tasks. Supervisors see that status,
have their ranks commit and form the next gang of other workers. The worker goes when nobody needs its tasks any more,
or when the fits' ``drain_s`` are over.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from distributed import Worker
from distributed.core import Status

LOST_STATES = frozenset({"cancelled", "released", "forgotten", "error"})
"""States of a task whose result nobody waits for."""

_POLL_S = 0.1
_LOG = logging.getLogger("daskkern.workers")


class Departure:
    """What a worker waits for before it goes: tasks of fits, until their results have been fetched."""

    def __init__(self, worker: Worker, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker, self._clock = worker, clock
        self._awaited: dict[str, float] = {}
        self._since: float | None = None
        self._previous: Any = None
        self._end: asyncio.Task[None] | None = None

    def expect(self, task: str, seconds: float) -> None:
        """Stay until the task with this key has ended and its result was fetched, for at most `seconds`.

        May be called from any thread.
        """
        self._awaited[task] = seconds

    def leave(self) -> bool:
        """Let this worker start no more tasks, and return whether it has to be waited for. Answers at once."""
        if self._worker.status in (Status.running, Status.paused):
            self._since = None
            self._worker.status = Status.closing_gracefully
        now = self._clock()
        self._since = now if self._since is None else self._since
        self._awaited = {task: seconds for task, seconds in list(self._awaited.items()) if self._is_needed(task)}
        return any(now - self._since < seconds for seconds in self._awaited.values())

    def _is_needed(self, task: str) -> bool:
        known = self._worker.state.tasks.get(task)
        return known is not None and known.state not in LOST_STATES

    def catch_sigterm(self) -> None:
        """Let this process leave before it does what it did at SIGTERM so far; a second SIGTERM acts at once."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        previous = signal.getsignal(signal.SIGTERM)
        if previous is not None and previous != signal.SIG_IGN:
            self._previous, self._loop = previous, asyncio.get_running_loop()
            signal.signal(signal.SIGTERM, self._at_sigterm)

    def restore_sigterm(self) -> None:
        """Undo :meth:`catch_sigterm`, unless somebody has set another handler since."""
        if self._previous is not None and signal.getsignal(signal.SIGTERM) == self._at_sigterm:
            signal.signal(signal.SIGTERM, self._previous)
        self._previous = None

    def _at_sigterm(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        signal.signal(signal.SIGTERM, self._previous)
        self._loop.call_soon_threadsafe(self._begin_end)

    def _begin_end(self) -> None:
        self._end = asyncio.ensure_future(self._leave_and_end())

    async def _leave_and_end(self) -> None:
        while self.leave():
            await asyncio.sleep(_POLL_S)
        _LOG.info("worker %s ends at SIGTERM", self._worker.address)
        os.kill(os.getpid(), signal.SIGTERM)


def is_unwanted(worker: Worker, task: str) -> bool:
    """Return whether the future of the supervisor's `task` was released, so that no client waits for it any more."""
    found = worker.state.tasks.get(task)
    return found is None or found.state not in ("executing", "long-running")


def departure_of(addresses: Collection[str]) -> str:
    """Return a sentence that names the workers."""
    if len(addresses) == 1:
        return f"worker {next(iter(addresses))} is leaving the cluster"
    return f"workers {', '.join(sorted(addresses))} are leaving the cluster"
