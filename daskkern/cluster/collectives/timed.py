"""Timing of the ranks: computing, reading, checkpointing, waiting for slower ranks, and exchange."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Channel, Communicator, SerialCommunicator
from daskkern.backend.namespace import settle
from daskkern.cluster.collectives.intervals import Intervals, Stopwatch, StreamClock

Result = TypeVar("Result")


@dataclass(frozen=True)
class Times:
    """Seconds between two points in time, as means over the ranks; all but `longest_wait` add up to the total.

    Attributes
    ----------
    computing
        Between collectives, except for the next two.
    reading
        Waiting for rows or cached blocks that had not arrived; reading that overlaps other work does not count.
    checkpointing
        Collecting and storing commits, their collectives included; files are written in the background.
    waiting
        For the slowest rank: over each interval between two collectives, how much longer the slowest rank worked.
    longest_wait
        The same for the rank that waited most.
    exchanging
        The rest of the time in collectives: packing, transfer and addition, unless hidden by a slower rank.
    collectives
        The number of collectives.
    """

    computing: float
    reading: float
    checkpointing: float
    waiting: float
    longest_wait: float
    exchanging: float
    collectives: int


class TimedCommunicator(Communicator):
    """A wrapper that times the collectives of another communicator and leaves their results unchanged.

    The clocks of the ranks are never compared, only durations: with ``w[r, i]`` the work of rank r before collective
    i, the ranks can meet no earlier than ``max_r w[r, i]`` after the last one, so rank r waits
    ``max_s w[s, i] - w[r, i]`` whatever the network does. The rest of its time in collectives is their own cost. Where
    collectives return before they have ended, all this is measured on the stream that they are given to: nothing waits.

    Parameters
    ----------
    inner : Communicator
    fold : int
        Collectives after which the recorded times are summed over the ranks; the same on all ranks.
    whole, across : Communicator or None
        Where `inner` is that of one group in a grid of ranks: the communicator of all ranks, and that of the ranks of
        equal place, in the order of their groups.
    """

    def __init__(
        self,
        inner: Communicator,
        fold: int = 65_536,
        whole: Communicator | None = None,
        across: Communicator | None = None,
    ) -> None:
        self._adopt(inner)
        self._most, self._everyone = fold, whole or inner
        self._whole = None if whole is None else _TimedPart(whole, self)
        self._across = _TimedPart(across or SerialCommunicator(), self)
        stream = self._everyone.in_stream
        self._clock: Stopwatch = _HostClock() if stream is None else StreamClock(stream)
        self.begin()

    def _adopt(self, inner: Communicator) -> None:
        self.rank, self.size, self.timeout_s = inner.rank, inner.size, inner.timeout_s
        self.sends_ahead, self.in_stream, self._inner = inner.sends_ahead, inner.in_stream, inner

    @property
    def whole(self) -> "TimedCommunicator":
        """The communicator of all ranks of the fit, timed together with this one."""
        return self._whole or self

    @property
    def across(self) -> "TimedCommunicator":
        """The communicator of the ranks of equal place in all groups, timed with this one; its ranks are the groups."""
        return self._across

    @property
    def bytes_sent(self) -> int:
        parts = () if self._whole is None else (self._everyone, self._across)
        return self._inner.bytes_sent + sum(part.bytes_sent for part in parts)

    @property
    def ways(self) -> Mapping[str, int]:
        return self._inner.ways if self._whole is None else {**self._inner.ways, **self._across.ways}

    def begin(self) -> None:
        """Restart the clock."""
        # Per rank: work, waiting, the next three; and the number of collectives.
        self._sums = np.zeros((6, self._everyone.size))
        self._intervals, self._number, self._apart = Intervals(self._clock), 0, False
        self._left = self._clock.mark()

    def times(self) -> Times:
        """Return the times since the last :meth:`begin`, and restart. A collective; the same on all ranks."""
        self._intervals.add("work", self._left, self._clock.mark())
        self._fold()
        working, waiting, blocked, reading, checkpointing, number = self._sums
        number -= 1  # the last interval ends here, not with a collective
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
        """Count the time inside the context, which contains no collectives, as reading."""
        begun = self._clock.mark()
        try:
            yield
        finally:
            self._intervals.add("reading", begun, self._clock.mark())

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Count the time inside the context, collectives included, as checkpointing. Every rank enters it together."""
        begun, self._apart = self._clock.mark(), True
        try:
            yield
        finally:
            self._apart = False
            self._intervals.add("checkpointing", begun, self._clock.mark())

    def allreduce(self, array: Array) -> Array:
        return self._timed(lambda: self._inner.allreduce(array), array)

    def begin_allreduce(self, array: Array) -> Callable[[], Array]:
        """Return the function that finishes the sum; only that counts as a collective, and the time before it as work.

        Where the sum is taken at once, it counts like any other.
        """
        if type(self._inner).begin_allreduce is Communicator.begin_allreduce:
            return super().begin_allreduce(array)
        self._settle(array)
        finish = self._inner.begin_allreduce(array)
        return lambda: self._timed(finish)

    def allgather(self, array: Array) -> Sequence[Array]:
        return self._timed(lambda: self._inner.allgather(array), array)

    def allgather_of(self, array: Array, lengths: Sequence[int]) -> Sequence[Array]:
        return self._timed(lambda: self._inner.allgather_of(array, lengths), array)

    def gather_to(self, array: Array, holders: Sequence[int]) -> Sequence[Array] | None:
        return self._timed(lambda: self._inner.gather_to(array, holders), array)

    def broadcast(self, array: Array, root: int = 0) -> Array:
        return self._timed(lambda: self._inner.broadcast(array, root), array)

    def barrier(self) -> None:
        self._timed(self._inner.barrier)

    def channel(self) -> Channel | None:
        return self._everyone.channel()

    def check(self) -> None:
        self._everyone.check()

    def abort(self, reason: str) -> None:
        self._everyone.abort(reason)

    def close(self) -> None:
        self._everyone.close()

    def _timed(self, collective: Callable[[], Result], array: Array = None) -> Result:
        if self._apart:
            return collective()
        self._settle(array)
        begun = self._clock.mark()
        self._intervals.add("work", self._left, begun)
        result = collective()
        self._left = self._clock.mark()
        self._intervals.add("blocked", begun, self._left)
        self._number += 1
        if self._number >= self._most:
            self._fold()
            self._left = self._clock.mark()
        return result

    def _settle(self, array: Array) -> None:
        """Wait until a GPU has computed what is to be sent, so that this counts as work. One rank sends nothing."""
        if self.size > 1 and self.in_stream is None:
            settle(array)

    def _fold(self) -> None:
        """Add the intervals so far to the sums. All ranks call this after the same collective."""
        totals, work = self._intervals.read()
        parts = self._everyone.allgather(np.array([*totals, *work]))
        table = np.stack([np.asarray(part) for part in parts])
        spans = table[:, 3:]
        waiting = spans.max(axis=0) - spans
        number = np.full(len(table), spans.shape[1])
        self._sums += [spans.sum(axis=1), waiting.sum(axis=1), *table[:, :3].T, number]
        self._number = 0


class _HostClock:
    """The clock of the host."""

    behind = 0

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, begun: float, ended: float) -> float:
        return ended - begun


class _TimedPart(TimedCommunicator):
    """A communicator whose collectives count together with those of another one."""

    def __init__(self, inner: Communicator, timer: TimedCommunicator) -> None:
        self._adopt(inner)
        self._timer, self._everyone = timer, inner

    @property
    def whole(self) -> TimedCommunicator:
        return self._timer.whole

    @property
    def across(self) -> TimedCommunicator:
        return self._timer.across

    @property
    def bytes_sent(self) -> int:
        return self._inner.bytes_sent

    @property
    def ways(self) -> Mapping[str, int]:
        return self._inner.ways

    def begin(self) -> None:
        self._timer.begin()

    def times(self) -> Times:
        return self._timer.times()

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._timer.reading():
            yield

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        with self._timer.checkpointing():
            yield

    def _timed(self, collective: Callable[[], Result], array: Array = None) -> Result:
        return self._timer._timed(collective, array)
