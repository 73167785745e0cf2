"""The memory of a pool of CuPy's, by sizes: which request is met from what the pool has, and which from beneath it.

As in CuPy: sizes are multiples of 512 bytes, the smallest free piece that is large enough is taken, what is left of it
stays free, and free neighbours of one piece from beneath are joined again.
"""

import bisect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

_UNIT = 512


class FakePool:
    """A pool above `allocator`, which takes a size in bytes."""

    def __init__(self, allocator: Callable[[int], Any] = lambda size: None) -> None:
        self.limit: int | None = None
        self._allocator = allocator
        self._pieces = 0
        self._free: list[tuple[int, int, int]] = []  # size, number of the piece from beneath, start

    def set_limit(self, size: int) -> None:
        self.limit = size

    def malloc(self, size: int) -> None:
        raise AssertionError(f"an array of {size} bytes takes its memory by `hold`")

    def hold(self, array: np.ndarray) -> None:
        """Take memory for an array until it is deleted."""
        size = max(1, -(-array.nbytes // _UNIT)) * _UNIT
        at = bisect.bisect_left(self._free, (size, 0, 0))
        if at == len(self._free):
            self._allocator(size)
            self._pieces += 1
            piece, start = self._pieces, 0
        else:
            found, piece, start = self._free.pop(at)
            if found > size:
                bisect.insort(self._free, (found - size, piece, start + size))
        weakref.finalize(array, self._give, size, piece, start).atexit = False

    def _give(self, size: int, piece: int, start: int) -> None:
        for other in [free for free in self._free if free[1] == piece]:
            if other[2] + other[0] == start:
                self._free.remove(other)
                size, start = size + other[0], other[2]
            elif start + size == other[2]:
                self._free.remove(other)
                size += other[0]
        bisect.insort(self._free, (size, piece, start))
