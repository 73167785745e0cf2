"""Copies of complete groups to URLs: of local ones, and of those next to them, which the bucket makes where it can."""

import asyncio
from pathlib import Path

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from daskkern.data.remote.group import ROOT, WRITER, resumable_remote_group
from daskkern.data.remote.stores import RemoteStore, for_each, open_zarr

_AT_ONCE = 8  # objects in transit


def upload(folder: Path, url: str, *, kind: str, overwrite: bool) -> None:
    """Copy a complete group in a local folder to a URL, eight objects at a time. Raises StoreError."""
    keys = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with resumable_remote_group(url, kind=kind, key=None, overwrite=overwrite) as partial:
        target = RemoteStore.at(partial.url, read_only=False)

        async def put(key: str) -> None:
            data = await asyncio.to_thread((folder / key).read_bytes)
            await target.set(key, default_buffer_prototype().buffer.from_bytes(data))

        sync(for_each(put, [key for key in keys if key not in (ROOT, WRITER)], _AT_ONCE))
        _describe(partial.group, zarr.open_group(store=folder, mode="r", zarr_format=3))


def copy_remote(url: str, out: str, *, kind: str, overwrite: bool) -> None:
    """Copy a complete group to the URL `out`, in the same folder. Raises StoreError."""
    source = RemoteStore.at(url, read_only=True)
    with resumable_remote_group(out, kind=kind, key=None, overwrite=overwrite) as partial:
        target, both = RemoteStore.at(partial.url, read_only=False), source.parent()

        async def copy(key: str) -> None:
            await both.copy(f"{source.name}/{key}", f"{target.name}/{key}")

        async def copy_all() -> None:
            await for_each(copy, [key async for key in source.list() if key not in (ROOT, WRITER)], _AT_ONCE)

        sync(copy_all())
        _describe(partial.group, open_zarr(url))


def _describe(group: zarr.Group, like: zarr.Group) -> None:
    """Give a group that is being written the attributes of a complete one."""
    group.update_attributes({**like.attrs.asdict(), "complete": False})
