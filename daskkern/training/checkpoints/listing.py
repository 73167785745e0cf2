"""The checkpoints in a folder or bucket, and whether their fits have ended."""

import os
from dataclasses import dataclass, field

from zarr.core.sync import sync

from daskkern.data.remote.stores import RemoteStore, absolute, is_url, open_zarr, public
from daskkern.errors import StoreError
from daskkern.training.checkpoints.checkpoint import FORMAT, open_checkpoint, read_checkpoint
from daskkern.training.checkpoints.recorded_command import Resumption, read_resumption

SUFFIX = ".checkpoint"
"""What the place of a checkpoint has in addition to that of its model, unless it was named."""


@dataclass(frozen=True)
class FoundFit:
    """The fit of a checkpoint.

    Attributes
    ----------
    location : str
        Of the checkpoint.
    out : str
        Where its model is or will be; "" where that is unknown.
    record : Resumption or None
        The command that began it, where it is known.
    is_finished : bool
        Whether its model is written and has no epoch left.
    problem : str
        Why its checkpoint cannot be read; "" if it can.
    exists : bool
        Whether anything is at the location.
    """

    location: str = field(repr=False)
    out: str = field(repr=False, default="")
    record: Resumption | None = None
    is_finished: bool = False
    problem: str = ""
    exists: bool = True


def find_fits(place: str) -> tuple[FoundFit, ...]:
    """Return the fits of all checkpoints directly in the folder or at the URL `place`, by name.

    Raises
    ------
    StoreError
        When the place cannot be listed.
    """
    place = absolute(place).rstrip("/")
    found = (inspect_checkpoint(f"{place}/{name}") for name in _names(place) if _is_checkpoint(f"{place}/{name}"))
    return tuple(found)


def inspect_checkpoint(location: str) -> FoundFit:
    """Return the fit of the checkpoint at `location`, damaged or not."""
    out = location.removesuffix(SUFFIX) if location.endswith(SUFFIX) else ""
    try:
        group = open_checkpoint(location)
        if group is None:
            return FoundFit(location, out, problem=f"there is no checkpoint at {public(location)}", exists=False)
        record = read_resumption(group, location)
        saved = read_checkpoint(location, None)
    except StoreError as error:
        return FoundFit(location, out, problem=str(error))
    if record is not None and record.out is not None:
        out = record.out
    written = reason_of_model(out) not in (None, "interrupted")
    finished = saved is not None and bool(saved.commit.position.reason) and written
    return FoundFit(location, out, record, finished)


def _names(place: str) -> list[str]:
    if not is_url(place):
        try:
            return sorted(entry.name for entry in os.scandir(place) if entry.is_dir())
        except OSError as error:
            raise StoreError(f"the folder {place} cannot be listed: {error.strerror}; give a folder or URL") from None
    store = RemoteStore.at(place, read_only=True)
    if not store.supports_listing:
        raise StoreError(f"{public(place)} cannot be listed; name a checkpoint in it")

    async def names() -> list[str]:
        return [name.strip("/") async for name in store.list_dir("")]

    return sorted(set(sync(names())))


def _is_checkpoint(location: str) -> bool:
    """Return whether a checkpoint is, or seems to have been, at `location`."""
    if location.endswith(SUFFIX):
        return True
    try:
        return bool(open_zarr(location).attrs.get("format") == FORMAT)
    except Exception:  # Zarr and its stores raise many types for what is not a group
        return False


def reason_of_model(out: str) -> str | None:
    """Return why the fit of the model at `out` ended; None where there is no model, or that is not recorded."""
    try:
        provenance = open_zarr(out).attrs.get("provenance") if out else None
    except Exception:  # as above
        return None
    found = provenance.get("reason") if isinstance(provenance, dict) else None
    return None if found is None else str(found)
