"""A hidden folder next to a destination for intermediate files, removed afterwards in every case.

For a destination behind a URL it is among the temporary files of this machine (``TMPDIR``).
"""

import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daskkern.data.remote.copying import upload
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.schema import FORMAT
from daskkern.data.transactions.atomic import (
    check_destination,
    local_folder,
    make_parent,
    move_into_place,
    sweep,
    unwritable,
    working_place,
)
from daskkern.errors import StoreError


@contextmanager
def work_folder(destination: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new hidden folder next to `destination`, on the same disk, and remove it at the end.

    Its name contains the host and the process number. Folders that killed processes of this host left for the same
    destination are removed first.
    """
    target = working_place(destination)
    make_parent(target)
    sweep(target, _prefix(target))
    folder = target.with_name(f"{_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        folder.mkdir()
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(store: Path, out: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Rename a store that was written in a work folder, or upload it. Raises StoreError when `out` is taken."""
    if is_url(out):
        upload(store, os.fspath(out), kind=FORMAT, overwrite=overwrite)
        return
    target = local_folder(os.fspath(out))
    check_destination(target, kind=FORMAT, overwrite=overwrite)
    move_into_place(store, target)


def check_room(folder: Path, n_bytes: int, purpose: str) -> None:
    """Raise StoreError unless the disk of `folder` has `n_bytes` free; `purpose` begins the message."""
    free = shutil.disk_usage(folder.parent).free
    if free < n_bytes:
        raise StoreError(
            f"{purpose} needs {n_bytes / 1e9:.3g} GB of temporary space in {folder.parent}, but {free / 1e9:.3g} GB "
            "are free; make room or write to another disk"
        )


def _prefix(target: Path) -> str:
    return f".{target.name}.work-{socket.gethostname()}-"
