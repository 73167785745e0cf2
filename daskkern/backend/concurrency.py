"""How many threads compute: one for BLAS and many tiles, or many for one factorisation."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from daskkern.backend.tiles import tile_pool


class SharedThreadLimit:
    """Threads of BLAS and LAPACK, whose number is the whole process's: of overlapping uses the first notes what was
    before and the last restores it, and meanwhile the largest number holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = self._threads = 0
        self._before: threadpool_limits | None = None

    @contextmanager
    def limited_to(self, n_threads: int) -> Iterator[None]:
        """Within the context, let BLAS and LAPACK use `n_threads` threads."""
        with self._lock:
            if self._users == 0:
                self._before = threadpool_limits(limits=n_threads)
            elif n_threads > self._threads:
                threadpool_limits(limits=n_threads)
            self._threads = n_threads if self._users == 0 else max(self._threads, n_threads)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._before is not None:
                    self._before.restore_original_limits()
                    self._before = None


_COMPUTING, _FACTORING = SharedThreadLimit(), SharedThreadLimit()


def cpu_count() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def compute_threads(n_threads: int) -> Iterator[None]:
    """Within the context, spread this thread's tiles over `n_threads` threads, each with single-threaded BLAS."""
    with _COMPUTING.limited_to(1):
        if n_threads <= 1:
            with tile_pool(None):
                yield
            return
        with ThreadPoolExecutor(n_threads - 1, "daskkern-tile") as pool, tile_pool(pool, n_threads):
            yield


@contextmanager
def library_threads(n_threads: int) -> Iterator[None]:
    """Within the context, let BLAS and LAPACK use `n_threads` threads: for factorisations.

    Where several threads of this process do so at once, the largest number is that of all.
    """
    with _FACTORING.limited_to(n_threads):
        yield
