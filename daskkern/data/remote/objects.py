"""Small objects next to the arrays of a remote group: records of its writer and its progress."""

from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from daskkern.data.remote.stores import RemoteStore


def get_object(url: str, key: str) -> bytes | None:
    """Return the object `key` below a URL; None when there is none. Raises StoreError."""
    found = sync(RemoteStore.at(url, read_only=True).get(key, default_buffer_prototype()))
    return None if found is None else found.to_bytes()


def put_object(url: str, key: str, value: bytes) -> None:
    """Write the object `key` below a URL, which replaces an older one atomically. Raises StoreError."""
    sync(RemoteStore.at(url, read_only=False).set(key, default_buffer_prototype().buffer.from_bytes(value)))


def remove_object(url: str, key: str) -> None:
    """Remove the object `key` below a URL, if there is one. Raises StoreError."""
    if get_object(url, key) is not None:
        sync(RemoteStore.at(url, read_only=False).delete(key))
