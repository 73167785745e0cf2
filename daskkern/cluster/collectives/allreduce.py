"""Algorithms for a sum over the ranks of a gang: how one is chosen, and what each of them sends.

All add in rank order, ``((x_0 + x_1) + x_2) + ...``, whatever order the messages arrive in. They therefore give the
same bits on every rank and in every run, those of the communicators of one process. A ring, or a tree that adds on the
way, would add in another order; here a tree carries the terms to the root, and the sum back.

Each function begins a sum and returns the function that finishes it. Those for few ranks send what they can at once.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from daskkern.arrays import HostArray
from daskkern.cluster.collectives.transport import PeerTransport
from daskkern.cluster.collectives.wire import owned

Way: TypeAlias = Literal["alone", "mutual", "star", "tree", "segments"]

Finish: TypeAlias = Callable[[], HostArray]

_OPERATION = "allreduce"
_SHARED_BYTES = 2_000_000
_SHARED_BYTES_FAR = 250_000
"""From this size on, three or more ranks share the work of a sum; a link between hosts saturates before the memory of
one host does."""

_TREE_RANKS = 12
"""From this many ranks on, other ranks forward messages: rank 0 receives and sends 2 log2 W messages, not 2 (W - 1).
With 8 ranks, a star was measured to be as fast."""


def way_of_sum(size: int, nbytes: int, n_hosts: int) -> Way:
    """Return the algorithm by which `size` ranks on `n_hosts` hosts sum arrays of `nbytes` bytes.

    All ranks make the same choice.
    """
    if size < 3:
        return "mutual" if size == 2 else "alone"
    if nbytes >= (_SHARED_BYTES if n_hosts == 1 else _SHARED_BYTES_FAR):
        return "segments"
    return "tree" if size >= _TREE_RANKS else "star"


def alone(transport: PeerTransport, host: HostArray) -> Finish:
    """Return a copy: there are no other ranks."""
    del transport
    return lambda: owned(host)


def mutual(transport: PeerTransport, host: HostArray) -> Finish:
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


def tree(transport: PeerTransport, host: HostArray) -> Finish:
    """Send the terms up a binomial tree to rank 0, which adds them, and the sum back down.

    Rank 0 receives W - 1 arrays in log2 W messages and sends log2 W; a message waits for at most log2 W others.
    """
    return lambda: _by_tree(transport, host)


def segments(transport: PeerTransport, host: HostArray) -> Finish:
    """Each rank adds one segment of the array, whose terms all others push to it, and pushes the sum to all.

    Two crossings; every rank sends and receives ``2 (W - 1) / W`` arrays, in 2 (W - 1) messages.
    """
    return lambda: _by_segments(transport, host)


def _by_tree(transport: PeerTransport, host: HostArray) -> HostArray:
    transport.begin()
    below, above = children(transport.rank, transport.size), parent(transport.rank)
    # The ranks below a rank are those that follow it: their terms arrive in the order (rank, rank + 1, ...).
    terms, height = [host[np.newaxis]], len(below)
    for child, stack in zip(below, transport.take(below, _OPERATION, patience=height / 20), strict=True):
        _same_terms(transport, child, stack, host)
        terms.append(stack)
    if transport.rank == 0:
        total = add(transport, [term for stack in terms for term in stack], host)
    else:
        transport.push([above], _OPERATION, np.concatenate(terms))
        (received,) = transport.take([above], _OPERATION, patience=1.0)
        transport.same(above, received, host, _OPERATION)
        total = owned(received)
    transport.push(below, _OPERATION, total)
    return total


def _by_segments(transport: PeerTransport, host: HostArray) -> HostArray:
    flat = np.ravel(host)
    cuts = [flat.size * rank // transport.size for rank in range(transport.size + 1)]
    pieces = [flat[low:high] for low, high in pairwise(cuts)]
    operation = f"{_OPERATION} of {host.dtype} {host.shape}"  # pieces of different arrays may look alike
    transport.begin()
    for peer in transport.peers:
        transport.push([peer], operation, pieces[peer])
    parts = transport.take(transport.peers, operation)
    mine = pieces[transport.rank]
    parts.insert(transport.rank, mine)
    sums = transport.exchange(operation, add(transport, parts, mine))
    return np.concatenate(sums).reshape(host.shape)


WAYS: dict[Way, Callable[[PeerTransport, HostArray], Finish]] = {
    "alone": alone,
    "mutual": mutual,
    "star": star,
    "tree": tree,
    "segments": segments,
}


def add(transport: PeerTransport, parts: Sequence[HostArray], mine: HostArray) -> HostArray:
    """Return the sum of `parts`, one from each rank, in rank order."""
    total = owned(parts[0])
    for source, part in enumerate(parts):
        transport.same(source, part, mine, _OPERATION)
        if source > 0:
            total += part
    return total


def parent(rank: int) -> int:
    """Return the rank above `rank` in the binomial tree with root 0."""
    return rank & (rank - 1)


def children(rank: int, size: int) -> list[int]:
    """Return the children of `rank`, nearest first. Below `child` are the ranks from it up to the next child."""
    below, step, span = [], 1, rank & -rank or size
    while step < span and rank + step < size:
        below.append(rank + step)
        step *= 2
    return below


def _same_terms(transport: PeerTransport, child: int, stack: HostArray, mine: HostArray) -> None:
    span = min(child & -child, transport.size - child)
    if stack.dtype != mine.dtype or stack.shape != (span, *mine.shape):
        transport.refuse(_OPERATION, child, stack[0] if stack.ndim and len(stack) else stack, mine)
