"""Zarr groups in remote stores that are complete, or marked as incomplete.

Object stores have no rename. So a group is written at its final location. Its root metadata say ``complete: false``
from the first object on, and ``complete: true`` in the very last one: its replacement is atomic, and every reader of
daskkern refuses a group without it. Next to it ``writer.json`` names the process that writes. An error removes what was
written; after a kill it stays, refused by readers, and the next writer on the same machine replaces it.

A complete group is replaced by way of ``NAME.partial-*`` next to it. When the new one is complete, the old root
metadata become those of an incomplete group, the other objects are removed, the new ones are copied, and the root
metadata come last. A kill in between leaves a group at this location that readers refuse, and the complete new one next
to it.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import zarr
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync

from daskkern.backend.processes import is_running
from daskkern.data.remote.folders import remove_empty_folders
from daskkern.data.remote.objects import get_object, remove_object
from daskkern.data.remote.stores import RemoteStore, for_each, open_zarr
from daskkern.errors import StoreError, note_continuation

ROOT, WRITER = "zarr.json", "writer.json"
PROGRESS = "progress.npz"
"""A record of the finished parts of a group, without which nothing is resumed."""
_AT_ONCE = 8  # objects in transit


@contextmanager
def remote_group(
    url: str, *, kind: str, overwrite: bool, check: Callable[[], None] = lambda: None
) -> Iterator[zarr.Group]:
    """Yield an empty Zarr v3 group at a URL that is complete when the block ends without an exception.

    `check` is called right before it is completed; what it raises removes the group.

    Raises
    ------
    StoreError
        When the location is taken, is being written by another process, or cannot be written to.
    """
    with _claimed(url, kind, overwrite) as claim:
        yield claim.open()
        check()
        claim.check()
        claim.open().update_attributes({"complete": True})


@dataclass(frozen=True)
class RemotePartial:
    """A remote group being written: where, and whether it was found incomplete with the progress of a dead writer."""

    group: zarr.Group
    url: str
    found: bool


@contextmanager
def resumable_remote_group(url: str, *, kind: str, key: str | None, overwrite: bool) -> Iterator[RemotePartial]:
    """Yield a group as :func:`remote_group` does, or what a killed writer with the same `key` left.

    It is taken up when it holds an object :data:`PROGRESS`, which the writer keeps up to date and which is removed at
    the end. An interrupt leaves everything in place, any other exception removes it.

    Raises
    ------
    StoreError
        As :func:`remote_group`.
    """
    with _claimed(url, kind, overwrite, key) as claim:
        yield RemotePartial(claim.open(), claim.store.url, claim.resumes)
        remove_object(claim.store.url, PROGRESS)
        claim.check()
        claim.open().update_attributes({"complete": True})


def remove_remote(url: str) -> None:
    """Remove everything at a URL, metadata first: what remains after a kill is not a group. Raises StoreError."""
    store = RemoteStore.at(url, read_only=False)

    async def remove() -> None:
        keys = [key async for key in store.list()]
        metadata = sorted((key for key in keys if key.endswith(ROOT)), key=lambda key: key.count("/"))
        for key in metadata:
            await store.delete(key)
        await for_each(store.delete, [key for key in keys if not key.endswith(ROOT)], _AT_ONCE)
        remove_empty_folders(store)

    sync(remove())


def check_remote(url: str, *, kind: str, overwrite: bool) -> None:
    """Raise StoreError when a group of this kind may not be written to `url`."""
    _find(url, kind, overwrite)


@dataclass(frozen=True)
class _Found:
    """The contents of a URL: nothing, a complete group, or objects left by a dead writer."""

    is_whole: bool
    is_left_behind: bool


def _find(url: str, kind: str, overwrite: bool) -> _Found:
    store = RemoteStore.at(url, read_only=False)
    if "/" not in store.url.partition("://")[2] and not url.startswith("memory://"):
        raise StoreError(f"{url} is a whole bucket; name a place in it, such as {store.url}/name")
    try:
        group = open_zarr(url)
    except FileNotFoundError:
        if sync(_any(store)):
            raise StoreError(f"there are objects at {url} that are not a {kind}; choose another name") from None
        return _Found(is_whole=False, is_left_behind=False)
    attributes = group.attrs.asdict()
    if attributes.get("format") != kind:
        raise StoreError(
            f"{url} exists and is not a {kind}, so it is not overwritten; choose another name or remove it first"
        )
    if attributes.get("complete") is True:
        if not overwrite:
            raise StoreError(f"{url} exists; choose another name, or replace it with --overwrite (overwrite=True)")
        return _Found(is_whole=True, is_left_behind=False)
    writer = _writer(store)
    if not overwrite and not _is_dead(writer):
        raise StoreError(
            f"{url} is a half-written {kind}{_by(writer)}; wait for it, or if nobody writes it any more, replace it "
            "with --overwrite (overwrite=True)"
        )
    return _Found(is_whole=False, is_left_behind=True)


@dataclass(frozen=True)
class _Claim:
    """A location claimed by `writer`, whose root metadata mark the group as incomplete."""

    store: RemoteStore
    writer: dict[str, Any]
    resumes: bool = False

    def begin(self, kind: str) -> None:
        """Create a group marked as incomplete, also in place of a complete one."""
        self.sign()
        attributes: dict[str, Any] = {"format": kind, "complete": False}
        group = zarr.open_group(store=self.store, mode="a", zarr_format=3)
        group.attrs.put(attributes)

    def sign(self, **more: object) -> None:
        """Record the writer."""
        sync(self.store.set(WRITER, _buffer(json.dumps({**self.writer, **more}).encode())))

    def open(self) -> zarr.Group:
        return zarr.open_group(store=self.store, mode="r+", zarr_format=3)

    def check(self) -> None:
        """Raise StoreError when another process has claimed the location meanwhile; otherwise remove the claim."""
        if _writer(self.store) != self.writer:
            raise StoreError(f"another process writes to {self.store.url}, too; run only one of them, and start over")
        sync(self.store.delete(WRITER))


@contextmanager
def _claimed(url: str, kind: str, overwrite: bool, key: str | None = None) -> Iterator[_Claim]:
    """Yield a claim on a location; the caller completes the group in it. With a `key` it may be resumed."""
    found = _find(url, kind, overwrite)
    target = RemoteStore.at(url, read_only=False)
    token = secrets.token_hex(4) if key is None else key[:8]  # the same again, to be found after a kill
    aside = RemoteStore.at(f"{target.url}.partial-{token}" if found.is_whole else target.url, read_only=False)
    resumes = key is not None and _may_resume(aside, key, overwrite and not found.is_whole)
    claim = _Claim(aside, {**_this_process(), "key": key}, resumes)
    try:
        if resumes:
            claim.sign()
        else:
            claim.begin(kind)
            if found.is_left_behind or (found.is_whole and key is not None):
                sync(_remove(claim.store, but=(ROOT, WRITER)))
        yield claim
    except (KeyboardInterrupt, SystemExit) as end:
        with suppress(Exception):
            if key is None or get_object(aside.url, PROGRESS) is None:
                sync(_remove(claim.store))
            else:
                claim.sign(ended=True)
                note_continuation(end)
        raise
    except BaseException:
        with suppress(Exception):
            sync(_remove(claim.store))
        raise
    if found.is_whole:
        _find(url, kind, overwrite)
        _Claim(target, claim.writer).begin(kind)
        sync(_replace(claim.store, target))


def _may_resume(store: RemoteStore, key: str, overwrite: bool) -> bool:
    """Return whether a dead writer, or one that `overwrite` ends, left progress of the same work here."""
    writer = _writer(store)
    if not isinstance(writer, dict) or writer.get("key") != key or not (overwrite or _is_dead(writer)):
        return False
    return get_object(store.url, PROGRESS) is not None


async def _replace(new: RemoteStore, old: RemoteStore) -> None:
    """Replace the objects of `old`, which is marked as incomplete, by those of `new`, its neighbour."""
    keys = [key async for key in new.list()]
    both = old.parent()
    await _remove(old, but=(ROOT, WRITER))

    async def copy(key: str) -> None:
        await both.copy(f"{new.name}/{key}", f"{old.name}/{key}")

    await for_each(copy, [key for key in keys if key != ROOT], _AT_ONCE)
    await old.delete(WRITER)
    await copy(ROOT)
    await _remove(new)


def _writer(store: RemoteStore) -> Any:
    """Return the recorded writer of a location, as made by :func:`_this_process`, or None."""
    found = sync(store.get(WRITER, default_buffer_prototype()))
    try:
        return None if found is None else json.loads(found.to_bytes())
    except ValueError:
        return None


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "begun": time.time(), "name": secrets.token_hex(8)}


def _is_dead(writer: Any) -> bool:
    """Return whether a writer was a process of this machine that has ended."""
    if isinstance(writer, dict) and writer.get("ended"):
        return True
    if not isinstance(writer, dict) or writer.get("host") != socket.gethostname() or os.name != "posix":
        return False
    try:
        return not is_running(int(writer["pid"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return False


def _by(writer: Any) -> str:
    """Return the writer and the age of its claim in words."""
    try:
        minutes = (time.time() - float(writer["begun"])) / 60
        return f" that process {int(writer['pid'])} on {writer['host']} began {minutes:.0f} minutes ago"
    except (KeyError, TypeError, ValueError):
        return ""


async def _remove(store: RemoteStore, but: tuple[str, ...] = ()) -> None:
    """Remove the objects of an incomplete group; its root metadata, which mark it as such, go last."""
    keys = [key async for key in store.list() if key not in but]
    await for_each(store.delete, [key for key in keys if key != ROOT], _AT_ONCE)
    if ROOT in keys:
        await store.delete(ROOT)
    remove_empty_folders(store)


async def _any(store: RemoteStore) -> bool:
    async for _ in store.list():
        return True
    return False


def _buffer(data: bytes) -> Buffer:
    return default_buffer_prototype().buffer.from_bytes(data)
