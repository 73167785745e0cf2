"""A communicator between threads of one process: the cheapest proof that distributed equals local."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Channel, Communicator, SerialCommunicator
from daskkern.backend.summation import add_in_order
from daskkern.cluster.collectives.channel import framed
from daskkern.errors import CommunicatorClosedError

Result = TypeVar("Result")


class _Board:
    """What the threads of one group share: a slot per rank, two barriers a collective, and the reason to stop."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.slots: list[Array] = [None] * size
        self.timeout_s = timeout_s
        self.reason: str | None = None
        self._gate = threading.Barrier(size)
        self.messages: defaultdict[tuple[int, int], deque[HostArray]] = defaultdict(deque)  # by channel and rank
        self.changed = threading.Condition()
        self._parts: dict[tuple[int, tuple[int, ...]], _Board] = {}

    def of_ranks(self, number: int, ranks: Sequence[int]) -> "_Board":
        """Return the board of some of the threads, the same for all of them; it ends with this one."""
        with self.changed:
            return self._parts.setdefault((number, tuple(ranks)), _Board(len(ranks), self.timeout_s))

    def exchange(self, rank: int, array: Array) -> list[Array]:
        """Put `array` in this rank's slot and return what all ranks put in theirs."""
        self.slots[rank] = array
        self._wait()
        seen = list(self.slots)
        self._wait()  # nobody overwrites a slot that another rank has still to read
        return seen

    def _wait(self) -> None:
        try:
            self._gate.wait(self.timeout_s)
        except threading.BrokenBarrierError:
            reason = self.reason or f"a rank did not arrive within {self.timeout_s:g} s"
            raise CommunicatorClosedError(f"the collective was aborted: {reason}") from None

    def stop(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._gate.abort()
        for part in list(self._parts.values()):
            part.stop(reason)
        with self.changed:
            self.changed.notify_all()


class ThreadedChannel(Channel):
    """One rank's end of a channel between threads."""

    def __init__(self, rank: int, size: int, board: _Board, number: int) -> None:
        self.rank, self.size = rank, size
        self._board, self._number, self._closed = board, number, False

    def send(self, parts: Sequence[HostArray]) -> None:
        whole = np.concatenate(framed(parts))[8:]
        with self._board.changed:
            for rank in set(range(self.size)) - {self.rank}:
                self._board.messages[self._number, rank].append(whole.copy())
            self._board.changed.notify_all()

    def receive(self, root: int) -> HostArray:
        board, mine = self._board, self._board.messages[self._number, self.rank]
        with board.changed:
            board.changed.wait_for(lambda: mine or self._closed or board.reason, board.timeout_s)
            if self._closed or board.reason or not mine:
                raise CommunicatorClosedError(f"the message was given up: {board.reason or 'closed, or late'}")
            return mine.popleft()

    def close(self) -> None:
        with self._board.changed:
            self._closed = True
            self._board.changed.notify_all()


class ThreadedCommunicator(Communicator):
    """One rank of a group of threads; make the whole group with :meth:`group`."""

    def __init__(self, rank: int, size: int, board: _Board, channels: bool = False) -> None:
        self.rank = rank
        self.size = size
        self._channels = 0 if channels else None
        self.timeout_s = board.timeout_s
        self._board = board
        self._n_parts = 0
        self._bytes_sent = 0
        self.sent: list[type] = []
        """What arrays were sent."""

    @property
    def bytes_sent(self) -> int:
        return self._bytes_sent

    @classmethod
    def group(cls, size: int, timeout_s: float = 60.0, channels: bool = False) -> list["ThreadedCommunicator"]:
        """Return the `size` communicators of a new group, one for each thread."""
        board = _Board(size, timeout_s)
        return [cls(rank, size, board, channels) for rank in range(size)]

    def channel(self) -> Channel | None:
        if self._channels is None:
            return None
        self._channels += 1
        return ThreadedChannel(self.rank, self.size, self._board, self._channels)

    def of_ranks(self, ranks: Sequence[int]) -> Communicator:
        self._n_parts += 1
        if list(ranks) == [self.rank]:
            return SerialCommunicator()
        part = ThreadedCommunicator(ranks.index(self.rank), len(ranks), self._board.of_ranks(self._n_parts, ranks))
        part.sent = self.sent
        return part

    def allreduce(self, array: Array) -> Array:
        return add_in_order(self._exchange(array))

    def allgather(self, array: Array) -> Sequence[Array]:
        return [part.copy() for part in self._exchange(array)]

    def broadcast(self, array: Array, root: int = 0) -> Array:
        return self._exchange(array)[root].copy()

    def barrier(self) -> None:
        self._board.exchange(self.rank, None)

    def check(self) -> None:
        if self._board.reason is not None:
            raise CommunicatorClosedError(f"the collective was aborted: {self._board.reason}")

    def abort(self, reason: str) -> None:
        self._board.stop(reason)

    def close(self) -> None:
        return None

    def _exchange(self, array: Array) -> list[Array]:
        self.sent.append(type(array))
        self._bytes_sent += int(array.nbytes) * (self.size - 1)
        return self._board.exchange(self.rank, array.copy())


def run_threads(
    size: int, work: Callable[[Communicator], Result], timeout_s: float = 60.0, channels: bool = False
) -> list[Result]:
    """Run `work(communicator)` on `size` threads and return the results in rank order.

    Their communicators have channels only if requested. The first exception stops the other ranks and is raised here.
    """
    if size == 1:
        return [work(SerialCommunicator())]

    def guarded(communicator: ThreadedCommunicator) -> Result:
        try:
            return work(communicator)
        except BaseException as error:
            communicator.abort(f"rank {communicator.rank} failed: {error}")
            raise

    with ThreadPoolExecutor(size) as pool:
        group = ThreadedCommunicator.group(size, timeout_s, channels)
        futures = [pool.submit(guarded, communicator) for communicator in group]
        errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((e for e in errors if not isinstance(e, CommunicatorClosedError)), errors[0])
    return [future.result() for future in futures]


def reading_threads() -> set[threading.Thread]:
    """Return the threads that read or share rows now.

    Tests compare with those that were there before: a generator that an earlier test has left suspended ends its
    threads when it is collected.
    """
    return {thread for thread in threading.enumerate() if thread.name.startswith(("daskkern-share", "daskkern-read"))}
