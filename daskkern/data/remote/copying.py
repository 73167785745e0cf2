"""Copies of groups behind URLs, which the bucket makes where it can."""

from zarr.core.sync import sync

from daskkern.data.remote.group import ROOT, WRITER, resumable_remote_group
from daskkern.data.remote.stores import RemoteStore, for_each, open_zarr

_AT_ONCE = 8  # objects in transit


def copy_remote(url: str, out: str, *, kind: str, overwrite: bool) -> None:
    """Copy a complete group to the URL `out`, in the same folder. Raises StoreError."""
    source = RemoteStore.at(url, read_only=True)
    attributes = {**open_zarr(url).attrs.asdict(), "complete": False}
    with resumable_remote_group(out, kind=kind, key=None, overwrite=overwrite) as partial:
        target, both = RemoteStore.at(partial.url, read_only=False), source.parent()

        async def copy(key: str) -> None:
            await both.copy(f"{source.name}/{key}", f"{target.name}/{key}")

        async def copy_all() -> None:
            await for_each(copy, [key async for key in source.list() if key not in (ROOT, WRITER)], _AT_ONCE)

        sync(copy_all())
        partial.group.update_attributes(attributes)
