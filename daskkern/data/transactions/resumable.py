"""Groups whose writing can be resumed after the process that wrote them was killed.

As in :mod:`daskkern.data.transactions.atomic` a group is written under a hidden sibling name. Here that folder also
records its writer and the work (``owner.json``), so that the next process can distinguish live from abandoned work.
"""

import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import zarr

from daskkern.data.transactions.atomic import (
    OWNER,
    check_destination,
    fresh_partial,
    local_folder,
    make_parent,
    move_into_place,
    partial_prefix,
    sweep,
)
from daskkern.errors import note_continuation

PROGRESS = "progress.npz"
_STALE_SECONDS = 3600.0  # after which a folder of another machine, whose processes cannot be checked, is abandoned


@dataclass(frozen=True)
class Partial:
    """A group being written; `found` is true for one that a dead process left, with its progress."""

    group: zarr.Group
    folder: Path
    found: bool

    @property
    def progress(self) -> Path:
        """The file in which the writer may record its progress; without it nothing is resumed."""
        return self.folder / PROGRESS


@dataclass(frozen=True)
class _Owner:
    """The process that writes a folder; `where` names the machine and its process namespace."""

    where: str
    pid: int
    started: float
    key: str

    @classmethod
    def this(cls, key: str) -> "_Owner":
        return cls(_here(), os.getpid(), psutil.Process().create_time(), key)

    @classmethod
    def of(cls, folder: Path) -> "_Owner | None":
        try:
            found = json.loads((folder / OWNER).read_text(encoding="utf-8"))
            return cls(str(found["where"]), int(found["pid"]), float(found["started"]), str(found["key"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_dead(self, folder: Path) -> bool:
        if self.pid == 0:
            return True
        if self.where != _here():
            return time.time() - _last_activity(folder) > _STALE_SECONDS
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) > 1
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


def work_key(work: object) -> str:
    """Return a digest of the work, given as JSON: equal for equal sources and settings."""
    return hashlib.sha256(json.dumps(work, sort_keys=True, default=str).encode()).hexdigest()


@contextmanager
def resumable_group(path: str | Path, *, kind: str, key: str, overwrite: bool = False) -> Iterator[Partial]:
    """Yield a group that appears at `path` when the block ends without an exception, as ``atomic_group`` does.

    What a dead process left next to `path` is resumed when its `key` is the same and it recorded its progress, and
    removed otherwise; the work of a live process is left alone. An interrupt keeps the folder when it holds recorded
    progress; any other exception removes it.
    """
    target = local_folder(path)
    check_destination(target, kind=kind, overwrite=overwrite)
    make_parent(target)
    partial = _take_up(target, key) or _begin(target, kind, key)
    keep = False
    try:
        yield partial
        partial.group.update_attributes({"complete": True})
        check_destination(target, kind=kind, overwrite=overwrite)
        (partial.folder / PROGRESS).unlink(missing_ok=True)
        move_into_place(partial.folder, target)
        (target / OWNER).unlink(missing_ok=True)  # not earlier: it identifies what a killed process leaves here
    except (KeyboardInterrupt, SystemExit) as end:
        keep = partial.progress.exists()
        if keep:
            note_continuation(end)
        raise
    finally:
        if keep:
            _sign(partial.folder, _Owner("", 0, 0.0, key))  # this process may continue, but it no longer writes here
        else:
            shutil.rmtree(partial.folder, ignore_errors=True)  # already renamed on success


def _begin(target: Path, kind: str, key: str) -> Partial:
    folder = fresh_partial(target)
    group = zarr.open_group(store=folder, mode="w-", zarr_format=3)
    _sign(folder, _Owner.this(key))
    group.update_attributes({"format": kind, "complete": False})
    return Partial(group, folder, found=False)


def _take_up(target: Path, key: str) -> Partial | None:
    """Claim the newest folder of a dead process with this key, and remove all others of dead processes."""
    sweep(target, partial_prefix(target))  # of processes killed before signing
    claimed: Partial | None = None
    for folder, owner in _left_behind(target):
        if claimed is None and owner.key == key and (folder / PROGRESS).is_file():
            claimed = _claim(folder, target, key)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return claimed


def _claim(folder: Path, target: Path, key: str) -> Partial | None:
    mine = fresh_partial(target)
    try:
        folder.rename(mine)  # only one of several claimants succeeds
        _sign(mine, _Owner.this(key))
        return Partial(zarr.open_group(store=mine, mode="r+", zarr_format=3), mine, found=True)
    except Exception:  # claimed by another process, or damaged: the work starts over
        shutil.rmtree(mine, ignore_errors=True)
        return None


def _left_behind(target: Path) -> list[tuple[Path, _Owner]]:
    if not target.parent.is_dir():
        return []
    prefix = f".{target.name}.partial-"
    folders = [entry for entry in target.parent.iterdir() if entry.name.startswith(prefix) and entry.is_dir()]
    owned = [(folder, owner) for folder in folders if (owner := _Owner.of(folder)) is not None]
    dead = [(folder, owner) for folder, owner in owned if owner.is_dead(folder)]
    return sorted(dead, key=lambda pair: -_last_activity(pair[0]))


def _sign(folder: Path, owner: _Owner) -> None:
    temporary = folder / f"{OWNER}.new"
    temporary.write_text(json.dumps(asdict(owner)), encoding="utf-8")
    temporary.replace(folder / OWNER)


def _last_activity(folder: Path) -> float:
    """Return when the folder's owner last showed activity: it signed, or recorded progress."""
    latest = 0.0
    for name in (OWNER, PROGRESS):
        with suppress(OSError):
            latest = max(latest, (folder / name).stat().st_mtime)
    return latest


def _here() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}".strip()
