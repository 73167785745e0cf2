"""Where the time of the ranks goes: own work, waiting for slower ranks, and what the exchange itself costs."""

import time
from array import array as packed
from collections.abc import Callable, Mapping, Sequence
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
    """Seconds between two moments, as means over the ranks; ``working + waiting + exchanging`` is all of them.

    Attributes
    ----------
    working
        Between collectives.
    waiting
        For the slowest rank: for each stretch between two collectives, what the slowest rank worked longer.
    longest_wait
        The same of the rank that waited most.
    exchanging
        All else that was spent in collectives: packing, transfer and addition, as far as no slower rank hid it.
    collectives
        How many there were.
    """

    working: float
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
        self._sums = np.zeros((4, self.size))  # of each rank: work, waiting, time in collectives; and their number
        self._work, self._blocked = packed("d"), 0.0
        self._left = time.perf_counter()

    def times(self) -> Times:
        """Return the times since the last :meth:`begin`, and begin anew. A collective; the same on all ranks."""
        self._work.append(time.perf_counter() - self._left)
        self._fold()
        working, waiting, blocked, number = self._sums
        number -= 1  # the last stretch ends here, and not with a collective
        self.begin()
        return Times(
            float(working.mean()),
            float(waiting.mean()),
            float(waiting.max()),
            max(0.0, float(blocked.mean() - waiting.mean())),
            int(number[0]),
        )

    def allreduce(self, array: Array) -> Array:
        return self._timed(lambda: self._inner.allreduce(array), array)

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
        parts = self._inner.allgather(np.array([self._blocked, *self._work]))
        table = np.stack([np.asarray(part) for part in parts])
        work = table[:, 1:]
        waiting = work.max(axis=0) - work
        number = np.full(self.size, work.shape[1])
        self._sums += [work.sum(axis=1), waiting.sum(axis=1), table[:, 0], number]
        self._work, self._blocked = packed("d"), 0.0
