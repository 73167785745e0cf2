"""Algorithms for gathering the arrays of all ranks of a gang on each of them."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from daskkern.arrays import HostArray
from daskkern.cluster.collectives.transport import PeerTransport

_OPERATION = "allgather"
_MESH_RANKS = 8
"""Fewer ranks send to all others: one crossing, where log steps take two rounds of log2 W."""


def gather_parts(transport: PeerTransport, host: HostArray) -> list[HostArray]:
    """Return the arrays of all ranks, in rank order. They may be views of each other and of receive buffers.

    Shapes may differ in the first axis. With many ranks each exchanges with log2 W others only, twice: lengths first.

    Raises
    ------
    CommunicatorClosedError
        When other axes or dtypes differ, or a peer is gone.
    """
    if transport.size < _MESH_RANKS:
        parts = transport.exchange(_OPERATION, host)
        for source, part in enumerate(parts):
            _check(transport, source, part, host)
        return parts
    rows = host.reshape(-1) if host.ndim == 0 else host
    length = np.array([len(rows)], np.int64)
    lengths = [int(part[0]) for part in in_log_steps(transport, length, [1] * transport.size)]
    parts = in_log_steps(transport, rows, lengths)
    return [part.reshape(()) for part in parts] if host.ndim == 0 else parts


def gather_at(transport: PeerTransport, host: HostArray, holders: Sequence[int]) -> list[HostArray] | None:
    """Return the arrays of all ranks as :func:`gather_parts` does, on the ranks `holders`; None on the others.

    All push to each of the holders. Only these wait.
    """
    transport.begin()
    transport.push([holder for holder in holders if holder != transport.rank], "gather", host)
    if transport.rank not in holders:
        return None
    parts = transport.take(transport.peers, "gather")
    parts.insert(transport.rank, host)
    for source, part in enumerate(parts):
        _check(transport, source, part, host)
    return parts


def in_log_steps(transport: PeerTransport, mine: HostArray, lengths: Sequence[int]) -> list[HostArray]:
    """Gather arrays of known lengths in log2 W steps.

    In step k a rank sends all arrays that it has, up to 2^k of them, to the rank 2^k before it. Bruck, Ho, Kipnis,
    Upfal and Weathersby 1997, section 3.
    """
    rank, size = transport.rank, transport.size
    held, distance = [mine], 1  # of this rank, and of those after it
    transport.begin()
    while distance < size:
        count = min(distance, size - distance)
        source = (rank + distance) % size
        transport.push([(rank - distance) % size], _OPERATION, np.concatenate(held[:count]))
        (stack,) = transport.take([source], _OPERATION, patience=distance / size)
        _check(transport, source, stack, mine)
        ends = list(accumulate(lengths[(source + i) % size] for i in range(count)))
        if len(stack) != ends[-1]:
            transport.refuse(_OPERATION, source, stack, mine)
        held += np.split(stack, ends[:-1])
        distance *= 2
    return held[size - rank :] + held[: size - rank]


def _check(transport: PeerTransport, source: int, part: HostArray, mine: HostArray) -> None:
    if part.dtype != mine.dtype or part.ndim != mine.ndim or part.shape[1:] != mine.shape[1:]:
        transport.refuse(_OPERATION, source, part, mine)
