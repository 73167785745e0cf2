"""Virtual ranks: a fixed number of ranks, distributed over any number of real ranks, with sums in virtual order.

A sum of floating-point numbers depends on its order, and so on the number of ranks. With virtual ranks it is taken
along the tree of :mod:`daskkern.backend.summation` over the terms of all virtual ranks, wherever they were computed. A
real rank adds and sends the nodes of the tree that have only terms of its own, at most 2 log2 V of them. Any number of
real ranks gives the same bits, whichever consecutive virtual ranks each of them runs.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.shares import Shares, share_edges
from daskkern.backend.summation import node_sum, nodes_of
from daskkern.errors import CommunicatorClosedError

Result = TypeVar("Result")


def virtual_ranks(rank: int, size: int, virtual: int, shares: Shares = ()) -> range:
    """Return the consecutive virtual ranks that real rank `rank` of `size` runs; `shares` says how many, if not equal.

    Shares that sum to `virtual` are their numbers.
    """
    edges = share_edges(virtual, size, shares)
    return range(edges[rank], edges[rank + 1])


def _has_tree_of(size: int, virtual: int, shares: Shares) -> bool:
    """Return whether the tree of sums over the real ranks is the upper part of that over the virtual ones."""
    return size == virtual or not (shares or size & (size - 1) or virtual & (virtual - 1))


_LONGEST_S = 86_400.0
"""Longest wait of a virtual rank for the others of its process."""


class _RankTable:
    """The rendezvous of the virtual ranks of one real rank; the first of them talks to the other real ranks."""

    def __init__(self, comm: Communicator, virtual: int, shares: Shares) -> None:
        self.comm, self.virtual, self.shares = comm, virtual, shares
        self.ranges = [virtual_ranks(rank, comm.size, virtual, shares) for rank in range(comm.size)]
        self.own = self.ranges[comm.rank]
        self._slots: list[Any] = [None] * len(self.own)
        self._answer: Any = None
        self._reason: str | None = None
        self._gate = threading.Barrier(len(self.own))

    def meet(self, place: int, array: Array, work: Callable[[list[Array]], Any]) -> Any:
        """Return ``work(arrays of all places)``, computed by the first place. Nobody may modify the result."""
        self._slots[place] = array
        self._wait()
        if place == 0:
            try:
                self._answer = work(list(self._slots))
            except BaseException as error:
                self.stop(str(error))
                raise
        self._wait()
        return self._answer  # not replaced before all ranks have met again

    def check(self) -> None:
        if self._reason is not None:
            raise CommunicatorClosedError(f"the collective was aborted: {self._reason}")
        self.comm.check()

    def stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._gate.abort()

    def _wait(self) -> None:
        try:
            self._gate.wait(_LONGEST_S)  # a failure of any place opens it; slow steps take their time
        except threading.BrokenBarrierError:
            reason = self._reason or "a virtual rank of this rank did not arrive"
            raise CommunicatorClosedError(f"the collective was aborted: {reason}") from None


class VirtualCommunicator(Communicator):
    """One virtual rank, called from a thread of its own. See :func:`run_virtual`."""

    def __init__(self, table: _RankTable, place: int) -> None:
        self.rank = table.own[place]
        self.size = table.virtual
        self.timeout_s = table.comm.timeout_s
        self._table, self._place = table, place

    @property
    def bytes_sent(self) -> int:
        """What the real rank has sent, for its first virtual rank."""
        return 0 if self._place else self._table.comm.bytes_sent

    @property
    def ways(self) -> Mapping[str, int]:
        return self._table.comm.ways

    def allreduce(self, array: Array) -> Array:
        xp, comm, size = namespace_of(array), self._table.comm, self.size
        nodes = [nodes_of(own.start, own.stop, size) for own in self._table.ranges]

        def add(terms: list[Array]) -> Array:
            own = {(i, i + 1): xp.asarray(term) for i, term in zip(self._table.own, terms, strict=True)}
            sums = [node_sum(node, size, own) for node in nodes[comm.rank]]
            if _has_tree_of(comm.size, size, self._table.shares):
                return comm.allreduce(sums[0])
            gathered = comm.allgather(xp.stack(sums))
            parts = {
                node: part[i, ...] for found, part in zip(nodes, gathered, strict=True) for i, node in enumerate(found)
            }
            return node_sum((0, size), size, parts)

        return xp.array(self._meet(array, add))

    def allgather(self, array: Array) -> Sequence[Array]:
        xp, comm = namespace_of(array), self._table.comm

        def gather(parts: list[Array]) -> list[Array]:
            lengths = comm.allgather(np.array([len(part) for part in parts], np.int64))
            of_ranks = [int(some.sum()) for some in lengths]
            joined = xp.concatenate(list(comm.allgather_of(xp.concatenate(parts), of_ranks)))
            edges = [0, *np.cumsum(np.concatenate(list(lengths))).tolist()]
            return [joined[low:high] for low, high in pairwise(edges)]

        return [part.copy() for part in self._meet(array, gather)]

    def broadcast(self, array: Array, root: int = 0) -> Array:
        xp, table = namespace_of(array), self._table
        if not 0 <= root < self.size:
            raise ValueError(
                f"got root={root} of a broadcast; expected 0 to {self.size - 1}, one of the {self.size} ranks"
            )
        comm = table.comm
        home = next(rank for rank, own in enumerate(table.ranges) if root in own)
        at = root - table.own.start if root in table.own else 0
        # Copied before the ranks separate: the root may change its own array while others still copy.
        return xp.array(self._meet(array, lambda arrays: xp.array(comm.broadcast(arrays[at], home))))

    def barrier(self) -> None:
        self._meet(None, lambda _: self._table.comm.barrier())

    def check(self) -> None:
        self._table.check()

    def abort(self, reason: str) -> None:
        self._table.stop(reason)
        self._table.comm.abort(reason)

    def close(self) -> None:
        return None

    def _meet(self, array: Array, work: Callable[[list[Array]], Any]) -> Any:
        self._table.check()
        return self._table.meet(self._place, array, work)


def run_virtual(
    comm: Communicator, virtual: int, work: Callable[[Communicator, int], Result], shares: Shares = ()
) -> list[Result]:
    """Run ``work(communicator, place)`` for each of this rank's share of `virtual` ranks: the first in this thread, the
    others in threads of their own, in copies of this thread's context.

    `place` counts this rank's own from 0. Returns the results in order; the first exception stops the others, here and
    on the other ranks, and is raised. A collective: every rank of `comm` calls it, and they are at most as many as the
    virtual ranks. `shares` are those of :func:`virtual_ranks`, of which each is at least 1.
    """
    table = _RankTable(comm, virtual, shares)

    def guarded(place: int) -> Result:
        mine = VirtualCommunicator(table, place)
        try:
            return work(mine, place)
        except BaseException as error:
            mine.abort(f"virtual rank {mine.rank} failed: {type(error).__name__}: {error}")
            raise

    errors: list[BaseException] = []
    with ThreadPoolExecutor(max(1, len(table.own) - 1), "daskkern-virtual") as pool:
        futures = [pool.submit(copy_context().run, guarded, place) for place in range(1, len(table.own))]
        try:
            first = [guarded(0)]
        except BaseException as problem:
            errors.append(problem)
        errors += [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, CommunicatorClosedError)), errors[0])
    return first + [future.result() for future in futures]
