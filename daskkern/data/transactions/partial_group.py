"""Groups being written, in a folder or behind a URL, whose progress the next process takes up after a kill."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zarr

from daskkern.data.remote.group import PROGRESS as REMOTE_PROGRESS
from daskkern.data.remote.group import resumable_remote_group
from daskkern.data.remote.stores import is_url
from daskkern.data.transactions.part_record import RecordPlace
from daskkern.data.transactions.resumable import PROGRESS, resumable_group


@dataclass(frozen=True)
class PartialGroup:
    """A group being written.

    Attributes
    ----------
    group : zarr.Group
    place : str
        The folder or URL at which it is written.
    found : bool
        Whether a dead process left it, with its progress.
    record : RecordPlace or None
        Where the writer may record its progress; None if nothing can be resumed.
    """

    group: zarr.Group
    place: str
    found: bool
    record: RecordPlace | None


@contextmanager
def partial_group(path: str | Path, *, kind: str, key: str | None, overwrite: bool) -> Iterator[PartialGroup]:
    """Yield a group that appears at a local path or URL when the block ends without an exception.

    What a dead process with the same `key` left is taken up, if it had recorded its progress. An interrupt keeps what
    has recorded progress; any other exception removes it. Without a `key` nothing is kept. Raises StoreError.
    """
    if is_url(path):
        with resumable_remote_group(str(path), kind=kind, key=key, overwrite=overwrite) as remote:
            record = RecordPlace(remote.url, REMOTE_PROGRESS)
            yield PartialGroup(remote.group, remote.url, remote.found, None if key is None else record)
        return
    with resumable_group(path, kind=kind, key=key or secrets.token_hex(8), overwrite=overwrite) as partial:
        record = RecordPlace(partial.folder, PROGRESS)
        yield PartialGroup(partial.group, str(partial.folder), partial.found, None if key is None else record)
