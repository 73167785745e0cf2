"""Memory that ranks use again and again, where Dask asks the allocator to give it back at once.

Dask starts workers with MALLOC_TRIM_THRESHOLD_, so that what a task freed does not stay with its worker. In glibc any
such setting ends the thresholds' own growth: from then on every array of 128 kB or more is new memory from the system,
whose pages are made at their first use. A rank makes arrays of that size for every sum and every batch; a sum of 1 MB
over two ranks took three times as long for it.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_USUAL_MMAP = 128 << 10
KEPT, LARGEST = 4 << 20, 3 << 19
"""Bytes: what a thread's heap keeps at its end unused, and the arrays that come from heaps."""


class ReusedMemory:
    """Thresholds of the allocator, which are the whole process's: the first of overlapping uses raises them, the last
    one puts them back and returns what is unused.

    Does nothing without glibc, where no MALLOC_TRIM_THRESHOLD_ is set (glibc's thresholds then grow by themselves), and
    where the user has set MALLOC_MMAP_THRESHOLD_.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the context, let freed arrays of up to 1.5 MB be used again."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                _set(KEPT, LARGEST)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    _put_back()


def _set(kept: int, largest: int) -> None:
    if (libc := _glibc()) is not None:
        libc.mallopt(_MMAP, largest)
        libc.mallopt(_TRIM, kept)


def _put_back() -> None:
    if (libc := _glibc()) is not None:
        libc.mallopt(_MMAP, _USUAL_MMAP)
        libc.mallopt(_TRIM, min(int(os.environ["MALLOC_TRIM_THRESHOLD_"]), 2**31 - 1))
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Return glibc, where its thresholds are to be set."""
    chosen = "MALLOC_MMAP_THRESHOLD_" in os.environ or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if chosen or not os.environ.get("MALLOC_TRIM_THRESHOLD_", "").isdigit():
        return None
    return _libc()


def _libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # another system
        return None
    return libc if all(hasattr(libc, name) for name in ("mallopt", "malloc_trim", "gnu_get_libc_version")) else None
