"""Checks of the array sizes that files declare against the bytes they store, before anything is allocated.

A file is untrusted: a few hundred bytes of metadata may declare an array of terabytes, and Zarr fills what is missing.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import zarr
from zarr.abc.store import Store as AbstractStore
from zarr.codecs import BytesCodec
from zarr.core.sync import sync
from zarr.storage import LocalStore

from daskkern.data.remote.stores import for_each
from daskkern.errors import StoreError

ZarrArray: TypeAlias = "zarr.Array[Any]"

_CONCURRENT_REQUESTS = 32  # to a web server
_MOST_CHUNKS = 10_000_000
_SMALL = 1 << 20
"""Bytes that are not worth a look."""
_MOST_COMPRESSION = 200
"""What compressed chunks may grow by. daskkern compresses nothing; stores that were packed by others may be."""


def check_chunks(array: ZarrArray, what: str) -> int | None:
    """Return the number of the first row chunk that is not stored; zarr would read it as fill values.

    Parameters
    ----------
    array : zarr.Array
        Of an untrusted file; nothing of it is read.
    what : str
        Its name in the message, for example ``"array 'X' of the store rows.zarr"``.

    Raises
    ------
    StoreError
        When the array declares more values than its chunks can hold.
    """
    missing, stored = _state(array)
    if missing is None:
        check_size(array, stored, what)
    return missing


def check_size(array: ZarrArray, stored: int, what: str) -> None:
    """Raise StoreError when an array declares more values than `stored` bytes can hold. Parameters as above."""
    declared = math.prod(_grid(array)) * math.prod(_chunk_shape(array)) * array.dtype.itemsize
    if declared > max(_SMALL, stored * (_MOST_COMPRESSION if _is_packed(array) else 1)):
        raise StoreError(
            f"{what} declares {declared / 1e6:,.1f} MB of values of shape {array.shape}, but only "
            f"{stored / 1e6:,.3f} MB are stored; it is damaged or made to exhaust memory: copy or make it again"
        )


def stored_bytes(array: ZarrArray) -> int:
    """Return the bytes of the chunks and the metadata of an array as stored."""
    store = array.store_path.store
    if store.supports_listing:
        return int(array.nbytes_stored())
    keys = [f"{array.store_path.path}/zarr.json", *(key for _, key in _chunk_keys(array))]
    return sum(size or 0 for size in _sizes(store, keys))


def _state(array: ZarrArray) -> tuple[int | None, int]:
    """Return the number of the first missing row chunk, or None and the bytes of all chunks as stored."""
    store, path = array.store_path.store, array.store_path.path
    keys = _chunk_keys(array)
    stored = 0
    if isinstance(store, LocalStore):  # ten times faster than listing
        for number, key in keys:
            try:
                stored += (store.root / key).stat().st_size
            except OSError:
                return number, stored
        return None, stored
    if not store.supports_listing:
        listed = list(itertools.islice(keys, _MOST_CHUNKS + 1))
        if len(listed) > _MOST_CHUNKS:
            raise StoreError(f"{array.store_path} declares more than {_MOST_CHUNKS:,} chunks; make it again with fewer")
        sizes = _sizes(store, [key for _, key in listed])
        missing = next((number for (number, _), size in zip(listed, sizes, strict=True) if size is None), None)
        return missing, sum(size or 0 for size in sizes)
    found = sync(_list_keys(store, path))
    missing = next((number for number, key in keys if key not in found), None)
    return missing, stored_bytes(array) if missing is None else 0


def _chunk_shape(array: ZarrArray) -> tuple[int, ...]:
    return tuple(array.shards or array.chunks)


def _grid(array: ZarrArray) -> tuple[int, ...]:
    """Return the number of chunks along each axis."""
    return tuple(-(-size // chunk) for size, chunk in zip(array.shape, _chunk_shape(array), strict=True))


def _is_packed(array: ZarrArray) -> bool:
    """Return whether chunks may be stored in fewer bytes than their values take."""
    plain = not array.compressors and not array.filters and isinstance(array.serializer, BytesCodec)
    return array.shards is not None or not plain


def _chunk_keys(array: ZarrArray) -> Iterator[tuple[int, str]]:
    """Yield the number of the row chunk and the key of all chunks, in order of rows, without listing them first."""
    for place in _places(_grid(array)):
        key = array.metadata.encode_chunk_key(place)
        yield place[0], f"{array.store_path.path}/{key}".lstrip("/")


def _places(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not grid:
        yield ()
        return
    for number in range(grid[0]):
        for rest in _places(grid[1:]):
            yield (number, *rest)


def _sizes(store: AbstractStore, keys: Iterable[str]) -> list[int | None]:
    """Return the bytes of objects, None for those that are missing: one request each, a few at a time."""

    listed = list(keys)
    found: dict[str, int] = {}

    async def request(key: str) -> None:
        with suppress(FileNotFoundError):
            found[key] = await store.getsize(key)

    sync(for_each(request, listed, _CONCURRENT_REQUESTS))
    return [found.get(key) for key in listed]


async def _list_keys(store: AbstractStore, path: str) -> set[str]:
    return {key async for key in store.list_prefix(f"{path}/".lstrip("/"))}
