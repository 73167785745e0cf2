"""Streaming readers of NumPy's file format: from a file, or from a zip member as it is decompressed.

Only the header is interpreted, by NumPy's own parser, which evaluates literals and nothing else. Object arrays
are pickles and are refused.
"""

import io
import math
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import DataError

_STEP = 1 << 18  # bytes inflated at once: larger reads make zipfile copy quadratically


@dataclass(frozen=True)
class ArrayHeader:
    """Shape, order and dtype of a stored array, and the offset of its data."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]
    offset: int

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one entry of the first axis."""
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry of the first axis."""
        return self.dtype.itemsize * math.prod(self.row_shape)


@dataclass(frozen=True)
class StoredArray:
    """An array in a file. `open` gives a new stream at the start of the file or member."""

    name: str
    header: ArrayHeader
    open: Callable[[], IO[bytes]]
    scratch: Path
    seekable: bool

    def blocks(self, rows: int, start: int = 0) -> Generator[HostArray]:
        """Yield the array in order, `rows` entries of the first axis at a time, from entry `start` on.

        Each block is a new array.
        """
        if self.header.fortran and len(self.header.shape) > 1:
            return self._column_major(rows, start)
        return self._row_major(rows, start)

    def _row_major(self, rows: int, first: int) -> Generator[HostArray]:
        header = self.header
        with closing(self.open()) as stream:
            before = header.offset + first * header.row_bytes
            if self.seekable:
                stream.seek(before)
            else:
                _skip(stream, before)
            for start in range(first, header.shape[0], rows):
                block = np.empty((min(rows, header.shape[0] - start), *header.row_shape), header.dtype)
                self._fill(stream, block)
                yield block

    def _column_major(self, rows: int, first: int) -> Generator[HostArray]:
        """Read pieces of every column. Compressed members, which do not support seeking, are unpacked to disk first."""
        header = self.header
        if len(header.shape) != 2:
            raise DataError(f"{self.name} is stored in column order; save it with numpy.ascontiguousarray")
        n, item = header.shape[0], header.dtype.itemsize
        with self._seekable() as stream:
            for start in range(first, n, rows):
                columns = np.empty((header.shape[1], min(rows, n - start)), header.dtype)
                for j, column in enumerate(columns):
                    stream.seek(header.offset + (j * n + start) * item)
                    self._fill(stream, column)
                yield columns.T

    @contextmanager
    def _seekable(self) -> Iterator[IO[bytes]]:
        with closing(self.open()) as source:
            if self.seekable:
                yield source
                return
            with tempfile.TemporaryFile(dir=self.scratch) as unpacked:
                shutil.copyfileobj(source, unpacked, _STEP)
                yield unpacked

    def _fill(self, stream: IO[bytes], block: HostArray) -> None:
        """Fill a contiguous array with the next bytes of `stream`."""
        if block.size == 0:
            return
        view, done = block.reshape(-1).view(np.uint8).data, 0
        while done < len(view):
            data = stream.read(min(_STEP, len(view) - done))
            if not data:
                raise DataError(f"{self.name} ends too early: it is cut off or damaged; make the file again")
            view[done : done + len(data)] = data
            done += len(data)


def file_array(path: Path) -> StoredArray:
    """Return the array of a ``.npy`` file."""
    with path.open("rb") as stream:
        header = read_header(stream, str(path))
    _check_size(header, path.stat().st_size, str(path))
    return StoredArray(str(path), header, lambda: path.open("rb"), path.parent, seekable=True)


def member_array(path: Path, member: str, scratch: Path) -> StoredArray:
    """Return an array of a ``.npz`` file; `member` is its name without ``.npy``."""
    name = f"array {member!r} of {path}"

    def open_member() -> IO[bytes]:
        with zipfile.ZipFile(path) as archive:  # the member keeps the file open until it is closed itself
            return archive.open(f"{member}.npy")

    with closing(open_member()) as stream:
        header = read_header(stream, name)
    with zipfile.ZipFile(path) as archive:
        _check_size(header, archive.getinfo(f"{member}.npy").file_size, name)
    return StoredArray(name, header, open_member, scratch, seekable=False)


def read_header(stream: IO[bytes], name: str) -> ArrayHeader:
    """Read the header of an array from the start of `stream`."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        start = io.BytesIO(stream.read(1 << 16))  # numpy refuses longer headers
        version = np.lib.format.read_magic(start)
        shape, fortran, dtype = readers[version](start)
    except (ValueError, KeyError) as error:
        raise DataError(f"{name} is not an array in NumPy's format ({error}); save it again with numpy") from error
    if dtype.hasobject or dtype.fields is not None:
        raise DataError(
            f"{name} holds {'Python objects' if dtype.hasobject else 'records'}; objects are pickles, which are never "
            "read: save numbers, or strings with .astype(str)"
        )
    if any(length < 0 for length in shape):
        raise DataError(f"{name} has the shape {shape}, which is not a valid shape; save it again with numpy")
    return ArrayHeader(tuple(shape), fortran, dtype, start.tell())


def _check_size(header: ArrayHeader, found: int, name: str) -> None:
    """Refuse an array with missing data, before memory is allocated for it."""
    expected = header.offset + (header.shape[0] * header.row_bytes if header.shape else header.dtype.itemsize)
    if expected > found:
        raise DataError(f"{name} ends too early: it is cut off or damaged; make the file again")


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0 and (data := stream.read(min(count, _STEP))):
        count -= len(data)
