"""Watchdog of operations that wait outside Python: a thread that notices when one cannot end, and aborts it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from daskkern.errors import CommunicatorClosedError

_EVERY_S = 0.01


class Watchdog:
    """Watches the operations of one thread, which may block in calls that release the GIL and never return.

    The thread that waits polls nothing, and the start and the end of an operation cost two assignments.

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

    def stop(self) -> None:
        """End the thread, at the latest with the check in which it is."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            watched = self._watched
            if watched is None:
                continue
            deadline, late = watched
            try:
                self._check()
                if time.monotonic() > deadline:
                    raise late
            except BaseException as error:
                self._error = error
                self._abort()
                return
