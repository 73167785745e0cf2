"""Reading rows of uncompressed local chunks directly into their destination, on a GPU too, and writing whole chunks.

Zarr takes every range of bytes through its event loop into a buffer of its own: of rows of 512 bytes that are in the
page cache, an H200's host read 0.8 GB/s in this way, and 7.6 GB/s from the files themselves. Writing chunks of 5 MB by
Zarr takes twice the processor time of the file system alone.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from daskkern.arrays import Array, HostArray
from daskkern.backend.machine_code.crc32 import crc32

_WRITTEN = 256 << 10
DIRECT_FAILURES = (OSError, RuntimeError)
"""What kvikio raises when the system or the driver refuses."""


@dataclass(frozen=True)
class LocalChunks:
    """The chunk files of an array whose rows are byte ranges of them, with numbers as this machine has them.

    Attributes
    ----------
    array : zarr.Array
    folder : str
        The folder of the array.
    chunk_rows : int
    """

    array: "zarr.Array[Any]"
    folder: str
    chunk_rows: int

    @classmethod
    def of(cls, array: "zarr.Array[Any]", stored: np.dtype[Any]) -> "LocalChunks | None":
        """Return the chunk files of an array with plain chunks of dtype `stored`; None if they are not read from files.

        That is where the store is elsewhere, or its numbers have another byte order.
        """
        store = array.store_path.store
        if type(store) is not LocalStore or not stored.isnative or not hasattr(os, "preadv"):
            return None
        return cls(array, os.path.join(store.root, array.store_path.path), array.chunks[0])

    def read(self, first: int, rows: HostArray) -> None:
        """Fill contiguous `rows` (m, ...) with the rows from `first` on, which lie in one chunk.

        Raises
        ------
        OSError
            When its file is missing, too short or cannot be read.
        """
        if not rows.size:
            return
        number, within = divmod(first, self.chunk_rows)
        path, left, at = self._path(number, rows.ndim), rows.data.cast("B"), within * rows[0].nbytes
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise OSError(f"chunk {os.path.relpath(path, self.folder)} is missing") from error
        try:
            while left:
                count = os.preadv(file, [left], at)
                if not count:
                    raise OSError(f"chunk {os.path.relpath(path, self.folder)} is shorter than its metadata says")
                left, at = left[count:], at + count
        finally:
            os.close(file)

    def is_whole(self, first: int, row_bytes: int) -> bool:
        """Return whether the file of the chunk with row `first` has the size of a chunk. Raises OSError."""
        path = self._path(first // self.chunk_rows, len(self.array.shape))
        return os.stat(path).st_size == self.chunk_rows * row_bytes

    def begin_direct(self, kvikio: ModuleType, first: int, rows: Array) -> "DirectReads":
        """Begin to fill contiguous `rows` (m, ...) on a GPU with those from `first` on, where a chunk begins.

        The memory must be free of earlier work of the GPU, and must not be used before the reads are waited for.

        Raises
        ------
        OSError or RuntimeError
            When a file is missing, or kvikio cannot read it.
        """
        flat, width, reads = rows.reshape(-1), rows[:1].size, DirectReads(kvikio)
        try:
            for start in range(0, len(rows), self.chunk_rows):
                stop = min(start + self.chunk_rows, len(rows))
                path = self._path((first + start) // self.chunk_rows, rows.ndim)
                reads.begin(path, flat[start * width : stop * width])
        except BaseException:
            with suppress(*DIRECT_FAILURES):
                reads.wait()
            raise
        return reads

    def write(self, number: int, rows: HostArray) -> int:
        """Write contiguous `rows` (m, ...) as the whole chunk of this number, and return the CRC-32 of its bytes.

        A file that is there is not truncated first: another process may be writing the same rows. Raises OSError.
        """
        path = self._path(number, rows.ndim)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            crc = write_at(file, rows, 0, sums=True)
            os.ftruncate(file, rows.nbytes)
        finally:
            os.close(file)
        return crc

    def _path(self, number: int, n_axes: int) -> str:
        return os.path.join(self.folder, self.array.metadata.encode_chunk_key((number, *(0,) * (n_axes - 1))))


class DirectReads:
    """Reads from the beginnings of files to the memory of a GPU that are on their way, by kvikio."""

    def __init__(self, kvikio: ModuleType) -> None:
        self._kvikio = kvikio
        self._begun: list[tuple[str, int, Any, Any]] = []

    def begin(self, path: str, part: Array) -> None:
        """Begin to fill a flat array; raises what kvikio does."""
        file = self._kvikio.CuFile(path, "r")
        try:
            self._begun.append((path, int(part.nbytes), file, file.pread(part, part.nbytes, 0)))
        except BaseException:
            file.close()
            raise

    def wait(self) -> None:
        """Return when all have ended. Raises OSError or RuntimeError for the first that failed."""
        failed: list[Exception] = []
        for path, size, file, read in self._begun:
            try:
                if int(read.get()) != size:
                    failed.append(OSError(f"{path} is shorter than its metadata says"))
            except DIRECT_FAILURES as error:
                failed.append(error)
            finally:
                file.close()
        self._begun.clear()
        if failed:
            raise failed[0]


def write_at(file: int, values: HostArray, at: int, *, sums: bool = False) -> int:
    """Write the bytes of a contiguous array to an open file from byte `at` on. Raises OSError.

    With `sums`, returns the CRC-32 of these bytes, taken part by part while they are in the cache, else 0.

    Linux keeps a large write in large pages, and looks for free ones: writes of 1 MiB or more took up to ten times the
    processor time of those of 256 KiB (kernel 6.18, ext4, files of 3.5 MB).
    """
    left, crc = values.reshape(-1).view(np.uint8), 0
    while left.size:
        count = os.pwrite(file, left[:_WRITTEN].data, at)
        crc = crc32(left[:count], crc) if sums else 0
        left, at = left[count:], at + count
    return crc


def kvikio_module() -> ModuleType | None:
    """Return kvikio, or None where it is not installed or does not load."""
    try:
        import kvikio  # optional package
    except Exception:  # libraries that do not load raise many types
        return None
    module: ModuleType = kvikio
    return module


def with_direct_storage() -> ModuleType | None:
    """Return kvikio where its driver reads files into GPU memory by itself; None elsewhere.

    There kvikio reads into host memory, too, and no faster than the threads of a fit.
    """
    kvikio = kvikio_module()
    try:
        return kvikio if kvikio is not None and kvikio.cufile_driver.get("is_gds_available") else None
    except Exception:  # a driver that is missing, or a kvikio without this question
        return None
