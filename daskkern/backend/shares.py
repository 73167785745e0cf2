"""Division of a fit's columns among its ranks, in units of work and in proportion to the shares of the ranks.

Units are assigned one by one, each to the rank that would be the first to finish with it: the greedy distribution of
columns to processors of different speeds (Boulet, Dongarra, Robert and Vivien 1999, "Static tiling for heterogeneous
computing platforms", section 3). Every first k units are thereby distributed by the shares, too, and equal shares give
the cyclic distribution.
"""

import heapq
import itertools
from functools import lru_cache
from typing import TypeAlias

Shares: TypeAlias = tuple[int, ...]
"""For each rank a number of 0 or more, to which its part of the work is proportional; () is the same for all."""


def owners_of(count: int, size: int, shares: Shares = ()) -> tuple[int, ...]:
    """Return the rank of each of `count` units; rank after rank without `shares`.

    Where the shares sum to `count`, they are how many units the ranks have. Of any first k units, a rank with the part
    f of all shares has at most ``f (k + size - 1)``.

    Raises
    ------
    ValueError
        When there is not one share for each of `size` ranks, or all are 0.
    """
    if not shares:
        return tuple(k % size for k in range(count))
    _check(size, shares)
    return _assigned(count, shares)


def share_edges(count: int, size: int, shares: Shares = ()) -> list[int]:
    """Return the `size` + 1 edges of the consecutive ranges that `count` units are cut into, one for each rank.

    Raises
    ------
    ValueError
        When there is not one share for each rank, or all are 0.
    """
    if shares:
        _check(size, shares)
    sums = [0, *itertools.accumulate(shares or (1,) * size)]
    return [count * edge // sums[-1] for edge in sums]


def _check(size: int, shares: Shares) -> None:
    if len(shares) != size or not any(shares) or min(shares) < 0:
        raise ValueError(f"got the shares {shares} of {size} ranks; expected a number of 0 or more for each, not all 0")


@lru_cache(maxsize=64)
def _assigned(count: int, shares: Shares) -> tuple[int, ...]:
    """Return the rank of each unit: of several that would be the first to finish with it, the lowest."""
    waiting = [(1 / share, rank, 1) for rank, share in enumerate(shares) if share]
    heapq.heapify(waiting)
    owners = []
    for _ in range(count):
        _, rank, units = waiting[0]
        owners.append(rank)
        heapq.heapreplace(waiting, ((units + 1) / shares[rank], rank, units + 1))
    return tuple(owners)
