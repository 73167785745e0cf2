"""Checkpoints: Zarr groups of commits, each in a subgroup that is valid once it is marked complete.

Nothing is renamed, so that any storage that Zarr can write to will do. A new commit is written next to the old one and
marked complete, and only then is the old one removed: if the writer stops at any point, the group still has a complete
commit, if it ever had one. The last commit is that of the latest generation, not the last one written: see
:mod:`daskkern.training.checkpoints.claims`.
"""

import json
import os
import shutil
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.errors import GroupNotFoundError

from daskkern.arrays import HostArray
from daskkern.data.remote.group import remove_remote
from daskkern.data.remote.stores import is_url, open_zarr
from daskkern.data.storage.sizes import check_chunks
from daskkern.errors import StoreError, SupersededError
from daskkern.training.checkpoints.claims import Claim, CommitGeneration, StoredCommit, claim, commits_of
from daskkern.training.checkpoints.commits import Commit, Position, snapshot_of
from daskkern.training.checkpoints.recorded_command import Resumption, write_resumption

FORMAT = "daskkern-checkpoint"
VERSION = 3
_LEFT_OUT_BYTES = 64 << 20
"""Bytes of an array up to which missing chunks may be zeros."""
_REMOVALS, _BETWEEN_S = 25, 0.2  # tries to remove what is still being written, and the seconds after each
_READ = (2, VERSION)  # 2 has no claims, and no generations in the names of commits


@dataclass(frozen=True)
class Found:
    """The content of a checkpoint: its last complete commit, and the run and the generation that wrote it."""

    commit: Commit
    run: str
    generation: CommitGeneration


def read_checkpoint(location: str, fingerprint: str | None) -> Found | None:
    """Return the last complete commit at `location`, or None without a checkpoint or a complete commit.

    Without a `fingerprint`, that of any fit.

    Raises
    ------
    StoreError
        When something else is at `location`, when a commit is damaged, or when its data, settings or schema differ from
        those of `fingerprint`; the message names the differences.
    """
    while True:
        group = open_checkpoint(location)
        valid = [] if group is None else _valid(group)
        if group is None or not valid:
            return None
        last = valid[-1]
        try:
            attributes = group[last.stored].attrs.asdict()
            if fingerprint is not None:
                check_fingerprint(_record(attributes.get("fingerprint")), fingerprint, f"the checkpoint {location}")
            commit = _read(group, last.stored, location)
            return Found(commit, str(attributes.get("run", "")), last.name.generation)
        except (KeyError, StoreError):
            again = open_checkpoint(location)
            if again is not None and last in _valid(again):
                raise
            # Another run, about to end, has replaced it with a later commit meanwhile.


def read_fingerprint(location: str) -> dict[str, Any]:
    """Return the fingerprint that the last complete commit at `location` has, {} without one. Raises StoreError."""
    group = open_checkpoint(location)
    valid = [] if group is None else _valid(group)
    if group is None or not valid:
        return {}
    try:
        return _record(group[valid[-1].stored].attrs.asdict().get("fingerprint"))
    except KeyError:  # another run, about to end, has replaced it
        return read_fingerprint(location)


def begin_checkpoint(location: str, run: str, record: Resumption | None = None) -> Claim:
    """Create the group at `location`, or take it over for `run` with its commits. Raises StoreError.

    With a `record`, the fit can be continued by ``daskkern resume``.
    """
    open_checkpoint(location)  # raises when something else is at the location
    try:
        group = open_zarr(location, "a")
        group.update_attributes({"format": FORMAT, "version": VERSION, "run": run})
        claimed = claim(group, location, run)
        if record is not None:
            write_resumption(group, record)
        return claimed
    except StoreError:
        raise
    except Exception as error:  # zarr and object stores raise many types
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else ""
        raise StoreError(
            f"the checkpoint {location} cannot be written: {reason or error}; choose another place for the model, or "
            "for the checkpoint alone with --checkpoint"
        ) from error


def check_fingerprint(
    theirs: dict[str, Any], ours: str, what: str, remedy: str = "resume with its data and settings, or remove it"
) -> None:
    """Raise StoreError with the differences between the fit that made `what` and this one, if there are any."""
    differences = _differences(theirs, json.loads(ours))
    if differences:
        raise StoreError(f"{what} was made by another fit: {'; '.join(differences)}; {remedy}")


def is_checkpoint(location: str) -> bool:
    """Return whether `location` has a checkpoint with a complete commit. Raises StoreError for anything else."""
    group = open_checkpoint(location)
    return group is not None and bool(_valid(group))


