"""Sums of small arrays through memory that the ranks of a host share, instead of messages within the host.

A message between two processes of one host passes two event loops and takes about a millisecond; a write to shared
memory takes microseconds. Each rank copies its term into a slot of its own and raises a counter.

- On one host, each rank waits for the counters of the others and adds all slots itself.
- On several hosts, the first rank of each host adds the terms of its host as far as they are neighbours in the tree of
  :mod:`daskkern.backend.summation`. These ranks exchange what they have by recursive doubling, and write the total into
  memory for their hosts: log2 H crossings of the network, whatever the number of ranks on a host.

The bits are those of every other algorithm. Deadlines, aborts and the question whether a peer is still at work are
those of messages.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.summation import Node, add_in_order, node_sum, nodes_of
from daskkern.cluster.collectives.allreduce import TreePlace
from daskkern.cluster.collectives.shared_memory import HostMemory, HostSlots
from daskkern.cluster.collectives.transport import PeerTransport
from daskkern.cluster.collectives.wire import owned
from daskkern.errors import CommunicatorClosedError

SHARED, LEVELS = "shared memory", "shared memory and doubling"
"""Names of the algorithms on one host and on several, in the timing breakdown of a fit."""

_YIELD_S = 1e-4
_LONGEST_PAUSE_S = 1e-3
_OPERATION = "allreduce of a small array"


@dataclass(frozen=True)
class HostRanks:
    """The ranks of a communicator by host.

    Attributes
    ----------
    starts : tuple of int
        The first rank of each host, and the number of ranks: each host has consecutive ranks.
    place : int
        The number of this rank's host.
    """

    starts: tuple[int, ...]
    place: int

    @classmethod
    def of(cls, hosts: Sequence[str], rank: int) -> "HostRanks | None":
        """Return them from the host of each rank; None unless the ranks of every host follow each other."""
        lengths = [len(list(group)) for _, group in groupby(hosts)]
        if len(lengths) > len(set(hosts)):
            return None
        starts = (0, *(int(stop) for stop in np.cumsum(lengths)))
        return cls(starts, int(np.searchsorted(starts, rank, "right")) - 1)

    @property
    def n_hosts(self) -> int:
        return len(self.starts) - 1

    @property
    def own(self) -> range:
        """The ranks of this rank's host."""
        return range(self.starts[self.place], self.starts[self.place + 1])


class SharedSums:
    """The sums of one communicator, each of which is finished before the next one begins.

    Two slots for each rank are enough: a rank that gives its term to a sum has finished the one before, for which all
    ranks of its host had given theirs, having read what they need of the sum before that.
    """

    def __init__(self, slots: HostSlots, transport: PeerTransport, hosts: HostRanks) -> None:
        self.name = SHARED if hosts.n_hosts == 1 else LEVELS
        self._slots, self._transport, self._hosts = slots, transport, hosts
        self._own = transport.rank - hosts.own.start
        self._n_sums = 0

    @classmethod
    def of(
        cls, memory: HostMemory, region: int, transport: PeerTransport, hosts: Sequence[str], places: Sequence[int]
    ) -> "SharedSums | None":
        """Return the sums of a communicator; None where its ranks send messages instead.

        Parameters
        ----------
        memory : HostMemory
            That of this rank's host.
        region : int
            See :meth:`HostMemory.slots`.
        transport : PeerTransport
            That of the communicator.
        hosts : sequence of str
            The host of each rank.
        places : sequence of int
            The number of each rank among those of its host that have mapped the memory.
        """
        ranks = HostRanks.of(hosts, transport.rank)
        if ranks is None or ranks.n_hosts == len(hosts):
            return None
        slots = memory.slots(region, [places[rank] for rank in ranks.own])
        return None if slots is None else cls(slots, transport, ranks)

    def suits(self, host: HostArray) -> bool:
        """Return whether an array is small enough; the same on all ranks of a host."""
        return self._slots.have_room_for(host)

    def begin(self, host: HostArray) -> Callable[[], HostArray]:
        """Give this rank's term to the next sum, and return the function that waits for the others and adds."""
        self._n_sums += 1
        self._transport.begin()
        self._slots.give(self._own, self._n_sums, host, self._transport.round)
        if self._hosts.n_hosts == 1:
            return lambda: add_in_order(self._terms(host))
        if self._own == 0:
            return lambda: self._total_of_hosts(host)
        return lambda: self._total_of_first(host)

    def _terms(self, host: HostArray) -> list[HostArray]:
        """Wait for the terms of this host's ranks, and return views of them."""
        first = self._hosts.own.start
        self._transport.await_others(lambda: first + self._slots.missing(self._n_sums), _pause, _OPERATION)
        terms = self._slots.arrays(self._n_sums)
        for rank, term in enumerate(terms, first):
            if self._slots.round_of(rank - first, self._n_sums) != self._transport.round:
                raise CommunicatorClosedError(
                    f"rank {rank} took part in other collectives before this {_OPERATION}; every rank must call the "
                    "same collectives in the same order"
                )
            self._transport.same(rank, term, host, _OPERATION)
        return terms

    def _total_of_first(self, host: HostArray) -> HostArray:
        """Wait for the total that the first rank of this host writes."""
        first = self._hosts.own.start
        self._transport.await_others(
            lambda: () if self._slots.has_total(0, self._n_sums) else (first,), _pause, _OPERATION
        )
        total = self._slots.array(0, self._n_sums)
        self._transport.same(first, total, host, _OPERATION)
        return total.copy()

    def _total_of_hosts(self, host: HostArray) -> HostArray:
        """Add the terms of this host, exchange them with the first ranks of the others, and write the total."""
        first = self._hosts.own.start
        terms = {(rank, rank + 1): term for rank, term in enumerate(self._terms(host), first)}
        total = _Doubling(self._transport, self._hosts, host).total(terms)
        self._slots.give_total(0, self._n_sums, total)
        return total


