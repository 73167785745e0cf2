"""Memory allocator settings of long tasks: freed memory is reused, where Dask would have it returned to the system.

Dask starts workers with MALLOC_TRIM_THRESHOLD_, so that memory freed by a task is returned to the system. In glibc,
any such setting disables the dynamic growth of the thresholds: from then on every array of 128 kB or more is newly
mapped memory, whose pages fault on first use. A rank allocates arrays of that size for every sum and every batch; a sum
of 1 MB over two ranks took three times as long because of it.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_USUAL_MMAP = 128 << 10
_MOST_GROWTH = (32 << 20) - (64 << 10)  # glibc grows to at most 32 MiB, its own words included
KEPT, LARGEST = 4 << 20, 3 << 19
"""Bytes of unused memory kept at the top of a thread's heap, and of the largest arrays allocated from heaps."""


def find_glibc() -> ctypes.CDLL | None:
    """Return the C library of this process if it is glibc."""
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # another system
        return None
    return libc if all(hasattr(libc, name) for name in ("mallopt", "malloc_trim", "gnu_get_libc_version")) else None


def reuse_large_arrays() -> None:
    """Let freed arrays of up to 32 MiB be reused where glibc's thresholds grow by themselves; does nothing elsewhere.

    They grow to the size of what is freed, and up to twice as much unused memory is kept then. Arrays that are made for
    each batch of rows else fault page by page, which took a third of the time of decoding a table.
    """
    np.empty(_MOST_GROWTH, np.uint8)  # freed at once, and none of its pages is touched


class ReusedMemory:
    """Raised thresholds of the allocator, shared by the process: the first of overlapping uses raises them, the last
    one restores them and returns unused memory.

    Does nothing without glibc, without MALLOC_TRIM_THRESHOLD_ (glibc's thresholds then grow by themselves), and when
    the user has set MALLOC_MMAP_THRESHOLD_.

    Parameters
    ----------
    find_library : callable
        Returns the C library whose thresholds are set, or None where they cannot be.
    kept, largest : int
        Bytes of unused memory kept at the top of a thread's heap, and of the largest arrays that are reused.
    """

    def __init__(
        self,
        find_library: Callable[[], ctypes.CDLL | None] = find_glibc,
        *,
        kept: int = KEPT,
        largest: int = LARGEST,
    ) -> None:
        self._kept, self._largest = kept, largest
        self._lock = threading.Lock()
        self._users = 0
        self._find_library = find_library

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the context, let freed arrays of up to `largest` bytes be reused."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._set(self._kept, self._largest)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._put_back()

    def _set(self, kept: int, largest: int) -> None:
        if (libc := self._library()) is not None:
            libc.mallopt(_MMAP, largest)
            libc.mallopt(_TRIM, kept)

    def _put_back(self) -> None:
        if (libc := self._library()) is not None:
            libc.mallopt(_MMAP, _USUAL_MMAP)
            libc.mallopt(_TRIM, min(int(os.environ["MALLOC_TRIM_THRESHOLD_"]), 2**31 - 1))
            libc.malloc_trim(0)

    def _library(self) -> ctypes.CDLL | None:
        """Return the library if its thresholds are to be set."""
        chosen = "MALLOC_MMAP_THRESHOLD_" in os.environ or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
        if chosen or not os.environ.get("MALLOC_TRIM_THRESHOLD_", "").isdigit():
            return None
        return self._find_library()
