"""Whether a folder is on a disk."""

import os

import psutil

_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def is_in_memory(folder: str) -> bool:
    """Return whether the folder is on a file system in memory rather than on a disk, as /tmp is on some systems."""
    path = os.path.realpath(folder)
    mounts = [part for part in psutil.disk_partitions(all=True) if _lies_in(path, part.mountpoint)]
    return bool(mounts) and max(mounts, key=lambda part: len(part.mountpoint)).fstype in _IN_MEMORY


def _lies_in(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
