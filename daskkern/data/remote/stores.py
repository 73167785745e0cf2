"""Remote Zarr stores, addressed by URL, with retries, time limits and one-line error messages.

``s3``, ``gs``, ``az`` and ``http(s)`` are read through obstore, every other scheme (``memory``, ``sftp``, ``hf``, and
chains such as ``simplecache::s3``) through fsspec. Credentials come from the environment, as the libraries read them.
obstore retries requests that fail in transit or with a server error; pauses start at 0.1 s and grow up to threefold
each time, to 10 s.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import zarr
from zarr.abc.store import ByteRequest
from zarr.abc.store import Store as AbstractStore
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, ObjectStore, WrapperStore

from daskkern.data.remote.errors import INSTALL, is_cut_short, sentence
from daskkern.errors import SpecError, StoreError, split_query, without_secrets

Answer = TypeVar("Answer")
Item = TypeVar("Item")

RETRIES, TIMEOUT = "DASKKERN_REMOTE_RETRIES", "DASKKERN_REMOTE_TIMEOUT"
"""Environment variables: retries of a request (10), and its timeout in seconds, including the response (120)."""

WEB = ("http", "https")
OBJECTS = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", *WEB)
_CONNECT_S = 5
PAUSES = (0.2, 1.0, 5.0)
"""Seconds before retrying requests that broke off and that obstore does not retry: listings and error responses."""


def is_url(place: object) -> bool:
    """Return whether a location is a URL rather than a local path."""
    return isinstance(place, str) and "://" in place


def absolute(place: str | os.PathLike[str]) -> str:
    """Return a local path made absolute, or a URL; of a relative ``file://`` URL the path is made absolute."""
    text = os.fspath(place)
    if not is_url(text):
        return os.path.abspath(text)
    scheme, mark, path = text.rpartition("://")
    is_relative = scheme.rpartition("::")[2] in ("file", "local") and not os.path.isabs(path)
    return f"{scheme}{mark}{os.path.abspath(path)}" if is_relative else text


def public(place: str) -> str:
    """Return a local path unchanged, and a URL without possible secrets: user, password, query and fragment."""
    return without_secrets(split_query(place)[0]) if is_url(place) else place


def name_of_place(place: str) -> str:
    """Return the last part of a local path or URL: without folders, which may be private, and without secrets."""
    whole = public(place).rstrip("/") if is_url(place) else os.path.abspath(place)
    return os.path.basename(whole)


def open_zarr(place: str | os.PathLike[str], mode: Any = "r") -> zarr.Group:
    """Open the Zarr v3 group at a local path or URL.

    Raises
    ------
    FileNotFoundError
        When there is no group.
    StoreError
        When a URL cannot be reached; the message gives the reason.
    """
    if not is_url(place):
        return zarr.open_group(store=Path(place), mode=mode, zarr_format=3)
    store = RemoteStore.at(str(place), read_only=mode == "r")
    try:
        return zarr.open_group(store=store, mode=mode, zarr_format=3)
    except FileNotFoundError:
        store.probe()
        raise


