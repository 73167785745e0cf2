"""Sums of the ranks of a gang: what they send and how long they take."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskkern.cluster.collectives.allreduce import Way
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.sum_costs import cost_of_sum
from daskkern.cluster.gang.rank_context import RankContext

SIZES = {"8 KB": 8_000, "200 KB": 200_000, "4 MB": 4_000_000}
_LEAST, _MOST = 3, 40

Case = tuple[Way, str]


def measure_sums(
    comm: DaskCommunicator, order: tuple[Sequence[Case], float], context: RankContext
) -> list[dict[str, float]]:
    """Return for each algorithm and size the median seconds of an allreduce, and what this rank sends for one.

    Each is repeated for about as many seconds as the order says, 3 to 40 times.
    """
    del context
    cases, seconds = order
    return [_measure(comm, way, SIZES[size], seconds) for way, size in cases]


def _measure(comm: DaskCommunicator, way: Way, nbytes: int, seconds: float) -> dict[str, float]:
    comm.way = way
    array = np.ones(nbytes // 4, np.float32)
    begun = time.perf_counter()
    comm.allreduce(array)
    once = time.perf_counter() - begun
    n = int(np.clip(seconds / once, _LEAST, _MOST))
    n = int(comm.broadcast(np.array([n], np.int64))[0])  # that of rank 0
    comm.barrier()
    sent, messages, taken = comm.bytes_sent, comm.messages_sent, []
    for _ in range(n):
        begun = time.perf_counter()
        comm.allreduce(array)
        taken.append(time.perf_counter() - begun)
    n_bytes, n_messages = comm.bytes_sent - sent, comm.messages_sent - messages
    comm.barrier()
    return {"seconds": float(np.median(taken)), "messages": n_messages / n, "bytes": n_bytes / n, "n": n}


def rows_of_sums(
    n_ranks: int, link: str, cases: Sequence[Case], ranks: Sequence[Sequence[dict[str, float]]]
) -> list[dict[str, Any]]:
    """Return a row for each case from the results of the ranks: measured, and by the formulas."""
    rows = []
    for (way, size), found in zip(cases, zip(*ranks, strict=True), strict=True):
        cost = cost_of_sum(way, n_ranks, SIZES[size])
        rows.append(
            {
                "n_ranks": n_ranks,
                "link": link,
                "way": way,
                "size": size,
                "n_repeats": int(found[0]["n"]),
                "median_ms": round(1e3 * found[0]["seconds"], 3),
                "n_messages": sum(rank["messages"] for rank in found),
                "n_messages_by_formula": cost.all_messages,
                "sent_mb": round(1e-6 * sum(rank["bytes"] for rank in found), 6),
                "sent_by_formula_mb": round(1e-6 * cost.all_bytes, 6),
                "busiest_sends_mb": round(1e-6 * max(rank["bytes"] for rank in found), 6),
            }
        )
    return rows
