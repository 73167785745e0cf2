"""Checkpoints: Zarr groups of commits, each in a subgroup that is valid once it is marked complete.

Nothing is renamed, so that any storage that Zarr can write to will do. A new commit is written next to the old one and
marked complete, and only then is the old one removed: if the writer stops at any point, the group still has a complete
commit, if it ever had one.
"""

import json
import os
import shutil
import time
import warnings
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import zarr
from zarr.errors import GroupNotFoundError

from daskkern.arrays import HostArray
from daskkern.data.remote.group import remove_remote
from daskkern.data.remote.stores import is_url, open_zarr
from daskkern.errors import StoreError
from daskkern.events import CheckpointWritten
from daskkern.training.checkpoints.commits import Commit, Position, snapshot_of

FORMAT = "daskkern-checkpoint"
VERSION = 2


@dataclass(frozen=True)
class Found:
    """The content of a checkpoint: its last complete commit, and the run that wrote it."""

    commit: Commit
    run: str


def read_checkpoint(location: str, fingerprint: str) -> Found | None:
    """Return the last complete commit at `location`, or None without a checkpoint or a complete commit.

    Raises
    ------
    StoreError
        When something else is at `location`, when a commit is damaged, or when its data, settings or schema differ from
        those of `fingerprint`; the message names the differences.
    """
    while True:
        group = _open(location)
        whole = [] if group is None else _whole(group)
        if group is None or not whole:
            return None
        last = max(whole)
        try:
            check_fingerprint(_record(group[last].attrs.get("fingerprint")), fingerprint, f"the checkpoint {location}")
            return Found(_read(group, last, location), str(group[last].attrs.get("run", "")))
        except (KeyError, StoreError):
            again = _open(location)
            if again is not None and last in _whole(again):
                raise
            # Another run, about to end, has replaced it with a later commit meanwhile.


def begin_checkpoint(location: str, run: str) -> None:
    """Create the group at `location`, or take it over for `run` with its commits. Raises StoreError."""
    _open(location)  # raises when something else is at the location
    try:
        group = open_zarr(location, "a")
        group.update_attributes({"format": FORMAT, "version": VERSION, "run": run})
    except StoreError:
        raise
    except Exception as error:  # zarr and object stores raise many types
        raise StoreError(
            f"the checkpoint {location} cannot be written: {error}; choose another place for it"
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
    group = _open(location)
    return group is not None and bool(_whole(group))


def remove_checkpoint(location: str) -> None:
    """Remove the checkpoint at `location`, if there is one. Raises StoreError for anything else."""
    if _open(location) is None:
        return
    if is_url(location):
        remove_remote(location)
    else:
        shutil.rmtree(location)


class CheckpointWriter:
    """Writes commits in the background, one at a time; a commit offered while one is being written is skipped.

    It never raises: a full disk must not end a healthy fit. `problem` describes the last error, "" for none.

    Parameters
    ----------
    location : str
        Where :func:`begin_checkpoint` was called for `run`.
    run, fingerprint : str
        Name of the run that writes, and JSON of what a reader must match.
    interval_s : float
        Least seconds between two of them.
    """

    def __init__(self, location: str, run: str, fingerprint: str, interval_s: float) -> None:
        self._location, self._interval_s = location, interval_s
        self._run, self._fingerprint = run, fingerprint
        self._next = time.monotonic() + interval_s
        self._pool = ThreadPoolExecutor(1, "daskkern-checkpoint")
        self._writing: Future[None] | None = None
        self._written: deque[CheckpointWritten] = deque()
        self.problem = "" if self._is_seen() else "this worker does not see it; choose a place that all workers share"

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
        self._settle()

    def offer(self, commit: Commit, *, at_once: bool) -> None:
        """Write a commit when it is due, or `at_once`. Waits only for a commit that is being written."""
        busy = self._writing is not None and not self._writing.done()
        if not at_once and (busy or time.monotonic() < self._next):
            return
        self._settle()
        self._next = time.monotonic() + self._interval_s
        if self._is_seen():
            self._writing = self._pool.submit(self._write, commit)

    def written(self) -> tuple[CheckpointWritten, ...]:
        """Return the checkpoints that were completed since the last call."""
        return tuple(self._written.popleft() for _ in range(len(self._written)))

    def _is_seen(self) -> bool:
        try:
            group = _open(self._location)
        except StoreError:
            return False
        return group is not None and group.attrs.get("run") == self._run

    def _settle(self) -> None:
        if self._writing is not None:
            failure = self._writing.exception()
            self.problem = "" if failure is None else f"{type(failure).__name__}: {failure}"

    def _write(self, commit: Commit) -> None:
        begun = time.perf_counter()
        group = open_zarr(self._location, "r+")
        earlier = _commits(group)
        name = f"commit-{max((_number(known) for known in earlier), default=0) + 1:09d}"
        part = group.create_group(name, attributes={"complete": False})
        sums = {key: _put(part, key, values) for key, values in commit.arrays().items()}
        part.update_attributes(
            {
                "numbers": dict(commit.snapshot.numbers),
                "position": commit.position.to_json(),
                "crc32": sums,
                "run": self._run,
                "fingerprint": json.loads(self._fingerprint),
                "complete": True,
            }
        )
        seconds = time.perf_counter() - begun
        self._written.append(CheckpointWritten(commit.position.epoch, commit.position.batch, seconds))
        for known in earlier:
            with suppress(KeyError):  # another run that writes here has removed it
                del group[known]


def _put(group: zarr.Group, key: str, values: HostArray) -> int:
    values = np.ascontiguousarray(values)
    group.create_array(key, data=values, compressors=None)
    return zlib.crc32(values.data)


def _commits(group: zarr.Group) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns of what a killed writer has just begun, which is not a group yet
        return sorted(name for name in group.group_keys() if name.startswith("commit-") and _number(name) >= 0)


def _whole(group: zarr.Group) -> list[str]:
    return [name for name in _commits(group) if group[name].attrs.get("complete") is True]


def _number(name: str) -> int:
    digits = name.removeprefix("commit-")
    return int(digits) if digits.isdigit() else -1


def _open(location: str) -> zarr.Group | None:
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
    if group.attrs.get("version", VERSION) != VERSION:
        raise StoreError(
            f"the checkpoint {location} has version {group.attrs.get('version')!r}, this daskkern reads {VERSION}; "
            "resume with the daskkern that wrote it, or remove it"
        )
    return group if "format" in group.attrs else None


def _read(group: zarr.Group, name: str, location: str) -> Commit:
    part = group[name]
    assert isinstance(part, zarr.Group)
    try:
        sums = dict(_record(part.attrs["crc32"]))
        arrays = {key: np.asarray(part[key][...]) for key in sums}  # type: ignore[index]
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
