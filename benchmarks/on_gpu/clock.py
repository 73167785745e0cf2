"""Time on a device, and what is left of the budget."""

import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

_REPEATS, _ENOUGH_S = 7, 2.0


class Budget:
    """Seconds from when it was made."""

    def __init__(self, total_s: float) -> None:
        self.total_s, self._begun = total_s, time.perf_counter()

    def used(self) -> float:
        """Return the seconds so far."""
        return time.perf_counter() - self._begun

    def left(self) -> float:
        """Return the seconds that are left, 0 at least."""
        return max(0.0, self.total_s - self.used())


def wait(xp: ModuleType) -> None:
    """Return when the device has done all that it was given."""
    if hasattr(xp, "cuda"):
        xp.cuda.get_current_stream().synchronize()


def median_seconds(xp: ModuleType, work: Callable[[], Any]) -> float:
    """Return the median seconds of one call, after one that compiles and warms up; up to seven within two seconds."""
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
