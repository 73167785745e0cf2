"""Write and read rates of a local disk, measured with a file of a few tens of megabytes."""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass

from daskkern.backend.random import generator
from daskkern.data.remote.file_systems import is_in_memory

_DISK_STEP, _DISK_MOST, _DISK_SECONDS = 8 << 20, 48 << 20, 0.15
_STREAM = 72


@dataclass(frozen=True)
class DiskRates:
    """Rates of the scratch folder, in bytes a second; `cached` is whether reads came from memory, not disk."""

    folder: str
    free: int
    write: float
    read: float
    cached: bool


def measure_disk(folder: str) -> DiskRates | None:
    """Return the rates of `folder`, or None where no file can be made or the folder is in memory."""
    if not os.path.isdir(folder) or is_in_memory(folder):
        return None
    data = memoryview(generator(0, _STREAM).bytes(_DISK_STEP))
    try:
        free = shutil.disk_usage(folder).free
        if free < 4 * _DISK_MOST:
            return None
        with tempfile.TemporaryFile(prefix="daskkern-rate-", dir=folder, buffering=0) as file:
            size, begun = 0, time.perf_counter()
            while size < _DISK_MOST and time.perf_counter() - begun < _DISK_SECONDS:
                size += file.write(data)
                os.fsync(file.fileno())
            write = size / (time.perf_counter() - begun)
            cached = not _forget(file.fileno())
            file.seek(0)
            into, begun = bytearray(_DISK_STEP), time.perf_counter()
            while file.readinto(into):
                pass
            return DiskRates(folder, free, write, size / (time.perf_counter() - begun), cached)
    except OSError:
        return None


def _forget(descriptor: int) -> bool:
    """Ask the system to drop its cached copy of a written file, and return whether that is supported."""
    if not hasattr(os, "posix_fadvise"):
        return False
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return True
