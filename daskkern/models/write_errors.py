"""Error messages for models that cannot be written: path, reason, sizes and remedy."""

import errno
import os
import shutil
from pathlib import Path

from daskkern.data.remote.stores import is_url
from daskkern.errors import ModelError
from daskkern.monitor.formatting import format_bytes

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of the operating system that end when others make room."""

_LIMIT = "raise the limit on the size of files (ulimit -f), or choose another place"


def unsaved(place: str, error: OSError, n_bytes: int) -> ModelError:
    """Return the error for a model of `n_bytes` that could not be written to `place`, a folder or URL."""
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    if error.errno not in NO_ROOM:
        return ModelError(f"{place} cannot be written: {reason}; choose another place")
    remedy = _LIMIT if error.errno == errno.EFBIG else "make room, or choose another place"
    return ModelError(f"{place} cannot be written: {reason}, for {format_bytes(n_bytes)}{_free(place)}; {remedy}")


def lacks_room(error: BaseException | None) -> bool:
    """Return whether a model could not be written because there was no room for it."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


def _free(place: str) -> str:
    if is_url(place):
        return ""
    above = next(parent for parent in Path(os.path.abspath(place)).parents if parent.exists())
    return f" ({format_bytes(shutil.disk_usage(above).free)} are free there)"
