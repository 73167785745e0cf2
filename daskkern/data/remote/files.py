"""Single files behind URLs: listed once, read by byte ranges, with retries and one-line errors.

``s3``, ``gs``, ``az`` and ``http(s)`` are read through obstore, as stores are (:mod:`daskkern.data.remote.stores`),
every other scheme through fsspec. Credentials come from the environment.
"""

import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import fsspec
from fsspec.core import url_to_fs

from daskkern.data.remote.errors import INSTALL, is_cut_short, sentence
from daskkern.data.remote.stores import OBJECTS, PAUSES, WEB, is_url, patience
from daskkern.data.remote.web_files import WebFiles
from daskkern.errors import DataError, StoreError, without_secrets

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class FoundFile:
    """A file as listed: its path or URL, its size in bytes, and what changes when it is written again."""

    place: str
    size: int
    stamp: str


def file_at(place: str) -> FoundFile | None:
    """Return the file at a local path or URL; None where there is none. Raises StoreError for unreachable servers."""
    if not is_url(place):
        return _local(place) if os.path.isfile(place) else None
    system, path = _system(place)
    try:
        found = _answered(lambda: system.info(path), place)
    except FileNotFoundError:
        return None
    return None if found["type"] == "directory" else FoundFile(place, int(found["size"]), _stamp(found))


def files_below(place: str) -> list[FoundFile]:
    """Return all files in a folder and its folders, in any order, with one listing."""
    if not is_url(place):
        folders = os.walk(place)
        return [_local(os.path.join(folder, name)) for folder, _, names in folders for name in names]
    scheme = place.partition("://")[0]
    if scheme in WEB:
        return []  # web servers cannot be listed
    if scheme in OBJECTS:
        return _answered(lambda: _objects_below(place), place)
    system, path = _system(place)
    try:
        found = _answered(lambda: system.find(path, detail=True), place)
    except FileNotFoundError:
        return []
    root, base = place.rstrip("/"), path.rstrip("/")
    return [
        FoundFile(f"{root}{name.removeprefix(base)}", int(entry["size"]), _stamp(entry))
        for name, entry in found.items()
        if name.startswith(f"{base}/") and entry["type"] != "directory"
    ]


def open_file(place: str, size: int | None = None) -> io.IOBase:
    """Return a binary file for reading from a local path or URL.

    Parameters
    ----------
    place : str
    size : int or None
        Its size in bytes, where it is known; spares a request.

    Raises
    ------
    DataError
        When there is no such file.
    StoreError
        When the server cannot be reached, or denies access.
    """
    if not is_url(place):
        return open(place, "rb")
    if size is None:
        found = file_at(place)
        if found is None:
            raise DataError(f"there is no file {place}; check the address")
        size = found.size
    return RemoteFile(place, size)


class RemoteFile(io.RawIOBase):
    """A file behind a URL, of which every read is one request for a range of bytes.

    Parameters
    ----------
    url : str
    size : int
        In bytes.
    """

    def __init__(self, url: str, size: int) -> None:
        self.url, self._size, self._at = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, or all that are left."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        start, system_path = self._at, _system(self.url)
        try:
            found: bytes = _answered(lambda: system_path[0].cat_file(system_path[1], start=start, end=stop), self.url)
        except FileNotFoundError as error:
            raise DataError(f"{self.url} is gone; was it removed meanwhile?") from error
        self._at += len(found)
        return bytes(found)

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def readall(self) -> bytes:
        return self.read()


def _objects_below(url: str) -> list[FoundFile]:
    """Return the objects below a URL by a flat listing: one request for each thousand, whatever their folders."""
    obstore = _obstore(url)
    root = f"{url.rstrip('/')}/"
    store = obstore.store.from_url(root, **patience())
    found = [entry for batch in obstore.list(store) for entry in batch]
    return [FoundFile(f"{root}{entry['path']}", int(entry["size"]), _stamp(entry)) for entry in found]


def _obstore(url: str) -> Any:
    try:
        import obstore.fsspec  # optional package
        import obstore.store
    except ImportError as error:
        scheme = url.partition("://")[0]
        raise StoreError(
            f"reading {scheme}:// addresses needs the package obstore, which is not installed; {INSTALL}"
        ) from error
    return obstore


def _local(place: str) -> FoundFile:
    status = os.stat(place)
    return FoundFile(place, status.st_size, str(status.st_mtime_ns))


def _stamp(entry: dict[str, Any]) -> str:
    """Return the version stamp of a file from its listing, as far as the file system has one."""
    known = ("e_tag", "ETag", "etag", "last_modified", "LastModified", "mtime", "created")
    return str(next((entry[name] for name in known if entry.get(name)), ""))


def _answered(request: Callable[[], Answer], url: str) -> Answer:
    """Return the answer to a request, which is repeated when it breaks off. Raises StoreError."""
    for pause in (*PAUSES, None):
        try:
            return request()
        except (FileNotFoundError, StoreError):
            raise
        except Exception as error:
            if pause is None or not is_cut_short(error):
                raise StoreError(sentence(error, url)) from error
            time.sleep(pause)
    raise AssertionError("the last pause is None")


def _system(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path in it."""
    scheme, _, path = url.partition("://")
    try:
        if scheme in WEB:
            return WebFiles(), url
        if scheme in OBJECTS:
            return _object_system(scheme, os.getpid(), _object_settings()), path
        system, inside = url_to_fs(url)
        return system, str(inside)
    except (ImportError, ValueError) as error:
        raise StoreError(sentence(error, without_secrets(url))) from error


def _object_settings() -> tuple[tuple[str, str], ...]:
    """Return the variables of the environment that say where objects are and who asks for them."""
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith(("AWS_", "AZURE_", "GOOGLE_"))))


@lru_cache(maxsize=16)
def _object_system(scheme: str, process: int, variables: tuple[tuple[str, str], ...]) -> fsspec.AbstractFileSystem:
    del process, variables  # connections are not shared with a forked process, nor with earlier credentials
    return _obstore(f"{scheme}://").fsspec.FsspecStore(scheme, skip_instance_cache=True, **patience())
