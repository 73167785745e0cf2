"""Zarr arrays with every chunk stored, so that a missing one means damage; and messages for failed writes."""

import errno
import os

import zarr

from daskkern.arrays import HostArray
from daskkern.errors import StoreError, whole_name

_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(
    group: zarr.Group, name: str, values: HostArray, chunks: tuple[int, ...] | None = None, *, overwrite: bool = False
) -> None:
    """Write `values` as a new array. By default Zarr leaves out chunks of zeros."""
    group.create_array(
        name,
        data=values,
        chunks=chunks or "auto",
        compressors=None,
        overwrite=overwrite,
        config={"write_empty_chunks": True},
    )


def unwritten(group: zarr.Group, error: OSError) -> StoreError:
    """Return the error for a group that could not be written to."""
    place = whole_name(str(group.store_path).removeprefix("file://"))
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    remedy = "make room, or choose another place" if error.errno in _FULL else "choose another place"
    return StoreError(f"{place} cannot be written: {reason}; {remedy}")
