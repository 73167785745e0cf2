"""Folders, which the URLs of a local file system have and those of a bucket have not."""

import os
from contextlib import suppress
from typing import Any

from daskkern.data.remote.stores import RemoteStore

_LOCAL = {"file", "local"}


def remove_empty_folders(store: RemoteStore) -> None:
    """Remove the folders below the URL of a store, and its own, in which there is nothing. Only for ``file://``."""
    found: Any = store._store
    files = getattr(found, "fs", None)
    protocol = getattr(getattr(files, "sync_fs", files), "protocol", ())
    if not _LOCAL & ({protocol} if isinstance(protocol, str) else set(protocol)):
        return
    for folder, _, _ in os.walk(found.path, topdown=False):
        with suppress(OSError):  # there is something in it
            os.rmdir(folder)
