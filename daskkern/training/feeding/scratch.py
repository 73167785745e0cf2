"""The folder for scratch files, and whether it is on a disk."""

import os
import tempfile

import psutil
from distributed import get_worker

from daskkern.training.run.settings import FitSettings

_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def scratch_folder(settings: FitSettings) -> str:
    """Return the folder for scratch files: the user's, the Dask worker's, or the system's for temporary files."""
    if settings.scratch is not None:
        return settings.scratch
    try:
        return str(get_worker().local_directory)
    except ValueError:
        return tempfile.gettempdir()


def is_in_memory(folder: str) -> bool:
    """Return whether the folder is on a file system in memory rather than on a disk, as /tmp is on some systems."""
    path = os.path.realpath(folder)
    mounts = [part for part in psutil.disk_partitions(all=True) if _lies_in(path, part.mountpoint)]
    return bool(mounts) and max(mounts, key=lambda part: len(part.mountpoint)).fstype in _IN_MEMORY


def _lies_in(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
