"""Ways to take a sum over the ranks of a gang: which one is chosen, and what each one sends.

All add in rank order, ``((x_0 + x_1) + x_2) + ...``, whatever order the messages arrive in. So they give the same
bits on every rank and in every run, those of the communicators of one process. A ring, or a tree that adds on the way,
would add in another order; here a tree carries the terms to the root, and the sum back.

A way begins a sum and returns what ends it. Those of few ranks send what they can at the beginning.
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
"""From this size on, three or more ranks share the work of a sum; a link between hosts is full sooner than the memory
of one."""

_TREE_RANKS = 12
"""From so many ranks on, rank 0 leaves handing out to others: it takes and sends 2 log2 W messages and not 2 (W - 1).
With 8, a star was measured to be as fast."""


def way_of_sum(size: int, nbytes: int, n_hosts: int) -> Way:
    """Return how `size` ranks on `n_hosts` hosts take the sum of arrays of `nbytes` bytes.

    All ranks come to the same choice.
    """
    if size < 3:
        return "mutual" if size == 2 else "alone"
    if nbytes >= (_SHARED_BYTES if n_hosts == 1 else _SHARED_BYTES_FAR):
        return "segments"
    return "tree" if size >= _TREE_RANKS else "star"


def alone(post: PeerTransport, host: HostArray) -> Finish:
    """Return a copy: there is nobody else."""
    del post
    return lambda: owned(host)


def mutual(post: PeerTransport, host: HostArray) -> Finish:
    """Every rank pushes its array to all others, and all add. One crossing; W (W - 1) messages."""
    post.begin()
    post.push(post.peers, _OPERATION, host)

    def finish() -> HostArray:
        parts = post.take(post.peers, _OPERATION)
        parts.insert(post.rank, host)
        return add(post, parts, host)

    return finish


def star(post: PeerTransport, host: HostArray) -> Finish:
    """All push to rank 0, which adds and pushes the sum to each. Two crossings; rank 0 takes and sends W - 1 arrays."""
    post.begin()
    if post.rank:
        post.push([0], _OPERATION, host)

    def finish() -> HostArray:
        if post.rank == 0:
            total = add(post, [host, *post.take(post.peers, _OPERATION)], host)
            post.push(post.peers, _OPERATION, total)
            return total
        (total,) = post.take([0], _OPERATION, patience=1.0)
        post.same(0, total, host, _OPERATION)
        return owned(total)

    return finish


def tree(post: PeerTransport, host: HostArray) -> Finish:
    """Terms go up a binomial tree to rank 0, which adds, and the sum goes down it.

    Rank 0 takes W - 1 arrays in log2 W messages and sends log2 W; a message waits for at most log2 W others on its way.
    """
    return lambda: _by_tree(post, host)


def segments(post: PeerTransport, host: HostArray) -> Finish:
    """Each rank adds one segment of the array, of which all others push it their part, and pushes the sum to all.

    Two crossings; every rank sends and takes ``2 (W - 1) / W`` arrays, in 2 (W - 1) messages.
    """
    return lambda: _by_segments(post, host)


def _by_tree(post: PeerTransport, host: HostArray) -> HostArray:
    post.begin()
    below, above = children(post.rank, post.size), parent(post.rank)
    # The ranks below one are those that follow it: (rank, rank + 1, ...) is the order in which they come.
    terms, height = [host[np.newaxis]], len(below)
    for child, stack in zip(below, post.take(below, _OPERATION, patience=height / 20), strict=True):
        _same_terms(post, child, stack, host)
        terms.append(stack)
    if post.rank == 0:
        total = add(post, [term for stack in terms for term in stack], host)
    else:
        post.push([above], _OPERATION, np.concatenate(terms))
        (received,) = post.take([above], _OPERATION, patience=1.0)
        post.same(above, received, host, _OPERATION)
        total = owned(received)
    post.push(below, _OPERATION, total)
    return total


def _by_segments(post: PeerTransport, host: HostArray) -> HostArray:
    flat = np.ravel(host)
    cuts = [flat.size * rank // post.size for rank in range(post.size + 1)]
    pieces = [flat[low:high] for low, high in pairwise(cuts)]
    operation = f"{_OPERATION} of {host.dtype} {host.shape}"  # pieces of different arrays may look alike
    post.begin()
    for peer in post.peers:
        post.push([peer], operation, pieces[peer])
    parts = post.take(post.peers, operation)
    mine = pieces[post.rank]
    parts.insert(post.rank, mine)
    sums = post.exchange(operation, add(post, parts, mine))
    return np.concatenate(sums).reshape(host.shape)


WAYS: dict[Way, Callable[[PeerTransport, HostArray], Finish]] = {
    "alone": alone,
    "mutual": mutual,
    "star": star,
    "tree": tree,
    "segments": segments,
}


def add(post: PeerTransport, parts: Sequence[HostArray], mine: HostArray) -> HostArray:
    """Return the sum of `parts`, one of each rank, in rank order."""
    total = owned(parts[0])
    for source, part in enumerate(parts):
        post.same(source, part, mine, _OPERATION)
        if source > 0:
            total += part
    return total


def parent(rank: int) -> int:
    """Return the rank above `rank` in the binomial tree with root 0."""
    return rank & (rank - 1)


def children(rank: int, size: int) -> list[int]:
    """Return the ranks right below `rank`, the nearest first. Below `child` are the ranks from it to the next child."""
    below, step, span = [], 1, rank & -rank or size
    while step < span and rank + step < size:
        below.append(rank + step)
        step *= 2
    return below


def _same_terms(post: PeerTransport, child: int, stack: HostArray, mine: HostArray) -> None:
    span = min(child & -child, post.size - child)
    if stack.dtype != mine.dtype or stack.shape != (span, *mine.shape):
        post.refuse(_OPERATION, child, stack[0] if stack.ndim and len(stack) else stack, mine)
