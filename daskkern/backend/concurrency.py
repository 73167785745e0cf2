"""Control of the number of threads: many tiles with single-threaded BLAS, or one factorization with many threads."""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from daskkern.backend.processors import cpu_count
from daskkern.backend.tiles import SMALL, in_tile_pool, tile_pool
from daskkern.errors import SpecError

__all__ = [
    "SharedThreadLimit",
    "all_cores",
    "compute_threads",
    "cpu_count",
    "decomposition_threads",
    "library_threads",
    "product_threads",
    "reading_threads",
]

_AS_IT_IS = nullcontext()
_WORTH_THREADS = 16 * SMALL  # a few milliseconds; starting threads takes a third of one
_MOST_READING = 4
_LEAST_SIZE = 2100
"""Rows from which threads are worth it. Of fewer, two threads save at most 0.5 s, and on busy cores they spin while
they wait for each other. On 2 idle cores, a decomposition of 1,200 rows takes 0.26 s with one thread and 0.22 s with
two; beside two busy processes, 0.5 s and 5.4 s. With 2,048 rows: 1.5 s and 1.0 s; 2.6 s and 4.5 s."""


class SharedThreadLimit:
    """A limit on the threads of BLAS and LAPACK, which is shared by the process: of overlapping uses, the first saves
    the previous number and the last restores it; meanwhile the largest number applies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = self._threads = 0
        self._before: Any = None

    @contextmanager
    def limited_to(self, n_threads: int) -> Iterator[None]:
        """Within the context, let BLAS and LAPACK use `n_threads` threads."""
        with self._lock:
            if self._users == 0:
                self._before = _libraries(len(sys.modules)).limit(limits=n_threads)
            elif n_threads > self._threads:
                _libraries(len(sys.modules)).limit(limits=n_threads)
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


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> Any:
    """Return the loaded BLAS and OpenMP libraries. To find them takes 10 ms, several times in a fit of a few rows.

    `n_modules` is the number of imported modules: more of them may have loaded more libraries.
    """
    del n_modules
    return ThreadpoolController()


_COMPUTING, _FACTORING = SharedThreadLimit(), SharedThreadLimit()


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


def product_threads(threads: int | None, size: float) -> AbstractContextManager[None]:
    """Return a context that spreads the tiles of a product over threads, unless an outer context has set them.

    Tiles, and therefore results, are the same for every number of threads.

    Parameters
    ----------
    threads : int or None
        None takes all processors that this process may use, but one thread inside a task of a Dask worker, which
        relies on that. ``OMP_NUM_THREADS``, if set, is the upper limit.
    size : float
        Approximate number of multiply-adds. A small product stays on this thread, whatever `threads` says.

    Raises
    ------
    SpecError
        For a number of threads that is not a whole number, or less than 1.
    """
    requested = None if threads is None else _checked(threads)
    if size < _WORTH_THREADS or in_tile_pool():
        return _AS_IT_IS
    return compute_threads(requested or _usual_threads())


def _checked(threads: object) -> int:
    if isinstance(threads, bool) or not isinstance(threads, Integral) or threads < 1:
        raise SpecError(
            f"got threads={threads!r}; expected a whole number of 1 or more, or None for all processors that this "
            "process may use"
        )
    return int(threads)


def _usual_threads() -> int:
    worker = sys.modules.get("distributed.utils")
    if hasattr(getattr(worker, "thread_state", None), "key"):  # this thread runs a task of a worker
        return 1
    most = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return min(cpu_count(), int(most)) if most.isdigit() and int(most) else cpu_count()


def reading_threads(xp: ModuleType) -> int:
    """Return the useful number of threads that read one window of rows for steps on the device of `xp`.

    One where the processors compute the steps. A GPU leaves them free, and takes rows faster than one thread reads
    them: of 128 features, an H200 copies 50 GB/s from the host, of which one thread reads 1.9 from the page cache, and
    four read 3.7. More wait for the interpreter's lock.
    """
    return 1 if xp is np else max(1, min(_MOST_READING, cpu_count() // 2))


def decomposition_threads(m: int) -> int:
    """Return the useful number of threads for decompositions of (m, m) matrices."""
    return cpu_count() if m >= _LEAST_SIZE else 1


@contextmanager
def library_threads(n_threads: int) -> Iterator[None]:
    """Within the context, let BLAS and LAPACK use `n_threads` threads: for factorisations.

    When several threads of this process use it at once, the largest number applies to all.
    """
    with _FACTORING.limited_to(n_threads):
        yield


@contextmanager
def all_cores() -> Iterator[None]:
    """Within the context, BLAS and tiles use all cores, one after the other."""
    n = cpu_count()
    with library_threads(n), ThreadPoolExecutor(n, "daskkern-tile") as pool, tile_pool(pool, n):
        yield
