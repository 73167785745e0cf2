"""Files, in a folder of this machine or behind a URL, that are complete or absent.

A local file is written under a hidden temporary name and renamed; an object appears when its upload is completed.
"""

import io
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from daskkern.data.remote.errors import sentence
from daskkern.data.remote.stores import RemoteStore, is_url, public
from daskkern.errors import DaskkernError, StoreError

_PARTIAL = ".partial-"


class OutputFolder(Protocol):
    """A place with files; names are relative to it, with ``/`` between folders."""

    place: str

    def writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Return a context with a binary file that appears as `name` if the block ends without an exception."""

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file, or None if there is none."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def delete(self, name: str) -> None:
        """Remove a file, if there is one."""


def output_folder(place: str) -> OutputFolder:
    """Return the folder at a local path or URL; it is made by the first file that is written. Raises StoreError."""
    return RemoteFolder(place.rstrip("/")) if is_url(place) else LocalFolder(os.path.abspath(place))


def split_place(place: str) -> tuple[str, str]:
    """Return the folder of a local path or URL, and the name in it."""
    if is_url(place):
        folder, _, name = place.rstrip("/").rpartition("/")
        return folder, name
    return os.path.split(os.path.abspath(place))


class LocalFolder:
    """A folder of the local file system."""

    def __init__(self, place: str) -> None:
        self.place = place

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        target = Path(self.place, name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{_mark(target.name)}{os.getpid()}-{secrets.token_hex(4)}")
            try:
                with partial.open("wb") as file:
                    yield file
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{target} cannot be written ({error.strerror or error}); give another place") from error

    def read(self, name: str) -> bytes | None:
        path = Path(self.place, name)
        return path.read_bytes() if path.is_file() else None

    def names(self) -> list[str]:
        folder = Path(self.place)
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())

    def delete(self, name: str) -> None:
        path = Path(self.place, name)
        path.unlink(missing_ok=True)
        while path.parent != Path(self.place):
            path = path.parent
            with suppress(OSError):  # other files are in it
                path.rmdir()


class RemoteFolder:
    """A place behind a URL; credentials come from the environment. Errors are StoreError, one sentence with the URL."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._store = RemoteStore.at(place, read_only=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFolder, (self.place,)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        upload: Any = None
        try:
            upload = self._upload(name)
            yield upload
            upload.complete()
        except DaskkernError:
            _discard(upload)
            raise
        except Exception as error:  # obstore and fsspec raise many types
            _discard(upload)
            raise StoreError(sentence(error, f"{self.place}/{name}")) from error
        except BaseException:
            _discard(upload)
            raise

    def _upload(self, name: str) -> "_Upload":
        store: Any = self._store._store
        if hasattr(store, "fs"):
            # Zarr wraps file systems without asynchronous methods; files that the wrapper opens write nothing.
            return _FileSystemUpload(getattr(store.fs, "sync_fs", store.fs), f"{store.path.rstrip('/')}/{name}")
        return _ObjectUpload(store.store, name)

    def read(self, name: str) -> bytes | None:
        found = sync(self._store.get(name, default_buffer_prototype()))
        return None if found is None else found.to_bytes()

    def names(self) -> list[str]:
        async def listed() -> list[str]:
            return sorted([name async for name in self._store.list()])

        return sync(listed())

    def delete(self, name: str) -> None:
        sync(self._store.delete(name))


class _Upload(io.RawIOBase):
    """A file in transit, which appears when it is completed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        held = bytes(data)
        self._inner.write(held)
        return len(held)


class _ObjectUpload(_Upload):
    """Parts of several megabytes that obstore sends one after the other; without completion no object appears."""

    def __init__(self, store: Any, name: str) -> None:
        import obstore  # optional package

        super().__init__(obstore.open_writer(store, name))

    def complete(self) -> None:
        self._inner.close()

    def discard(self) -> None:
        """Leave the parts: servers remove them by their rules for incomplete uploads."""


class _FileSystemUpload(_Upload):
    def __init__(self, fs: Any, path: str) -> None:
        with suppress(Exception):  # file systems without folders have nothing to make
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        super().__init__(fs.open(path, "wb", autocommit=False))

    def complete(self) -> None:
        self._inner.close()
        self._inner.commit()

    def discard(self) -> None:
        self._inner.discard()


def _discard(upload: Any) -> None:
    if upload is not None:
        with suppress(Exception):
            upload.discard()


def is_partial(name: str) -> bool:
    """Return whether a name is one of an incomplete local file."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and _PARTIAL in last


def sweep_file(place: str) -> None:
    """Remove what killed processes of this machine left of a local file."""
    target = Path(place)
    for path in target.parent.glob(f"{_mark(target.name)}*") if target.parent.is_dir() else ():
        process = path.name.removeprefix(_mark(target.name)).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            path.unlink(missing_ok=True)


def _mark(name: str) -> str:
    return f".{name}{_PARTIAL}{socket.gethostname()}-"


def check_new_file(place: str, *, overwrite: bool) -> None:
    """Raise StoreError if there is something at `place`, a local path or URL, that must not be replaced."""
    shown = public(place)
    if not is_url(place):
        if os.path.isdir(place):
            raise StoreError(f"{shown} is a folder, which a file does not replace; choose another name or remove it")
        taken = os.path.lexists(place)
    else:
        folder, name = split_place(place)
        if "://" not in folder or folder.endswith(":/"):
            raise StoreError(f"{shown} is a whole bucket; name a place in it, such as {shown}/predictions.parquet")
        taken = sync(RemoteFolder(folder)._store.exists(name))
    if taken and not overwrite:
        raise StoreError(f"{shown} exists; choose another name, or replace it with --overwrite (overwrite=True)")
