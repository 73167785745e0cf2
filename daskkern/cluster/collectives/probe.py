"""Measurement of the latency and bandwidth between two workers, with messages that no rank receives."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import get_worker

from daskkern.cluster.collectives.sum_costs import LATENCY_S, MESSAGE_S, RATE_HOST, RATE_LINK, SumCost
from daskkern.cluster.collectives.wire import pack
from daskkern.cluster.connect.protocol import handler

_SMALL, _LARGE = 1 << 10, 4 << 20
_TIMES = 5
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class MessageTimes:
    """Seconds of a crossing, and of a message at one of its ends; bytes per second of what is sent or received."""

    latency_s: float = LATENCY_S
    message_s: float = MESSAGE_S
    rate: float = RATE_HOST

    @classmethod
    def usual(cls, n_hosts: int) -> "MessageTimes":
        """Return those of Dask's connections as ``benchmarks/collectives.py`` has them, within a host or between."""
        return cls(rate=RATE_HOST if n_hosts == 1 else RATE_LINK)

    def seconds(self, cost: SumCost) -> float:
        """Return the time of a sum on ranks that have cores of their own."""
        return cost.crossings * self.latency_s + cost.messages * self.message_s + cost.n_bytes / self.rate


def message_times(peer: str) -> MessageTimes:
    """Return what messages from this worker to another one take: the fastest of a few. A task of the worker."""
    worker = get_worker()
    loop: Any = worker.loop
    small, large = asyncio.run_coroutine_threadsafe(_measured(worker, peer), loop.asyncio_loop).result(_PATIENCE_S)
    # A message with its answer is twice a crossing with both ends of a message.
    factor = small / 2 / (LATENCY_S + 2 * MESSAGE_S)
    return MessageTimes(LATENCY_S * factor, MESSAGE_S * factor, (_LARGE - _SMALL) / max(large - small, 1e-6))


async def _measured(worker: Any, peer: str) -> list[float]:
    put = getattr(worker.rpc(peer), handler("put"))
    found = []
    for nbytes in (_SMALL, _LARGE):
        data, fastest = np.zeros(nbytes, np.uint8), np.inf
        for _ in range(_TIMES):
            begun = time.perf_counter()
            message = {"fit": "", "generation": 0, "sequence": 0, "operation": "probe", "source": 0}
            await put(**message, array=pack(data, ("uint8",)))
            fastest = min(fastest, time.perf_counter() - begun)
        found.append(float(fastest))
    return found
