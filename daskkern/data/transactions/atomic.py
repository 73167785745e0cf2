"""Zarr groups that are complete or absent.

On disk a group is written under a hidden sibling name and renamed when it is complete. An error or
interrupt before that removes the sibling and leaves what was there before untouched. Object stores have no rename:
see :mod:`daskkern.data.remote.group` for groups in remote stores.
"""

import glob
import hashlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import zarr

from daskkern.backend.processes import is_running
from daskkern.data.remote.group import check_remote, remote_group
from daskkern.data.remote.stores import is_url
from daskkern.errors import StoreError

OWNER = "owner.json"
"""A file in folders whose writing may be resumed."""


def _allowed() -> None:
    """Do nothing: whoever may write may complete what was written."""


@contextmanager
def atomic_group(
    path: str | Path, *, kind: str, overwrite: bool = False, check: Callable[[], None] = _allowed
) -> Iterator[zarr.Group]:
    """Yield an empty Zarr v3 group that appears at `path` when the block ends without an exception.

    Parameters
    ----------
    path : str or Path
        A folder of the local file system, whose parent is created when missing, or a URL.
    kind : str
        The format name in the group's attributes, for example ``"daskkern-store"``; ``complete`` is false
        there until the end.
    overwrite : bool
        Replace an existing group of the same kind. Anything else at `path` is never touched.
    check : callable
        Called right before the group appears; what it raises leaves `path` untouched.

    Raises
    ------
    StoreError
        When `path` is taken or cannot be written to. Checked before anything is written, and again before the rename.
    """
    if is_url(path):
        with remote_group(str(path), kind=kind, overwrite=overwrite, check=check) as group:
            yield group
        return
    target = local_folder(path)
    check_destination(target, kind=kind, overwrite=overwrite)
    make_parent(target)
    sweep(target, partial_prefix(target))
    partial = fresh_partial(target)
    try:
        try:
            group = zarr.open_group(store=partial, mode="w-", zarr_format=3)
        except OSError as error:
            raise unwritable(target, error) from error
        group.update_attributes({"format": kind, "complete": False})
        yield group
        group.update_attributes({"complete": True})
        check_destination(target, kind=kind, overwrite=overwrite)
        found = _version(target)
        check()
        move_into_place(partial, target, lambda old: _version(old) == found)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone already when all went well


def check_destination(path: str | Path, *, kind: str, overwrite: bool) -> None:
    """Raise StoreError when a group of this kind may not, or cannot, be written to `path`, a folder or URL."""
    if is_url(path):
        check_remote(str(path), kind=kind, overwrite=overwrite)
        return
    target = local_folder(path)
    if not os.path.lexists(target):
        _check_parent(target)
        return
    if _kind_at(target) != kind:
        raise StoreError(
            f"{target} exists and is not a {kind}, so it is not overwritten; choose another name or remove it first"
        )
    if not overwrite:
        raise StoreError(f"{target} exists; choose another name, or replace it with --overwrite (overwrite=True)")


def _check_parent(target: Path) -> None:
    """Raise StoreError where the folders above `target` exist and take no new entry, before anything is computed."""
    above = next(parent for parent in target.parents if os.path.lexists(parent))
    if not above.is_dir():
        raise StoreError(f"{target} cannot be written: {above} is not a folder; choose another place")
    if not os.access(above, os.W_OK | os.X_OK):
        raise StoreError(f"{target} cannot be written: {above} is read-only for this user; choose another place")


def make_parent(target: Path) -> None:
    """Create the folders above `target`. Raises StoreError where that is not possible."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(target, error) from error


def unwritable(target: Path, error: OSError) -> StoreError:
    """Return the error of a place that the operating system does not let this process write to."""
    reason = (error.strerror or type(error).__name__).lower()
    return StoreError(f"{target} cannot be written: {reason}; choose another place")


def local_folder(path: str | Path) -> Path:
    """Return the absolute path of a folder of this file system; StoreError for zip files."""
    target = Path(os.path.abspath(path))
    if target.suffix == ".zip":
        raise StoreError(f"{path} names a zip file; write to a folder and zip that")
    return target


def working_place(path: str | os.PathLike[str]) -> Path:
    """Return a local path next to which to put intermediate files for `path`: `path` itself where it is local.

    For a URL it is a name among the temporary files of this user (see ``TMPDIR``), the same on every call.
    """
    if not is_url(path):
        return local_folder(os.fspath(path))
    folder = Path(tempfile.gettempdir()) / f"daskkern-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise StoreError(f"{folder} belongs to another user; set TMPDIR to a folder of your own")
    return folder / hashlib.sha256(os.fspath(path).encode()).hexdigest()[:16]


def _kind_at(path: Path) -> str | None:
    """Return the format name of the group at `path`, whole or not; None when there is none."""
    if path.is_symlink() or not path.is_dir():
        return None
    try:
        kind = zarr.open_group(store=path, mode="r", zarr_format=3).attrs.get("format")
    except Exception:  # zarr raises many types when there is no group
        return None
    return kind if isinstance(kind, str) else None


def _version(target: Path) -> tuple[int, int] | None:
    """Return what distinguishes the group at `target` from others that come to its place; None without one."""
    with suppress(OSError):
        found = (target / "zarr.json").stat()
        return found.st_ino, found.st_mtime_ns
    return None


def _any(old: Path) -> bool:
    del old
    return True


def move_into_place(partial: Path, target: Path, may_go: Callable[[Path], bool] = _any) -> None:
    """Rename `partial` to `target`; an old group there is removed only after the new one has its name.

    `may_go` is asked about the old group once it has left its place: this process may have slept since it looked, and
    another has written there meanwhile. StoreError is raised then, and the other's group is kept.
    """
    if not target.exists():
        partial.rename(target)  # fails if another has come meanwhile
        return
    old = target.with_name(f".{target.name}.old-{secrets.token_hex(4)}")
    target.rename(old)
    try:
        if not may_go(old):
            raise StoreError(f"another process has written {target} meanwhile; its group is kept; choose another place")
        partial.rename(target)
    except BaseException:
        with suppress(OSError):
            old.rename(target)
        raise
    for replaced in target.parent.glob(f".{glob.escape(target.name)}.old-*"):  # now, or by a process that was killed
        shutil.rmtree(replaced, ignore_errors=True)


def partial_prefix(target: Path) -> str:
    """Return the prefix of the names that processes of this machine give to incomplete groups for `target`."""
    return f".{target.name}.partial-{socket.gethostname()}-"


def fresh_partial(target: Path) -> Path:
    """Return a new name next to `target` that contains the process number."""
    return target.with_name(f"{partial_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}")


def sweep(target: Path, prefix: str) -> None:
    """Remove folders next to `target` whose names are `prefix`, the number of a process that has ended, and ``-...``.

    Those with a file `OWNER` are left to :mod:`daskkern.data.transactions.resumable`.
    """
    for entry in target.parent.glob(f"{glob.escape(prefix)}*"):
        process = entry.name.removeprefix(prefix).partition("-")[0]
        if process.isdigit() and not is_running(int(process)) and not (entry / OWNER).exists():
            shutil.rmtree(entry, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to a local file that appears, or replaces an older one, when it is complete."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` as :func:`write_text` does."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise StoreError(f"{target} cannot be written: {error.strerror}; give another place") from None
