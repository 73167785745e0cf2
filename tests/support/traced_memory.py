"""Measured peaks of the memory that Python allocates."""

import tracemalloc
from collections.abc import Callable


def traced_peak(call: Callable[[], object], n_tries: int = 3) -> int:
    """Return the least peak of allocated bytes over several calls: other threads of a test's process allocate too."""
    peaks = []
    for _ in range(n_tries):
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)
