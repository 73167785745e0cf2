"""Ranks that only take sums. In a module of its own, which the workers import."""

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.cluster.gang.rank_context import RankContext


def sums_and_ways(comm: Communicator, n_sums: int, context: RankContext) -> tuple[HostArray, dict[str, int]]:
    """Return the sum of many sums, and how often which algorithm took one."""
    rng = np.random.default_rng(comm.rank)
    total, before = np.zeros((50, 3), "float32"), dict(comm.ways)
    for _ in range(n_sums):
        total += comm.allreduce(rng.standard_normal((50, 3)).astype("float32"))
    return total, {way: number - before.get(way, 0) for way, number in comm.ways.items()}
