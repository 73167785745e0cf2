"""Watchdog of operations that wait outside Python: a thread that notices when one cannot end, and aborts it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from daskkern.errors import CommunicatorClosedError

_EVERY_S = 0.01


class StreamEvent(Protocol):
    """A place in the work of a GPU."""

    @property
    def done(self) -> bool:
        """Whether the GPU has come there."""


@dataclass(frozen=True)
class InFlight:
    """An operation that a GPU was given, between two of its events: it may take `timeout_s` from the first on."""

    begun: StreamEvent
    ended: StreamEvent
    timeout_s: float
    late: CommunicatorClosedError


class Watchdog:
    """Watches the operations of one thread: calls that block without the GIL, and what a GPU was given.

    The thread itself polls nothing, and the start and the end of an operation cost it two assignments.

    Parameters
    ----------
    check : callable
        Raises when operations cannot end any more. It is called every 10 ms during an operation, from another thread.
    abort : callable
        Lets the blocked call return. It is called at most once.
    """

    def __init__(self, check: Callable[[], None], abort: Callable[[], None]) -> None:
        self._check, self._abort = check, abort
        self._watched: tuple[float, CommunicatorClosedError] | None = None
        self._flying: deque[InFlight] = deque()
        self._begun_at: float | None = None
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="daskkern-watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self, timeout_s: float, late: CommunicatorClosedError) -> Iterator[None]:
        """Watch what is done inside.

        Raises
        ------
        BaseException
            What the check raised, or `late` when the operation took longer than `timeout_s`.
        """
        self._watched = (time.monotonic() + timeout_s, late)
        try:
            yield
        except Exception as error:
            raise self._error or error  # noqa: B904 (an aborted call fails in its own words)
        finally:
            self._watched = None
        if self._error is not None:
            raise self._error

    def follow(self, operation: InFlight) -> None:
        """Watch an operation of a GPU that follows those watched before, from when it begins to when it ends."""
        self._flying.append(operation)

    @property
    def error(self) -> BaseException | None:
        """Why operations were aborted; None if they were not."""
        return self._error

    def stop(self) -> None:
        """End the thread, at the latest with the check in which it is."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            try:
                late = self._late()
                if late is None:
                    continue
                self._check()
                if time.monotonic() > late[0]:
                    raise late[1]
            except BaseException as error:
                self._error = error
                self._abort()
                return

    def _late(self) -> tuple[float, CommunicatorClosedError] | None:
        """Return until when the oldest operation may take, and what it raises then; None if there is none."""
        while self._flying and self._flying[0].ended.done:
            self._flying.popleft()
            self._begun_at = None
        if not self._flying:
            return self._watched
        oldest = self._flying[0]
        if self._begun_at is None and oldest.begun.done:
            self._begun_at = time.monotonic()
        deadline = float("inf") if self._begun_at is None else self._begun_at + oldest.timeout_s
        if self._watched is not None and self._watched[0] < deadline:
            return self._watched
        return deadline, oldest.late
