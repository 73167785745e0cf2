"""Where the time of the ranks goes: computing, reading, keeping commits, waiting for slower ranks, and exchange."""

import time
from array import array as packed
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import settle

Result = TypeVar("Result")

_FOLD = 65_536
"""So many collectives are kept before their times are summed up over the ranks."""


@dataclass(frozen=True)
class Times:
    """Seconds between two moments, as means over the ranks; but for `longest_wait` they add up to all of them.

    Attributes
    ----------
    computing
        Between collectives, as far as it is none of the next two.
    reading
        Waiting for rows or kept blocks that were not there yet; what is read beside other work does not count.
    checkpointing
        Collecting and keeping commits, collectives for that included; files are written beside other work.
    waiting
        For the slowest rank: for each stretch between two collectives, what the slowest rank worked longer.
    longest_wait
        The same of the rank that waited most.
    exchanging
        All else that was spent in collectives: packing, transfer and addition, as far as no slower rank hid it.
    collectives
        How many there were.
    """

    computing: float
    reading: float
    checkpointing: float
    waiting: float
    longest_wait: float
    exchanging: float
    collectives: int


class TimedCommunicator(Communicator):
    """Another communicator, with a clock. Collectives do what they do there.

    The clocks of the ranks are never compared, only durations: with ``w[r, i]`` the work of rank r before collective
    i, the ranks can meet ``max_r w[r, i]`` after the last one at the earliest, so rank r waits
    ``max_s w[s, i] - w[r, i]`` whatever the network does. The rest of its time in collectives is their own cost.
    """

    def __init__(self, inner: Communicator) -> None:
        self.rank, self.size, self.timeout_s = inner.rank, inner.size, inner.timeout_s
        self.sends_ahead = inner.sends_ahead
        self._inner = inner
        self.begin()

    @property
    def bytes_sent(self) -> int:
        return self._inner.bytes_sent

    @property
    def ways(self) -> Mapping[str, int]:
        return self._inner.ways

    def begin(self) -> None:
        """Start the clock anew."""
        self._sums = np.zeros((6, self.size))  # of each rank: work, waiting, the next three; and how many collectives
        self._blocked, self._reading, self._checkpointing = 0.0, 0.0, 0.0
        self._work, self._apart = packed("d"), False
        self._left = time.perf_counter()

    def times(self) -> Times:
        """Return the times since the last :meth:`begin`, and begin anew. A collective; the same on all ranks."""
        self._work.append(time.perf_counter() - self._left)
        self._fold()
        working, waiting, blocked, reading, checkpointing, number = self._sums
        number -= 1  # the last stretch ends here, and not with a collective
        self.begin()
        return Times(
            max(0.0, float((working - reading - checkpointing).mean())),
            float(reading.mean()),
            float(checkpointing.mean()),
            float(waiting.mean()),
            float(waiting.max()),
            max(0.0, float(blocked.mean() - waiting.mean())),
            int(number[0]),
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count what happens inside, where there are no collectives, as reading."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._reading += time.perf_counter() - begun

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Count what happens inside as checkpointing, with its collectives. Every rank does so at the same place."""
        begun, self._apart = time.perf_counter(), True
        try:
            yield
        finally:
            self._apart = False
            self._checkpointing += time.perf_counter() - begun

    def allreduce(self, array: Array) -> Array:
        return self._timed(lambda: self._inner.allreduce(array), array)

    def begin_allreduce(self, array: Array) -> Callable[[], Array]:
        """Return what ends the sum; only that is counted as a collective, and what comes before it as work.

        Where the sum is taken at once it is counted as any other.
        """
        if type(self._inner).begin_allreduce is Communicator.begin_allreduce:
            return super().begin_allreduce(array)
        settle(array)
        finish = self._inner.begin_allreduce(array)
        return lambda: self._timed(finish)

    def allgather(self, array: Array) -> Sequence[Array]:
        return self._timed(lambda: self._inner.allgather(array), array)

    def broadcast(self, array: Array, root: int = 0) -> Array:
        return self._timed(lambda: self._inner.broadcast(array, root), array)

    def barrier(self) -> None:
        self._timed(self._inner.barrier)

    def check(self) -> None:
        self._inner.check()

    def abort(self, reason: str) -> None:
        self._inner.abort(reason)

    def close(self) -> None:
        self._inner.close()

    def _timed(self, collective: Callable[[], Result], array: Array = None) -> Result:
        if self._apart:
            return collective()
        settle(array)  # a GPU may still be at work on what is handed over
        begun = time.perf_counter()
        self._work.append(begun - self._left)
        result = collective()
        self._left = time.perf_counter()
        self._blocked += self._left - begun
        if len(self._work) >= _FOLD:
            self._fold()
            self._left = time.perf_counter()
        return result

    def _fold(self) -> None:
        """Add the stretches so far to the sums. All ranks are here after the same collective."""
        parts = self._inner.allgather(np.array([self._blocked, self._reading, self._checkpointing, *self._work]))
        table = np.stack([np.asarray(part) for part in parts])
        work = table[:, 3:]
        waiting = work.max(axis=0) - work
        number = np.full(self.size, work.shape[1])
        self._sums += [work.sum(axis=1), waiting.sum(axis=1), *table[:, :3].T, number]
        self._work, self._blocked, self._reading, self._checkpointing = packed("d"), 0.0, 0.0, 0.0
