"""Removal of silent workers by the scheduler, unless its own event loop was blocked."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Any

_KILL_S = 0.5
"""How long a nanny waits for a worker that hangs to stop by itself."""
_KILLED_S = 2.0
"""How long the removal waits for the nanny; one on a host that is cut off has :data:`_REACH_S` more."""
_REACH_S = 60.0
TICK_MS = 500
_HELD_UP_S = 1.0
"""Shortest delay of this loop that counts; a shorter one does not explain the silence of a worker."""
_HOLD_UPS = 100


class SilentWorkers:
    """Removes workers that hang from `scheduler`, on its event loop. :meth:`tick` must be called every `TICK_MS`."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._kills: set[asyncio.Task[None]] = set()
        self._drops: dict[str, asyncio.Task[None]] = {}
        self.ticked = time.time()
        self.hold_ups: deque[tuple[float, float]] = deque(maxlen=_HOLD_UPS)  # end and length in seconds of each delay

    async def drop(self, address: str, silence_s: float) -> bool:
        """Remove a worker that hangs from the cluster, so that Dask recomputes what it held, and have its nanny
        start another. Return False if the worker is responsive, or if the scheduler itself was slow."""
        worker = self._scheduler.workers.get(address)
        if worker is None:
            return True
        now = time.time()
        others = [other for other in self._scheduler.workers.values() if other is not worker]
        cut_off = bool(others) and all(now - other.last_seen > silence_s / 3 for other in others)
        silent_s = now - worker.last_seen
        if self.was_blocked(now, silence_s):  # short blocks, again and again, do not explain a long silence
            silent_s -= self._blocked_s(worker.last_seen, now)
        if cut_off or silent_s < silence_s:
            return False
        drop = self._drops.get(address)
        if drop is None:  # else a second kill would hit the worker that the nanny starts after the first
            drop = self._drops[address] = asyncio.create_task(self._removed(address, worker))
            drop.add_done_callback(lambda _: self._drops.pop(address, None))
        await asyncio.shield(drop)
        return True

    def tick(self) -> None:
        """Record delays of this loop."""
        now = time.time()
        if now - self.ticked > _HELD_UP_S:
            self.hold_ups.append((now, now - self.ticked))
        self.ticked = now

    def was_blocked(self, now: float, silence_s: float) -> bool:
        """Return whether this loop was blocked for long in the last `silence_s`, which explains the silence of
        workers and clients."""
        long_s = max(_HELD_UP_S, silence_s / 5)
        since_then = (now, now - self.ticked)  # the tick may be the last callback to run once the loop continues
        return any(now - ended < silence_s and took > long_s for ended, took in (since_then, *self.hold_ups))

    def _blocked_s(self, since: float, now: float) -> float:
        """Return for how many seconds this loop was blocked after the time `since`."""
        waits = ((now, now - self.ticked), *self.hold_ups)
        return sum(min(took, ended - since) for ended, took in waits if ended > since)

    async def _removed(self, address: str, worker: Any) -> None:
        """Remove a worker, and not another one that has come to its address meanwhile."""
        if worker.nanny:
            # Killed first: a worker that wakes up and finds itself removed would close its nanny too.
            self._kills.add(kill := asyncio.create_task(self._kill(worker.nanny)))
            kill.add_done_callback(self._kills.discard)
            await asyncio.wait([kill], timeout=_KILLED_S)
        if self._scheduler.workers.get(address) is worker:
            await self._scheduler.remove_worker(address, stimulus_id=f"daskkern-hung-{time.time()}")

    async def _kill(self, nanny: str) -> None:
        """Have a nanny kill its worker, upon which it starts another."""
        with suppress(Exception):  # its host may be cut off, or the nanny raise whatever it meets; Dask logs it
            call = self._scheduler.rpc(nanny).kill(timeout=_KILL_S, reason="daskkern-hung")
            await asyncio.wait_for(call, _REACH_S)
