"""What is said where a store cannot be written to: its own place, the reason, and what to do."""

import errno
import os

import zarr

from daskkern.errors import StoreError, whole_name

_FULL = (errno.ENOSPC, errno.EDQUOT)


def unwritten(group: zarr.Group, error: OSError) -> StoreError:
    """Return the error for a group that could not be written to."""
    place = whole_name(str(group.store_path).removeprefix("file://"))
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    remedy = "make room, or choose another place" if error.errno in _FULL else "choose another place"
    return StoreError(f"{place} cannot be written: {reason}; {remedy}")
