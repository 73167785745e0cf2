"""Division of work among unequal ranks: each within its limit, with the least time for the slowest."""

import itertools
from collections.abc import Sequence

import numpy as np

from daskkern.backend.shares import Shares, owners_of, share_edges

_STEPS = 4


def divide(total: int, most: Sequence[int], speeds: Sequence[float], least: int = 0) -> Shares | None:
    """Return how many of `total` equal units each rank gets; None where they do not fit.

    The largest of all units / speed is as small as the limits allow: units are assigned one by one, each to the rank
    that would be the first to finish with it.

    Parameters
    ----------
    most : sequence of int
        The most units of each rank.
    speeds : sequence of float
        Units that each rank finishes in a unit of time, above 0.
    least : int
        The fewest units of each rank.
    """
    if min(most) < least or sum(most) < total or total < least * len(most):
        return None
    counts = [least] * len(most)
    for _ in range(total - sum(counts)):
        open_ranks = [rank for rank, count in enumerate(counts) if count < most[rank]]
        counts[min(open_ranks, key=lambda rank: (counts[rank] + 1) / speeds[rank])] += 1
    return tuple(counts)


def makespan(shares: Sequence[int], speeds: Sequence[float]) -> float:
    """Return the time of the rank that is the last to finish, in units of what one of speed 1 takes for all units."""
    return max(share / speed for share, speed in zip(shares, speeds, strict=True)) / sum(shares)


def even_shares(total: int, size: int, *, consecutive: bool) -> Shares:
    """Return how many of `total` units each of `size` ranks has without shares: of ranges, or one after the other."""
    if consecutive:
        edges = share_edges(total, size)
        return tuple(stop - start for start, stop in itertools.pairwise(edges))
    owners = owners_of(total, size)
    return tuple(owners.count(rank) for rank in range(size))


def relative_speeds(kinds: Sequence[str], rates: Sequence[float]) -> tuple[float, ...]:
    """Return the speeds of ranks from measured rates: the median of each kind over that of the slowest kind.

    They are rounded to steps of 19%, four to a factor of 2, so that two measurements seldom differ: ranks of one kind,
    and of kinds that are about as fast, are the same.
    """
    medians = {kind: float(np.median([r for k, r in zip(kinds, rates, strict=True) if k == kind])) for kind in kinds}
    slowest = min(medians.values())
    return tuple(float(2 ** (round(_STEPS * np.log2(medians[kind] / slowest)) / _STEPS)) for kind in kinds)
