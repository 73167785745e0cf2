"""A local disk cache for what one pass over files has read, and the next one reads again."""

import os
import shutil
import tempfile
import threading
import weakref
from typing import Any

import numpy as np

from daskkern.data.remote.files import FoundFile, RemoteFile
from daskkern.data.storage.local_chunks import write_at

BLOCK_BYTES = 4 << 20
MOST_BYTES = 4 << 30
"""Most that the files of one source may keep, and half of the free space at most."""


class FileBlocks:
    """Blocks that were made once from the files of one source, up to 4 GiB and half of the free space.

    They lie in one temporary file without a name, which is gone when nobody uses it any more, and after a kill. What
    finds no room is made again in the next pass. A copy for another process begins empty.

    Parameters
    ----------
    most_bytes : int
        Most bytes to keep.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._size, self._file = most_bytes, 0, -1
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileBlocks, (self._most,)

    def get(self, url: str, number: int) -> bytes | None:
        """Return a block of a file; None where it was not kept."""
        with self._lock:
            place = self._places.get((url, number))
        return None if place is None else os.pread(self._file, place[1], place[0])

    def put(self, url: str, number: int, block: bytes | memoryview) -> bool:
        """Keep a block, if there is room; return whether it is kept."""
        values = np.frombuffer(block, np.uint8)
        with self._lock:
            if (url, number) in self._places:
                return True
            if not self._has_room(values.nbytes):
                return False
            try:
                write_at(self._file, values, self._size)
            except OSError:  # a full disk ends the keeping, not the reading
                self._most = 0
                return False
            self._places[url, number] = (self._size, values.nbytes)
            self._size += values.nbytes
            return True

    def _has_room(self, n_bytes: int) -> bool:
        if self._file < 0 and self._most > 0:
            try:
                self._most = min(self._most, shutil.disk_usage(tempfile.gettempdir()).free // 2)
                self._file, name = tempfile.mkstemp(prefix="daskkern-")
                os.unlink(name)
            except OSError:
                self._most = 0
                return False
            weakref.finalize(self, os.close, self._file)
        return self._size + n_bytes <= self._most


class KeptFile(RemoteFile):
    """A file behind a URL, of which every block of 4 MiB is requested once, as far as the cache has room."""

    def __init__(self, found: FoundFile, cache: FileBlocks) -> None:
        super().__init__(found.place, found.size)
        self._length, self._cache = found.size, cache

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, not across the end of a block, or all that are left."""
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        at = self.tell()
        if at >= self._length or not size:
            return b""
        number, inside = divmod(at, BLOCK_BYTES)
        block = self._cache.get(self.url, number)
        if block is None:
            self.seek(number * BLOCK_BYTES)
            block = super().read(min(BLOCK_BYTES, self._length - number * BLOCK_BYTES))
            self._cache.put(self.url, number, block)
        found = block[inside : inside + size]
        self.seek(at + len(found))
        return found
