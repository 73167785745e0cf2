"""How many threads compute: one for BLAS and many tiles, or many for one factorisation."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from daskkern.backend.tiles import tile_pool


def cpu_count() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def compute_threads(n_threads: int) -> Iterator[None]:
    """Within the context, spread this thread's tiles over `n_threads` threads, each with single-threaded BLAS."""
    with threadpool_limits(limits=1):
        if n_threads <= 1:
            yield
            return
        with ThreadPoolExecutor(n_threads, "daskkern-tile") as pool, tile_pool(pool):
            yield


@contextmanager
def library_threads(n_threads: int) -> Iterator[None]:
    """Within the context, let BLAS and LAPACK use `n_threads` threads: for factorisations."""
    with threadpool_limits(limits=n_threads):
        yield
