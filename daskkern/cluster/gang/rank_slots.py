"""One running rank per fit on a worker: the rank of a new generation waits until the earlier one has ended."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from daskkern.errors import CommunicatorClosedError

_LOOK_S = 0.1


class RankSlots:
    """The fits that have a running rank on this worker. Thread-safe.

    An aborted rank runs on until its next collective, which may be minutes away in a large matrix product, with all
    of its memory; the plan of a fit has room for one rank.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._changed = threading.Condition()

    def taken(self, fit: str) -> bool:
        """Return whether a rank of `fit` runs."""
        return fit in self._taken

    @contextmanager
    def held(self, fit: str, given_up: Callable[[], str | None], wait: Callable[[], None]) -> Iterator[None]:
        """Hold the slot of `fit` during the context, after waiting for the rank that holds it.

        Parameters
        ----------
        given_up : callable
            Returns the reason why this rank is no longer needed, or None.
        wait : callable
            Called once if this rank has to wait.

        Raises
        ------
        CommunicatorClosedError
            When the rank is given up while it waits.
        """
        with self._changed:
            if fit in self._taken:
                wait()
            while fit in self._taken:
                reason = given_up()
                if reason is not None:
                    raise CommunicatorClosedError(f"the rank was given up before it started: {reason}")
                self._changed.wait(_LOOK_S)
            self._taken.add(fit)
        try:
            yield
        finally:
            with self._changed:
                self._taken.discard(fit)
                self._changed.notify_all()