async def for_each(do: Callable[[Item], Awaitable[None]], items: Sequence[Item], at_once: int) -> None:
    """Await ``do(item)`` for all items, `at_once` of them at a time; the first error stops all."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await do(item)

    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(at_once, len(items))):
                tasks.create_task(work())
    except BaseExceptionGroup as errors:
        failed = errors.exceptions[0]
    if failed is not None:  # raised here, it has no group as its context, which would contain the error itself
        raise failed


class RemoteStore(WrapperStore[AbstractStore]):
    """A store behind a URL whose errors are :class:`daskkern.errors.StoreError`, one sentence with the URL."""

    def __init__(self, store: AbstractStore, url: str = "") -> None:
        super().__init__(store)
        self.url = url

    @classmethod
    def at(cls, url: str, *, read_only: bool) -> "RemoteStore":
        """Return the store at a URL, which is not contacted yet. Raises StoreError."""
        scheme, _, path = url.partition("://")
        url = f"{scheme}://{path.rstrip('/')}"
        if scheme in WEB and not read_only:
            raise StoreError(f"got {url} to write to, but web addresses are read-only; write to a folder or bucket")
        try:
            made = _object_store(url, scheme, read_only) if scheme in OBJECTS else _fsspec_store(url, read_only)
        except Exception as error:
            raise StoreError(sentence(error, url)) from error
        return cls(made, url)

    def probe(self) -> None:
        """Raise StoreError when the bucket does not exist or cannot be listed."""
        if self.supports_listing:
            sync(_first(self.list_dir("")))

    def _with_store(self, store: AbstractStore) -> "RemoteStore":
        return type(self)(store, self.url)

    @property
    def supports_listing(self) -> bool:
        """Whether names can be listed, which web servers do not offer."""
        return not self.url.startswith(WEB)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await self._retried(lambda: self._store.get(key, prototype, byte_range), key)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return await self._retried(lambda: self._store.exists(key), key)

    async def set(self, key: str, value: Buffer) -> None:
        await self._put(lambda: self._store.set(key, value), key)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self._put(lambda: self._store.set_if_not_exists(key, value), key)

    async def delete(self, key: str) -> None:
        await self._retried(lambda: self._store.delete(key), key, writing=True)

    async def delete_dir(self, prefix: str) -> None:
        await self._retried(lambda: self._store.delete_dir(prefix), prefix, writing=True)

    async def getsize(self, key: str) -> int:
        return await self._retried(lambda: self._store.getsize(key), key)

    async def getsize_prefix(self, prefix: str) -> int:
        return await self._retried(lambda: self._store.getsize_prefix(prefix), prefix)

    def list(self) -> AsyncIterator[str]:
        return self._retried_each(self._store.list)

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        return self._retried_each(self._store.list_prefix, prefix)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._retried_each(self._store.list_dir, prefix)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    def parent(self) -> "RemoteStore":
        """Return the store that holds this one and its neighbours."""
        return type(self).at(self.url.removesuffix(f"/{self.name}") + "/", read_only=False)

    async def copy(self, key: str, target: str) -> None:
        """Copy one object: server-side in object stores, elsewhere through this process."""
        made: Any = self._store
        if type(made).__name__ == "ObjectStore":
            import obstore  # optional package

            await self._retried(lambda: obstore.copy_async(made.store, key, target), key, writing=True)
            return
        value = await self.get(key, default_buffer_prototype())
        if value is None:
            raise StoreError(f"{self.url}/{key} is gone; was it removed by another process?")
        await self.set(target, value)

    async def _put(self, request: Callable[[], Awaitable[None]], key: str) -> None:
        async def put() -> None:
            try:
                await request()
            except FileNotFoundError:  # a file system with folders, of which one is missing
                made: Any = self._store
                if not hasattr(made, "fs"):
                    raise
                await made.fs._makedirs(f"{made.path}/{key}".rpartition("/")[0], exist_ok=True)
                await request()

        await self._retried(put, key, writing=True)

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)

    async def _retried(self, request: Callable[[], Awaitable[Answer]], key: str, *, writing: bool = False) -> Answer:
        for pause in (*PAUSES, None):
            try:
                return await request()
            except (StoreError, ValueError, TypeError, NotImplementedError):
                raise  # misuse, or already an error of ours
            except Exception as error:
                if isinstance(error, FileNotFoundError) and not writing:
                    raise
                if pause is None or not is_cut_short(error):
                    raise StoreError(sentence(error, f"{self.url}/{key}".rstrip("/"))) from error
                await asyncio.sleep(pause)
        raise AssertionError("the last pause is None")

    async def _retried_each(self, names: Callable[..., AsyncIterator[str]], *prefix: str) -> AsyncGenerator[str, None]:
        yielded: set[str] = set()
        for pause in (*PAUSES, None):
            try:
                async for name in names(*prefix):
                    if name not in yielded:
                        yielded.add(name)
                        yield name
                return
            except FileNotFoundError:
                return  # some file systems have no empty folders
            except Exception as error:
                if pause is None or not is_cut_short(error):
                    raise StoreError(sentence(error, self.url)) from error
                await asyncio.sleep(pause)

    def __str__(self) -> str:
        return public(self.url)

    def __repr__(self) -> str:
        return f"RemoteStore({public(self.url)!r})"


async def _first(names: AsyncIterator[str]) -> str | None:
    async for name in names:
        return name
    return None


def _object_store(url: str, scheme: str, read_only: bool) -> AbstractStore:
    try:
        import obstore.store  # optional package
    except ImportError as error:
        raise StoreError(f"opening {url} needs the package obstore, which is not installed; {INSTALL}") from error
    made: Any = obstore.store.HTTPStore if scheme in WEB else obstore.store
    return ObjectStore(made.from_url(url, **patience()), read_only=read_only)


def patience() -> dict[str, Any]:
    """Return the settings of retries and time limits with which obstore opens a store."""
    seconds = _setting(TIMEOUT, 120)
    return {
        # Plain HTTP is used for local servers, and for those that the user gives as http://.
        "client_options": {"allow_http": True, "connect_timeout": f"{_CONNECT_S}s", "timeout": f"{seconds}s"},
        "retry_config": {
            "max_retries": _setting(RETRIES, 10),
            "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=10), "base": 3},
            "retry_timeout": timedelta(seconds=max(60, 2 * seconds)),
        },
    }


def _fsspec_store(url: str, read_only: bool) -> AbstractStore:
    return FsspecStore.from_url(url, read_only=read_only)


def _setting(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    if not value:
        return default
    if not value.isdigit():
        raise SpecError(f"got {name}={value!r} in the environment; expected a whole number of 0 or more")
    return int(value)
