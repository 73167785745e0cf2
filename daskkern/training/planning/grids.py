"""The number of groups of ranks, from a model of the time of one step.

With W ranks in G groups of K = W / G, a rank computes the values of p / K columns at m / G rows, as many as without
groups. What changes is the rest of a step:

    rows m / G that are prepared and multiplied    fewer with more groups
    sums over K ranks: scores (m / G, c), (q, c)   fewer and smaller
    a sum over G ranks: the gradient (p / K, c)    only with groups
    residuals (m / G, c) gathered over G ranks     only where rows become centres
    preconditioner and projection                  of p / K columns: G times as much

so that groups pay where p is small against W, and m is large.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from daskkern.cluster.collectives.probe import MessageTimes
from daskkern.cluster.collectives.shared_memory import slot_bytes
from daskkern.cluster.collectives.sum_costs import SumCost, cost_of_sum, memory_seconds, way_of_sum
from daskkern.linalg import group_count
from daskkern.solvers.costs.sizes import FitSizes

LEAST_RANKS = 8
"""Ranks from which groups are considered: sums over fewer take no time to speak of."""
_WORTH = 0.9
"""What a step with groups may take of one without, or they are not used."""
_ROW_BYTE_S = 3e-10
"""Seconds of a byte of a row that is prepared and packed for a product, in one thread: 4,000 rows of 784 features took
0.3 ns more for each of their bytes than their kernel values, whatever the number of columns (one core of a server)."""
_ITERATIONS = 10  # of a projection without a factor
_FLOPS, _FLOPS_OF_PRODUCTS = 8e10, 2e10
_OF_ENTRY_S = 7e-10
"""A core: operations per second of kernel values and of their products with few outputs, and what a kernel value takes
in addition; 20 ns a value with 784 features and 1.9 ns with 50 were measured (float32, one core of a server)."""


@dataclass(frozen=True)
class StepRates:
    """What a rank reaches: seconds of a kernel value, of both its products with c outputs, and of messages.

    `n_hosts` is the number of hosts of all ranks, those of one of which share memory; 0 where each has its own.
    """

    entry_s: float
    product_s: float
    messages: MessageTimes
    n_hosts: int = 0

    def rounded(self) -> "StepRates":
        """Return the powers of two next to these numbers: two measurements then seldom lead to different choices."""
        way = self.messages
        messages = MessageTimes(_rounded(way.latency_s), _rounded(way.message_s), _rounded(way.rate))
        return StepRates(_rounded(self.entry_s), _rounded(self.product_s), messages, self.n_hosts)

    @classmethod
    def usual(cls, z: FitSizes, n_hosts: int) -> "StepRates":
        """Return what is expected of a rank before anything is measured."""
        entry = (2 * z.d / _FLOPS + _OF_ENTRY_S) / z.threads
        return cls(entry, 4 * z.c / _FLOPS_OF_PRODUCTS / z.threads, MessageTimes.usual(n_hosts), n_hosts)


@dataclass(frozen=True)
class GridChoice:
    """The number of groups, and the seconds of a step by the model with one group and with so many, if it chose.

    `wanted` are the groups that were requested; 0 where the model chose.
    """

    groups: int = 1
    alone_s: float = 0.0
    grid_s: float = 0.0
    wanted: int = 0

    @property
    def chosen(self) -> bool:
        """Whether the model chose the number."""
        return self.alone_s > 0

    def in_words(self, ranks: int) -> str:
        """Return the choice in a sentence; "" for one group, unless more were requested."""
        if self.groups == 1:
            return fewer_groups(self.wanted, 1, ranks)
        shared = f"{self.groups} groups of {ranks // self.groups} ranks, which divide each batch"
        if not self.chosen:
            return (
                f"{shared}, as requested"
                if self.wanted <= self.groups
                else fewer_groups(self.wanted, self.groups, ranks)
            )
        return (
            f"{shared}: by the model a step takes {1e3 * self.grid_s:.2g} ms, {1e3 * self.alone_s:.2g} ms in one group"
        )


def fewer_groups(wanted: int, groups: int, ranks: int) -> str:
    """Return a sentence on fewer groups than requested; "" where there are as many."""
    if wanted <= groups:
        return ""
    each = f"{groups} groups of {ranks // groups}" if groups > 1 else f"one group of {ranks}"
    return (
        f"{each} rank{'s' * (ranks > groups)} instead of {wanted} groups, whose number must divide that of the ranks, "
        "on workers of one kind with memory for a whole model in each group"
    )


def divisors(ranks: int) -> list[int]:
    """Return the numbers of groups that divide the ranks evenly, ascending."""
    return [groups for groups in range(1, ranks + 1) if ranks % groups == 0]


def best_grid(
    sizes: Callable[[int], FitSizes], fits: Callable[[int], bool], ranks: int, rates: StepRates
) -> GridChoice:
    """Return the number of groups of the shortest step among those that `fits` the memory; 1 where none is worth it.

    `sizes` are those of a rank with so many groups.
    """
    times = {groups: step_seconds(sizes(groups), rates) for groups in divisors(ranks)}
    alone = times[1]
    for groups in sorted(times, key=lambda count: (times[count], count)):
        if groups == 1 or times[groups] > _WORTH * alone:
            break
        if sizes(groups).m >= groups and fits(groups):
            return GridChoice(groups, alone, times[groups])
    return GridChoice(1, alone, alone)


def step_seconds(z: FitSizes, rates: StepRates) -> float:
    """Return the seconds of a step by the model, with kernel values that are computed."""
    columns, rows = z.p / z.ranks, z.group_m
    values = rows * columns * (rates.entry_s + rates.product_s)
    prepared = rows * z.d * z.itemsize * _ROW_BYTE_S / z.threads
    head = z.s / z.ranks
    correction = (2 * head + (0 if z.all_rows else columns)) * z.q * rates.product_s / 2
    projections = z.costs.projections(z) * z.m / z.n
    projection = projections * z.p * columns / 2 * rates.product_s
    if not z.exact:
        projection = projections * _ITERATIONS * z.p * columns * (rates.entry_s + rates.product_s / 2)
    sums = sum_seconds(z, rates.messages, rates.n_hosts) + projections * (4 * group_count(z.p) - 3) * _sum(
        z.ranks, 8 * z.c, rates.messages, _hosts_of_group(z, rates.n_hosts), _slot_bytes(z, rates.n_hosts)
    )
    return values + prepared + correction + projection + sums


def sum_seconds(z: FitSizes, messages: MessageTimes, n_hosts: int = 0) -> float:
    """Return the seconds of the collectives of a step by the model, without those of projections.

    `n_hosts` is that of :class:`StepRates`.
    """
    inside, across, slot = _hosts_of_group(z, n_hosts), min(n_hosts, z.groups), _slot_bytes(z, n_hosts)
    sums = step_sums(z)
    hosts = [inside] * (len(sums) - (z.groups > 1)) + [across] * (z.groups > 1)
    each = (_sum(size, nbytes, messages, count, slot) for (size, nbytes), count in zip(sums, hosts, strict=True))
    return sum(each) + _gather(z, messages)


def step_sums(z: FitSizes) -> list[tuple[int, int]]:
    """Return the ranks and the bytes of the sums of a step: in the groups, and across them."""
    sums = [(z.ranks, 8 * z.group_m * z.c)]
    if z.q:
        sums.append((z.ranks, 8 * z.q * z.c))
    if z.groups > 1:
        sums.append((z.groups, -(-z.p // z.ranks) * z.c * z.itemsize))
    return sums


def gathered_bytes(z: FitSizes) -> int:
    """Return the bytes of the residuals that a rank gives the other groups in a step, where they need them."""
    needs = z.groups > 1 and (z.all_rows or z.window > 1 or z.span > 0)
    return z.group_m * z.c * z.itemsize if needs else 0


def _rounded(value: float) -> float:
    return float(2.0 ** round(math.log2(value)))


def _hosts_of_group(z: FitSizes, n_hosts: int) -> int:
    """Return on how many hosts the ranks of a group are, which follow each other."""
    return -(-n_hosts // z.groups)


def _slot_bytes(z: FitSizes, n_hosts: int) -> int:
    """Return the bytes of the largest sum that is taken in the memory of hosts."""
    return slot_bytes(-(-z.all_ranks // n_hosts)) if n_hosts else 0


def _sum(size: int, nbytes: int, messages: MessageTimes, n_hosts: int, slot: int) -> float:
    if 0 < n_hosts < size and nbytes <= slot:
        between = cost_of_sum("doubling" if n_hosts > 1 else "alone", n_hosts, nbytes)
        return memory_seconds(size, nbytes, n_hosts) + messages.seconds(between)
    return messages.seconds(cost_of_sum(way_of_sum(size, nbytes, size, size), size, nbytes))


def _gather(z: FitSizes, messages: MessageTimes) -> float:
    nbytes, others = gathered_bytes(z), z.groups - 1
    if not nbytes:
        return 0.0
    steps = others.bit_length()
    return messages.seconds(SumCost(steps, 2 * steps, nbytes * others, 0, 0, nbytes * others))