class _Doubling:
    """Recursive doubling between the first ranks of hosts, whose ranks need not be the terms of one node of the tree.

    A rank holds the sums of the largest nodes below which all terms belong to the hosts that it has heard of: one node
    where every host has the same power of two of ranks, a few elsewhere. They travel in one message.
    """

    def __init__(self, transport: PeerTransport, hosts: HostRanks, host: HostArray) -> None:
        self._transport, self._hosts, self._array = transport, hosts, host
        self._place = TreePlace.of(hosts.place, hosts.n_hosts)

    def total(self, terms: dict[Node, HostArray]) -> HostArray:
        """Return the sum of all ranks' terms, of which `terms` are this host's."""
        place, size = self._place, self._transport.size
        own = hosts = range(place.rank, place.rank + 1)
        sums = self._sums_of(own, terms)
        if place.folded == "gives":
            self._push(place.rank - 1, list(sums.values()))
            return owned(self._take(place.rank - 1, [(0, size)], 1.0)[0, size])
        if place.folded == "absorbs":
            hosts = range(place.rank, place.rank + 2)
            sums = self._sums_of(hosts, sums | self._take(place.rank + 1, self._nodes(hosts[1:])))
        for number, partner in enumerate(place.partners()):
            self._push(partner, list(sums.values()))
            span = 2**number
            theirs, both = self._block(partner, span), self._block(place.rank, 2 * span)
            sums = self._sums_of(both, sums | self._take(partner, self._nodes(theirs), number / 20))
        total = node_sum((0, size), size, sums)
        if place.folded == "absorbs":
            self._push(place.rank + 1, [total])
        return total

    def _block(self, host: int, span: int) -> range:
        """Return the hosts whose terms a host has after log2 `span` exchanges."""
        place = TreePlace.of(host, self._hosts.n_hosts)
        pairs = self._hosts.n_hosts - place.n_leaves
        first = place.leaf // span * span
        return range(first + min(first, pairs), first + span + min(first + span, pairs))

    def _nodes(self, hosts: range) -> list[Node]:
        starts = self._hosts.starts
        return nodes_of(starts[hosts.start], starts[hosts.stop], self._transport.size)

    def _sums_of(self, hosts: range, parts: dict[Node, HostArray]) -> dict[Node, HostArray]:
        return {node: node_sum(node, self._transport.size, parts) for node in self._nodes(hosts)}

    def _push(self, host: int, sums: Sequence[HostArray]) -> None:
        self._transport.push([self._hosts.starts[host]], _OPERATION, np.stack(sums))

    def _take(self, host: int, nodes: Sequence[Node], patience: float = 0.0) -> dict[Node, HostArray]:
        rank = self._hosts.starts[host]
        (theirs,) = self._transport.take([rank], _OPERATION, patience)
        self._transport.same(rank, theirs, np.broadcast_to(self._array, (len(nodes), *self._array.shape)), _OPERATION)
        return dict(zip(nodes, theirs, strict=True))


def _pause(waited_s: float) -> None:
    """Let others run: the longer this rank has waited, the longer. A pause of 0 s gives way to who is ready to run."""
    time.sleep(0 if waited_s < _YIELD_S else min(_LONGEST_PAUSE_S, waited_s / 10))
