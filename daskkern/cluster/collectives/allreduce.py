"""Allreduce algorithms: direct exchange, star, reduce-scatter, recursive doubling and recursive halving.

All add along the tree of :mod:`daskkern.backend.summation`, whatever order the messages arrive in. They therefore give
the same bits on every rank and in every run, those of the communicators of one process. A ring would add in another
order.

Each function begins a sum and returns the function that finishes it. It sends at once what does not depend on others.
:mod:`daskkern.cluster.collectives.sum_costs` chooses one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.summation import add_in_order, n_pairs
from daskkern.cluster.collectives.transport import PeerTransport
from daskkern.cluster.collectives.wire import owned

Way: TypeAlias = Literal["alone", "direct", "star", "doubling", "reduce_scatter", "halving"]

Finish: TypeAlias = Callable[[], HostArray]

_OPERATION = "allreduce"


def alone(transport: PeerTransport, host: HostArray) -> Finish:
    """Return a copy: there are no other ranks."""
    del transport
    return lambda: owned(host)


def direct(transport: PeerTransport, host: HostArray) -> Finish:
    """Every rank pushes its array to all others, and all add. One crossing; W (W - 1) messages."""
    transport.begin()
    transport.push(transport.peers, _OPERATION, host)

    def finish() -> HostArray:
        parts = transport.take(transport.peers, _OPERATION)
        parts.insert(transport.rank, host)
        return add(transport, parts, host)

    return finish


def star(transport: PeerTransport, host: HostArray) -> Finish:
    """All push to rank 0, which adds and pushes the sum to all. Two crossings; rank 0 gets and sends W - 1 arrays."""
    transport.begin()
    if transport.rank:
        transport.push([0], _OPERATION, host)

    def finish() -> HostArray:
        if transport.rank == 0:
            total = add(transport, [host, *transport.take(transport.peers, _OPERATION)], host)
            transport.push(transport.peers, _OPERATION, total)
            return total
        (total,) = transport.take([0], _OPERATION, patience=1.0)
        transport.same(0, total, host, _OPERATION)
        return owned(total)

    return finish


def reduce_scatter(transport: PeerTransport, host: HostArray) -> Finish:
    """Each rank adds one segment of the array, whose terms all others push to it, and pushes the sum to all.

    Two crossings; every rank sends and receives ``2 (W - 1) / W`` arrays, in 2 (W - 1) messages.
    """
    return lambda: _by_reduce_scatter(transport, host)


def doubling(transport: PeerTransport, host: HostArray) -> Finish:
    """Neighbours exchange their sums, then pairs of neighbours, then fours: recursive doubling.

    log2 W crossings, in each of which a rank sends and receives one array. Where W is not a power of two, some ranks
    give their term to a neighbour first, and get the sum at the end. Thakur, Rabenseifner and Gropp 2005, section 4.3.
    """
    transport.begin()
    place = TreePlace.of(transport.rank, transport.size)
    first = None if place.folded == "absorbs" else next(place.partners(), place.neighbour)
    if first is not None:
        transport.push([first], _OPERATION, host)
    return lambda: _by_doubling(transport, place, host)


def halving(transport: PeerTransport, host: HostArray) -> Finish:
    """Neighbours exchange halves of the array, then pairs of neighbours quarters, and so on; then the sums back.

    A reduce-scatter by recursive halving and an allgather by recursive doubling: every rank sends and receives
    ``2 (W - 1) / W`` arrays in 2 log2 W messages, most of them to near ranks, which are on its host. Where W is not a
    power of two, some ranks send and receive one array more. Thakur, Rabenseifner and Gropp 2005, section 4.3.
    """
    return lambda: _by_halving(transport, TreePlace.of(transport.rank, transport.size), host)


WAYS: dict[Way, Callable[[PeerTransport, HostArray], Finish]] = {
    "alone": alone,
    "direct": direct,
    "star": star,
    "doubling": doubling,
    "reduce_scatter": reduce_scatter,
    "halving": halving,
}


@dataclass(frozen=True)
class TreePlace:
    """A rank's place in the complete tree of sums, whose leaves are P ranks, a power of two."""

    rank: int
    size: int
    leaf: int
    """Number of the leaf, 0 to P - 1; that of the neighbour for a rank that gives it its term."""

    folded: Literal["no", "gives", "absorbs"]
    """Whether the rank gives its term to the rank before it, or absorbs that of the rank after it."""

    @classmethod
    def of(cls, rank: int, size: int) -> "TreePlace":
        pairs = n_pairs(size)
        if rank >= 2 * pairs:
            return cls(rank, size, rank - pairs, "no")
        return cls(rank, size, rank // 2, "gives" if rank % 2 else "absorbs")

    @property
    def n_leaves(self) -> int:
        return self.size - n_pairs(self.size)

    @property
    def neighbour(self) -> int | None:
        """The rank that a folded rank exchanges with."""
        return {"no": None, "gives": self.rank - 1, "absorbs": self.rank + 1}[self.folded]

    def partners(self) -> Iterator[int]:
        """Yield the ranks to exchange with, nearest first; none for a rank that gives its term away."""
        if self.folded == "gives":
            return
        pairs, distance = n_pairs(self.size), 1
        while distance < self.n_leaves:
            leaf = self.leaf ^ distance
            yield 2 * leaf if leaf < pairs else leaf + pairs
            distance *= 2


def add(transport: PeerTransport, parts: Sequence[HostArray], mine: HostArray) -> HostArray:
    """Return the sum of `parts`, one from each rank."""
    for source, part in enumerate(parts):
        transport.same(source, part, mine, _OPERATION)
    return add_in_order(parts)


def _by_reduce_scatter(transport: PeerTransport, host: HostArray) -> HostArray:
    flat, operation = np.ravel(host), _described(host)
    cuts = [flat.size * rank // transport.size for rank in range(transport.size + 1)]
    pieces = [flat[low:high] for low, high in pairwise(cuts)]
    transport.begin()
    for peer in transport.peers:
        transport.push([peer], operation, pieces[peer])
    parts = transport.take(transport.peers, operation)
    mine = pieces[transport.rank]
    parts.insert(transport.rank, mine)
    sums = transport.exchange(operation, add(transport, parts, mine))
    return np.concatenate(sums).reshape(host.shape)


def _by_doubling(transport: PeerTransport, place: TreePlace, host: HostArray) -> HostArray:
    """Finish a sum whose first message was sent."""
    if place.folded == "gives":
        assert place.neighbour is not None
        return owned(_taken(transport, place.neighbour, host, _OPERATION, patience=1.0))
    total = _absorbed(transport, place, host, _OPERATION)
    partners = list(place.partners())
    for number, partner in enumerate(partners):
        if number or place.folded == "absorbs":
            transport.push([partner], _OPERATION, total)
        total += _taken(transport, partner, host, _OPERATION, patience=number / 20)
    if place.neighbour is not None:
        transport.push([place.neighbour], _OPERATION, total)
    return total


def _by_halving(transport: PeerTransport, place: TreePlace, host: HostArray) -> HostArray:
    operation = _described(host)
    transport.begin()
    if place.folded == "gives":
        assert place.neighbour is not None
        transport.push([place.neighbour], operation, host)
        transport.begin()
        return owned(_taken(transport, place.neighbour, host, operation, patience=1.0))
    total = _absorbed(transport, place, host, operation)
    flat, low, high = total.reshape(-1), 0, host.size
    given: list[tuple[int, slice, slice]] = []  # partner, what it adds, what this rank adds
    for number, partner in enumerate(place.partners()):
        middle = (low + high) // 2
        lower, upper = slice(low, middle), slice(middle, high)
        theirs, mine = (upper, lower) if partner > place.rank else (lower, upper)
        transport.push([partner], operation, flat[theirs])
        flat[mine] += _taken(transport, partner, flat[mine], operation, patience=number / 20)
        given.append((partner, theirs, mine))
        low, high = mine.start, mine.stop
    transport.begin()
    for partner, theirs, mine in reversed(given):
        transport.push([partner], operation, flat[mine])
        flat[theirs] = _taken(transport, partner, flat[theirs], operation, patience=0.5)
    if place.neighbour is not None:
        transport.push([place.neighbour], operation, total)
    return total


def _absorbed(transport: PeerTransport, place: TreePlace, host: HostArray, operation: str) -> HostArray:
    """Return a copy of this rank's array, with that of a neighbour that gives it."""
    total = owned(host)
    if place.neighbour is not None:
        total += _taken(transport, place.neighbour, host, operation)
    return total


def _taken(transport: PeerTransport, source: int, mine: HostArray, operation: str, patience: float = 0.0) -> HostArray:
    (theirs,) = transport.take([source], operation, patience=patience)
    transport.same(source, theirs, mine, operation)
    return theirs


def _described(host: HostArray) -> str:
    """Return a name of the sum that has the array's shape: parts of different arrays may look alike."""
    return f"{_OPERATION} of {host.dtype} {host.shape}"
