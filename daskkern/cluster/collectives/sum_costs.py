"""What a sum over the ranks of a gang costs by each algorithm, and which is chosen.

The time of a sum is modelled by its crossings, and by messages and bytes on the busiest rank:

    t = crossings * latency + messages * message + bytes / rate,

where a message counts once for the rank that sends it and once for the one that receives it. Where ranks share cores,
the messages of all ranks per core count if they are more. All constants belong to Dask's connections;
``benchmarks/collectives.py`` measures the algorithms.
"""

from dataclasses import dataclass

from daskkern.backend.summation import n_pairs
from daskkern.cluster.collectives.allreduce import Way

_LATENCY_S = 2e-4
_MESSAGE_S = 1.5e-4
"""Time of an event loop for one message, to send it or to receive it."""
_RATE_HOST, _RATE_LINK = 2e9, 1e9
"""Bytes per second that a rank sends and receives, within a host and between hosts (10 Gb/s, less what it takes to
copy)."""
_HOST_BYTES = 2_000_000
"""On one host, all algorithms copy through the same memory. Below this size the fewest messages win."""


@dataclass(frozen=True)
class SumCost:
    """What the ranks of a sum send and receive.

    Attributes
    ----------
    crossings : int
        Messages that wait for each other, one after the other.
    messages : int
        Messages that the busiest rank sends, and those that it receives.
    n_bytes : float
        Bytes that the busiest rank sends, or those that it receives if they are more.
    all_messages : int
        Messages that all ranks send.
    """

    crossings: int
    messages: int
    n_bytes: float
    all_messages: int

    def seconds(self, n_hosts: int, cores: int) -> float:
        """Return the time of the sum by the model, where the ranks have `cores` cores together."""
        rate = _RATE_HOST if n_hosts == 1 else _RATE_LINK
        messages = max(self.messages, 2 * self.all_messages / cores)
        return self.crossings * _LATENCY_S + messages * _MESSAGE_S + self.n_bytes / rate


def cost_of_sum(way: Way, size: int, nbytes: int) -> SumCost:
    """Return what a sum of arrays of `nbytes` bytes over `size` ranks costs by one algorithm."""
    pairs, others = n_pairs(size), size - 1
    whole = size - pairs
    levels, folded = whole.bit_length() - 1, int(pairs > 0)
    shared, exchanges = 2 * nbytes * others / size, whole * levels
    return {
        "alone": SumCost(0, 0, 0, 0),
        "mutual": SumCost(1, 2 * others, nbytes * others, size * others),
        "star": SumCost(2, 2 * others, nbytes * others, 2 * others),
        "doubling": SumCost(
            levels + 2 * folded, 2 * (levels + folded), nbytes * (levels + folded), exchanges + 2 * pairs
        ),
        "segments": SumCost(2, 4 * others, shared, 2 * size * others),
        "halving": SumCost(
            2 * (levels + folded), 2 * (2 * levels + folded), shared + folded * nbytes, 2 * (exchanges + pairs)
        ),
    }[way]


def way_of_sum(size: int, nbytes: int, n_hosts: int, cores: int) -> Way:
    """Return the algorithm by which `size` ranks on `n_hosts` hosts sum arrays of `nbytes` bytes.

    `cores` is the number of cores that they have together. All ranks make the same choice.
    """
    if size < 3:
        return "mutual" if size == 2 else "alone"
    small: tuple[Way, ...] = ("star", "doubling")
    ways = small if n_hosts == 1 and nbytes < _HOST_BYTES else (*small, "segments", "halving")
    return min(ways, key=lambda way: cost_of_sum(way, size, nbytes).seconds(n_hosts, cores))
