"""The interface of the collectives between the ranks of a fit, and its serial implementation.

A solver is written once against :class:`Communicator`. With :class:`SerialCommunicator` it is an ordinary
single-process program; threads, Dask's comms and NCCL give the same numbers from several processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.device_rows import DeviceRows
from daskkern.backend.namespace import is_sparse, namespace_of, to_host
from daskkern.errors import SpecError


class Communicator(ABC):
    """Collectives over the `size` ranks of one fit. Every rank calls the same collectives in the same order.

    They take and return arrays, never pickled objects. Inputs are not modified. Sums are taken along the tree of
    :mod:`daskkern.backend.summation`, so every rank gets the same bits. A collective whose peer is gone, or whose
    deadline has passed, raises :class:`daskkern.errors.CommunicatorClosedError`; it never waits for ever.
    """

    rank: int
    size: int
    timeout_s: float = 60.0
    """How long one collective waits for its peers."""
    in_stream: ModuleType | None = None
    """The module of the arrays whose collectives return before they have ended: what its current stream is given later
    follows them. Where one fails, the next collective and :meth:`check` raise, and arrays that were read meanwhile are
    invalid. None where every collective waits."""

    @property
    def bytes_sent(self) -> int:
        """Payload bytes that this rank has sent so far."""
        return 0

    @property
    def ways(self) -> Mapping[str, int]:
        """Number of sums so far by algorithm; empty if there is only one algorithm."""
        return {}

    @abstractmethod
    def allreduce(self, array: Array) -> Array:
        """Return the sum of `array` over all ranks: same shape and dtype everywhere."""

    def begin_allreduce(self, array: Array) -> Callable[[], Array]:
        """Begin :meth:`allreduce`, and return the function that finishes it. Other work may come between, but no
        collectives.

        Where communication overlaps work, messages are in transit meanwhile; elsewhere the sum is taken at once.
        """
        total = self.allreduce(array)
        return lambda: total

    @abstractmethod
    def allgather(self, array: Array) -> Sequence[Array]:
        """Return the arrays of all ranks, in rank order. Shapes may differ in the first axis."""

    def allgather_of(self, array: Array, lengths: Sequence[int]) -> Sequence[Array]:
        """Return what :meth:`allgather` does, where the caller knows the lengths of all arrays in the first axis.

        Where messages do not carry lengths, the ranks need not exchange them first.

        Raises
        ------
        ValueError
            When an array has another length than `lengths` says.
        """
        check_lengths([len(array)], lengths[self.rank : self.rank + 1])
        parts = self.allgather(array)
        check_lengths([len(part) for part in parts], lengths)
        return parts

    def gather_to(self, array: Array, holders: Sequence[int]) -> Sequence[Array] | None:
        """Return the arrays of all ranks, in rank order, on the ranks `holders`, and None on the others."""
        parts = self.allgather(array)
        return parts if self.rank in holders else None

    sends_ahead: bool = False
    """Whether the root of a broadcast continues at once: it may then send what others only receive later."""

    @abstractmethod
    def broadcast(self, array: Array, root: int = 0) -> Array:
        """Return rank `root`'s array on every rank. The others pass an array of the same shape and dtype."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank has arrived."""

    def channel(self) -> "Channel | None":
        """Return a new channel between the ranks, None where there is none. Not a collective.

        Every rank makes the same channels in the same order.
        """
        return None

    def of_ranks(self, ranks: Sequence[int]) -> "Communicator":
        """Return a communicator of some of the ranks, this one among them, in their order. Not a collective.

        Every rank makes as many of them, in the same order; its collectives are those of the given ranks only. It ends
        with this communicator, and its sums have the bits of a communicator that has no other ranks.

        Raises
        ------
        SpecError
            When this communicator cannot be divided.
        """
        if list(ranks) == [self.rank]:
            return SerialCommunicator()
        raise SpecError(f"the ranks of a {type(self).__name__} cannot be divided into groups; give groups=1")

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Make every pending and later collective of this fit raise, here and on the peers, with `reason`."""

    def check(self) -> None:
        """Raise CommunicatorClosedError when this fit was aborted. Not a collective."""
        return

    @abstractmethod
    def close(self) -> None:
        """Release what the communicator holds. Idempotent."""


class Channel(ABC):
    """A sequence of messages from one rank to all others, apart from the collectives, for one thread of each rank.

    Every rank takes part in the same messages in the same order: one sends, and the others receive. Neither waits for
    collectives, nor do they wait for messages. When the communicator is aborted, both raise.
    """

    rank: int
    size: int

    @abstractmethod
    def send(self, parts: Sequence[HostArray]) -> None:
        """Send the bytes of contiguous arrays to all other ranks, one after the other. Does not wait for them."""

    @abstractmethod
    def receive(self, root: int) -> HostArray:
        """Return the bytes (n,), uint8, that rank `root` sends; each array begins at a multiple of 8 bytes.

        Raises
        ------
        CommunicatorClosedError
            When the channel was closed, the communicator was aborted, or the rank that sends has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """End the channel on this rank: what waits in :meth:`receive` raises. Idempotent, from any thread."""

    def starving(self, starving: bool) -> None:
        """Say whether the rank's own thread waits for what the channel brings: it then computes nothing."""
        del starving


class SerialCommunicator(Communicator):
    """The communicator of a single rank: every collective is the identity."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1

    def allreduce(self, array: Array) -> Array:
        return array

    def allgather(self, array: Array) -> Sequence[Array]:
        return [array]

    def broadcast(self, array: Array, root: int = 0) -> Array:
        if root != 0:
            raise ValueError(f"got root={root} of a broadcast; expected 0, the only rank")
        return array

    def barrier(self) -> None:
        return None

    def abort(self, reason: str) -> None:
        del reason

    def close(self) -> None:
        return None


def check_lengths(found: Sequence[int], expected: Sequence[int]) -> None:
    """Raise ValueError unless arrays have the lengths that a caller of :meth:`Communicator.allgather_of` gave."""
    if list(found) != list(expected):
        raise ValueError(f"got arrays of {list(found)} rows to gather; expected {list(expected)}, as the caller said")


def allgather_rows(rows: Array, comm: Communicator) -> Array:
    """Return the rows (m_r, d) of all ranks, dense or CSR, concatenated in rank order."""
    if not is_sparse(rows):
        return namespace_of(rows).concatenate(list(comm.allgather(rows)))
    xp = namespace_of(rows.data)
    data, columns, lengths = (
        xp.concatenate(list(comm.allgather(part)))
        for part in (rows.data, rows.indices.astype(np.int64), xp.diff(rows.indptr).astype(np.int64))
    )
    starts = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(lengths)])
    shape = (int(lengths.size), int(rows.shape[1]))
    if isinstance(rows, DeviceRows):
        return DeviceRows(xp, data, columns.astype(np.int32), starts, to_host(starts), shape)
    return type(rows)((data, columns, starts), shape=shape)
