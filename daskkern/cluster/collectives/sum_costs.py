"""The cost model of the allreduce algorithms, and the choice among them.

The time of a sum is modelled by its crossings, and by the messages and bytes of the busiest rank:

    t = crossings * latency + messages * message + bytes / rate,

where a message counts once for the rank that sends it and once for the one that receives it. Where ranks share cores,
those of all ranks per core count if they are more. All constants belong to Dask's connections;
``benchmarks/collectives.py`` measures the algorithms. In memory that the ranks of a host share, a sum takes the time
until the last of them has noticed what the others wrote, and that of reading their terms; ``benchmarks/wires.py``
measures it.
"""

from dataclasses import dataclass

from daskkern.backend.summation import n_pairs
from daskkern.cluster.collectives.allreduce import Way

LATENCY_S = 2e-4
MESSAGE_S = 1.5e-4
"""Time of an event loop for one message, to send it or to receive it."""
RATE_HOST, RATE_LINK = 2e9, 1e9
"""Bytes per second that a rank sends and receives, within a host and between hosts (10 Gb/s, less what it takes to
copy)."""


NOTICE_S = 2e-4
RATE_MEMORY = 4e9
"""Seconds until a rank sees what the others have written to shared memory, and bytes per second that it adds."""


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
    all_messages, all_bytes : int
        Messages and bytes that all ranks send.
    """

    crossings: int
    messages: int
    n_bytes: float
    all_messages: int
    all_bytes: int
    line_bytes: float
    """Bytes that pass the busiest link one after the other: rank 0 of a star receives all arrays before it sends."""

    def seconds(self, n_hosts: int, cores: int) -> float:
        """Return the time of the sum by the model, where the ranks have `cores` cores together."""
        rate = RATE_HOST if n_hosts == 1 else RATE_LINK
        of_one = self.n_bytes if n_hosts == 1 else self.line_bytes
        messages, n_bytes = max(self.messages, 2 * self.all_messages / cores), max(of_one, self.all_bytes / cores)
        return self.crossings * LATENCY_S + messages * MESSAGE_S + n_bytes / rate


def cost_of_sum(way: Way, size: int, nbytes: int) -> SumCost:
    """Return what a sum of arrays of `nbytes` bytes over `size` ranks costs by one algorithm."""
    pairs, others, n = n_pairs(size), size - 1, nbytes
    leaves = size - pairs
    levels, folded = leaves.bit_length() - 1, int(pairs > 0)
    shared, both = 2 * n * others / size, levels + folded
    sent = leaves * levels + 2 * pairs
    return {
        "alone": SumCost(0, 0, 0, 0, 0, 0),
        "direct": SumCost(1, 2 * others, n * others, size * others, size * others * n, n * others),
        "star": SumCost(2, 2 * others, n * others, 2 * others, 2 * others * n, 2 * n * others),
        "doubling": SumCost(levels + 2 * folded, 2 * both, n * both, sent, sent * n, n * both),
        "reduce_scatter": SumCost(2, 4 * others, shared, 2 * size * others, 2 * others * n, shared),
        "halving": SumCost(
            2 * both, 2 * (levels + both), shared + folded * n, 2 * (sent - pairs), 2 * others * n, shared + folded * n
        ),
    }[way]


def memory_seconds(size: int, nbytes: int, n_hosts: int) -> float:
    """Return what a sum over `size` ranks on `n_hosts` hosts takes in the memory of each host.

    On several hosts, one rank of each adds the terms of its host and the others wait for the total; what these ranks
    send each other comes in addition: the doubling of :func:`cost_of_sum` over the hosts.
    """
    each = -(-size // n_hosts)
    return (1 if n_hosts == 1 else 2) * NOTICE_S + each * nbytes / RATE_MEMORY


def way_of_sum(size: int, nbytes: int, n_hosts: int, cores: int) -> Way:
    """Return the algorithm by which `size` ranks on `n_hosts` hosts sum arrays of `nbytes` bytes.

    `cores` is the number of cores that they have together. All ranks make the same choice.
    """
    if size < 3:
        return "direct" if size == 2 else "alone"
    ways: tuple[Way, ...] = ("star", "doubling", "reduce_scatter", "halving")
    return min(ways, key=lambda way: cost_of_sum(way, size, nbytes).seconds(n_hosts, cores))
