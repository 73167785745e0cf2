"""Timing on a device, and the remaining time budget."""

import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

_REPEATS, _ENOUGH_S = 7, 2.0


class Budget:
    """A time budget that starts when it is created."""

    def __init__(self, total_s: float) -> None:
        self.total_s, self._begun = total_s, time.perf_counter()

    def used(self) -> float:
        """Return the seconds so far."""
        return time.perf_counter() - self._begun

    def left(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self.total_s - self.used())


def wait(xp: ModuleType) -> None:
    """Wait until the device has finished all queued work."""
    if hasattr(xp, "cuda"):
        xp.cuda.get_current_stream().synchronize()


def median_seconds(xp: ModuleType, work: Callable[[], Any]) -> float:
    """Return the median seconds of one call, after a warm-up call; up to seven calls within two seconds."""
    work()
    wait(xp)
    seconds: list[float] = []
    while len(seconds) < _REPEATS and (not seconds or sum(seconds) < _ENOUGH_S):
        begun = time.perf_counter()
        made = work()
        wait(xp)
        seconds.append(time.perf_counter() - begun)
        del made
    return statistics.median(seconds)
