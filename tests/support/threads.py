"""A communicator between threads of one process: the cheapest proof that distributed equals local."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.summation import add_in_order
from daskkern.errors import CommunicatorClosedError

Result = TypeVar("Result")


class _Board:
    """What the threads of one group share: a slot per rank, two barriers a collective, and the reason to stop."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.slots: list[Array] = [None] * size
        self.timeout_s = timeout_s
        self.reason: str | None = None
        self._gate = threading.Barrier(size)

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
            raise CommunicatorClosedError(f"the collective was given up: {reason}") from None

    def stop(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._gate.abort()


class ThreadedCommunicator(Communicator):
    """One rank of a group of threads; make the whole group with :meth:`group`."""

    def __init__(self, rank: int, size: int, board: _Board) -> None:
        self.rank = rank
        self.size = size
        self.timeout_s = board.timeout_s
        self._board = board
        self._bytes_sent = 0
        self.sent: list[type] = []
        """What arrays were sent."""

    @property
    def bytes_sent(self) -> int:
        return self._bytes_sent

    @classmethod
    def group(cls, size: int, timeout_s: float = 60.0) -> list["ThreadedCommunicator"]:
        """Return the `size` communicators of a new group, one for each thread."""
        board = _Board(size, timeout_s)
        return [cls(rank, size, board) for rank in range(size)]

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
            raise CommunicatorClosedError(f"the collective was given up: {self._board.reason}")

    def abort(self, reason: str) -> None:
        self._board.stop(reason)

    def close(self) -> None:
        return None

    def _exchange(self, array: Array) -> list[Array]:
        self.sent.append(type(array))
        self._bytes_sent += int(array.nbytes) * (self.size - 1)
        return self._board.exchange(self.rank, array.copy())


def run_threads(size: int, work: Callable[[Communicator], Result], timeout_s: float = 60.0) -> list[Result]:
    """Run `work(communicator)` on `size` threads and return the results in rank order.

    The first exception stops the other ranks and is raised here.
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
        futures = [pool.submit(guarded, communicator) for communicator in ThreadedCommunicator.group(size, timeout_s)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((e for e in errors if not isinstance(e, CommunicatorClosedError)), errors[0])
    return [future.result() for future in futures]