def remove_checkpoint(location: str) -> None:
    """Remove the checkpoint at `location`, if there is one. Raises StoreError for anything else."""
    if open_checkpoint(location) is None:
        return
    if is_url(location):
        remove_remote(location)
    else:
        shutil.rmtree(location)


def remove_checkpoint_of(location: str, run: str | None, claim: Claim | None) -> None:
    """Remove the checkpoint at `location` at the end of the run that wrote it, unless another has taken it over.

    Parameters
    ----------
    location : str
    run : str or None
        The name of the run; None where the claim says enough.
    claim : Claim or None
        That of its driver; None where the name of the run says enough.
    """
    group = open_checkpoint(location)
    if group is None or (run is not None and group.attrs.get("run") != run):
        return
    with suppress(SupersededError, FileNotFoundError):  # another driver of the same run may remove it, too
        if claim is None or claim.check():
            remove_checkpoint(location)


def remove_begun_checkpoint(location: str) -> None:
    """Remove a checkpoint to which ranks that are about to end may still write, if there is one, within some seconds.

    Raises StoreError for anything else.
    """
    if open_checkpoint(location) is None:
        return
    if is_url(location):
        remove_remote(location)
        return
    for _ in range(_REMOVALS):
        shutil.rmtree(location, ignore_errors=True)
        time.sleep(_BETWEEN_S)
        if not os.path.lexists(location):
            return


def open_checkpoint(location: str) -> zarr.Group | None:
    """Return the group of the checkpoint at `location`; None without one. Raises StoreError for anything else."""
    try:
        group = open_zarr(location)
    except (FileNotFoundError, GroupNotFoundError):
        if not is_url(location) and os.path.isdir(location) and not os.listdir(location):
            return None
        if not is_url(location) and os.path.lexists(location):
            raise StoreError(f"{location} exists and is not a checkpoint; choose another place for it") from None
        return None
    except StoreError:
        raise
    except Exception as error:  # zarr raises many types for unreadable groups
        raise StoreError(f"the checkpoint {location} cannot be read: {type(error).__name__}: {error}") from error
    if group.attrs.get("format") not in (FORMAT, None) or (group.attrs.get("format") is None and len(list(group))):
        raise StoreError(f"{location} holds {group.attrs.get('format', 'another Zarr group')!r}, not a checkpoint")
    if group.attrs.get("version", VERSION) not in _READ:
        raise StoreError(
            f"the checkpoint {location} has version {group.attrs.get('version')!r}, this daskkern reads "
            f"{_READ[0]} and {_READ[1]}; resume with the daskkern that wrote it, or remove it"
        )
    return group if "format" in group.attrs else None


def _valid(group: zarr.Group) -> list[StoredCommit]:
    return [commit for commit in commits_of(group) if commit.is_valid]


def _read(group: zarr.Group, name: str, location: str) -> Commit:
    part = group[name]
    assert isinstance(part, zarr.Group)
    try:
        sums = dict(_record(part.attrs["crc32"]))
        arrays = {key: _values(part, key, f"{name}/{key} of the checkpoint {location}") for key in sums}
        damaged = [key for key in sums if zlib.crc32(np.ascontiguousarray(arrays[key]).data) != sums[key]]
        if damaged:
            raise StoreError(
                f"the checkpoint {location} is damaged: {name}/{damaged[0]} has another checksum; remove it"
            )
        numbers = _record(part.attrs["numbers"])
        return Commit(snapshot_of(arrays, numbers), Position.from_json(str(part.attrs["position"])))
    except StoreError:
        raise
    except Exception as error:  # missing keys, truncated files
        raise StoreError(
            f"the checkpoint {location} cannot be read ({name}: {type(error).__name__}: {error}); remove it"
        ) from error


def _values(part: zarr.Group, key: str, what: str) -> HostArray:
    array = part[key]
    if not isinstance(array, zarr.Array):
        raise StoreError(f"{what} is missing; remove the checkpoint")
    # Earlier versions did not write chunks of zeros: the checksum tells whether the missing ones were.
    if check_chunks(array, what) is not None and array.nbytes > _LEFT_OUT_BYTES:
        raise StoreError(f"{what} is incomplete; remove the checkpoint")
    return np.asarray(array[...])


def _record(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return the differences in words, over two levels of keys."""
    found = []
    for key in sorted({*theirs, *ours}):
        there, here = theirs.get(key), ours.get(key)
        if isinstance(there, dict) and isinstance(here, dict):
            found += [f"{key} {text}" for text in _differences(there, here)]
        elif there != here:
            found.append(f"{key} was {there!r} and is {here!r}")
    return found
