"""Scratch files of kernel blocks: through host memory, or directly between disk and GPU with kvikio."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import ModuleType
from typing import IO, Any, TypeAlias

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.data.storage.local_chunks import DIRECT_FAILURES, kvikio_module, write_at
from daskkern.errors import SpecError, StoreError

Fence: TypeAlias = Callable[[], None]
"""Returns when all work that the GPU was given before the fence was made is done."""

_PAGE = 4096  # of a GPU


class BlockFile(ABC):
    """An unnamed file, which the system removes even when the process is killed.

    `read` and `write` are called by one thread at a time, after waiting for the buffer's fence; the computing thread
    calls all other methods.
    """

    on_device: bool
    """Whether buffers are in GPU memory."""
    alignment: int
    """Blocks begin at multiples of this number of bytes."""
    dtype: np.dtype[Any]

    @abstractmethod
    def buffer(self, size: int) -> Array:
        """Return an uninitialised buffer of `size` numbers."""

    @abstractmethod
    def fence(self) -> Fence:
        """Return a fence: a call that waits until the thread of this file may use the buffers."""

    @abstractmethod
    def write(self, at: int, block: Array) -> bool:
        """Write a flat buffer at byte `at`; False when the write fails."""

    @abstractmethod
    def read(self, at: int, block: Array) -> None:
        """Fill a flat buffer from byte `at` on. Raises StoreError when the file is too short."""

    @abstractmethod
    def close(self) -> None:
        """Remove the file."""


class HostFile(BlockFile):
    """A file that is read and written by system calls."""

    on_device, alignment = False, 1

    def __init__(self, folder: str, dtype: np.dtype[Any]) -> None:
        self._file, self.dtype = scratch_file(folder), dtype

    def buffer(self, size: int) -> HostArray:
        return np.empty(size, self.dtype)

    def fence(self) -> Fence:
        return _at_once

    def write(self, at: int, block: HostArray) -> bool:
        try:
            write_at(self._file.fileno(), block, at)
        except OSError:
            return False
        return True

    def read(self, at: int, block: HostArray) -> None:
        view = block.data.cast("B")
        self._file.seek(at)
        while view:
            count = self._file.readinto(view)  # type: ignore[attr-defined]  # unbuffered: a FileIO
            if not count:
                raise _short()
            view = view[count:]

    def close(self) -> None:
        self._file.close()


class DirectFile(BlockFile):
    """A file that is read and written by kvikio: GPUDirect Storage where available, else threads and pinned buffers.

    kvikio does not know the stream that computes: a buffer is handed to it after the fence that the computing thread
    made when it had queued its last work on the buffer.
    """

    on_device, alignment = True, _PAGE

    def __init__(self, folder: str, dtype: np.dtype[Any], xp: ModuleType, kvikio: ModuleType) -> None:
        self._file, self.dtype, self._xp = scratch_file(folder), dtype, xp
        self._device = xp.cuda.runtime.getDevice()
        with ExitStack() as opened:
            opened.callback(self._file.close)
            self._direct = kvikio.CuFile(f"/proc/self/fd/{self._file.fileno()}", "r+")
            opened.callback(self._direct.close)
            self._probe()
            self._opened = opened.pop_all()

    def _probe(self) -> None:
        """Write a page and read it back, so that a setup that does not work fails before a block is lost."""
        page = self._xp.ones(_PAGE // self.dtype.itemsize, self.dtype)
        self.fence()()
        written = int(self._direct.pwrite(page, page.nbytes, 0).get())
        back = self._xp.zeros(page.size, self.dtype)
        self.fence()()
        read = int(self._direct.pread(back, back.nbytes, 0).get())
        if written != page.nbytes or read != page.nbytes or not bool((back == page).all()):
            raise OSError("kvikio did not return what was written")

    def buffer(self, size: int) -> Array:
        return self._xp.empty(size, self.dtype)

    def fence(self) -> Fence:
        event = self._xp.cuda.Event(block=True, disable_timing=True)  # waiting threads yield the processor
        event.record(self._xp.cuda.get_current_stream())

        def wait() -> None:
            self._xp.cuda.runtime.setDevice(self._device)  # the device of the waiting thread
            event.synchronize()

        return wait

    def write(self, at: int, block: Array) -> bool:
        try:
            return int(self._direct.pwrite(block, block.nbytes, at).get()) == block.nbytes
        except DIRECT_FAILURES:
            return False

    def read(self, at: int, block: Array) -> None:
        try:
            count = int(self._direct.pread(block, block.nbytes, at).get())
        except DIRECT_FAILURES as error:
            raise StoreError(
                f"kvikio cannot read the scratch file of kernel blocks ({error}); fit again with keep_blocks='never'"
            ) from error
        if count != block.nbytes:
            raise _short()

    def close(self) -> None:
        self._opened.close()


def scratch_file(folder: str) -> IO[bytes]:
    """Return a new file for reading and writing: unnamed where the system supports that, else removed when closed.

    Raises
    ------
    SpecError
        When no file can be created in `folder`.
    """
    try:
        return tempfile.TemporaryFile(prefix="daskkern-blocks-", dir=folder, buffering=0)
    except OSError as error:
        raise SpecError(
            f"no scratch file for kernel blocks can be created in {folder} ({error.strerror}); give "
            "another --set scratch=FOLDER, or --set keep_blocks=never"
        ) from None


def block_file(folder: str, dtype: str, xp: ModuleType, direct: bool) -> BlockFile:
    """Return a file in `folder` for blocks of `xp`: a DirectFile where `direct` is requested and kvikio works."""
    kvikio = kvikio_module() if direct and xp is not np else None
    if kvikio is not None:
        with suppress(*DIRECT_FAILURES):  # of the driver, or of a system that cannot reopen unnamed files
            return DirectFile(folder, np.dtype(dtype), xp, kvikio)
    return HostFile(folder, np.dtype(dtype))


def _at_once() -> None:
    return


def _short() -> StoreError:
    return StoreError("the scratch file of kernel blocks ended early; fit again with keep_blocks='never'")
