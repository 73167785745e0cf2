"""Scratch files of kernel blocks: by way of the host's memory, or between disk and GPU by kvikio."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import ModuleType
from typing import IO, Any, TypeAlias

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.errors import SpecError, StoreError

Fence: TypeAlias = Callable[[], None]
"""Returns when all that was given to the GPU before it was taken is done."""

_PAGE = 4096  # of a GPU
_FAILURES = (OSError, RuntimeError)  # what kvikio raises when the system or the driver refuses


class BlockFile(ABC):
    """One file without a name, which the system removes even when the process is killed.

    `read` and `write` are for one thread at a time, which has waited for the buffer's moment; every other method is for
    the thread that computes.
    """

    on_device: bool
    """Buffers are in the memory of the GPU."""
    alignment: int
    """Bytes of whose multiples blocks begin."""
    dtype: np.dtype[Any]

    @abstractmethod
    def buffer(self, size: int) -> Array:
        """Return room for `size` numbers."""

    @abstractmethod
    def fence(self) -> Fence:
        """Return what waits until buffers may be touched by the thread of this file."""

    @abstractmethod
    def write(self, at: int, block: Array) -> bool:
        """Write a flat buffer at byte `at`; False when the disk does not take it."""

    @abstractmethod
    def read(self, at: int, block: Array) -> None:
        """Fill a flat buffer from byte `at` on. Raises StoreError when the file has less."""

    @abstractmethod
    def close(self) -> None:
        """Remove the file."""


class HostFile(BlockFile):
    """Read and written by the system's calls."""

    on_device, alignment = False, 1

    def __init__(self, folder: str, dtype: np.dtype[Any]) -> None:
        self._file, self.dtype = scratch_file(folder), dtype

    def buffer(self, size: int) -> HostArray:
        return np.empty(size, self.dtype)

    def fence(self) -> Fence:
        return _at_once

    def write(self, at: int, block: HostArray) -> bool:
        view = block.data.cast("B")
        try:
            self._file.seek(at)
            while view:
                view = view[self._file.write(view) :]
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
    """Read and written by kvikio: GPUDirect Storage where the machine has it, else its own threads and pinned buffers.

    kvikio knows nothing of the stream that computes: a buffer is handed to it after the moment that was taken when the
    computing thread had queued its last work on it.
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
        """Write a page and read it again: what does not go at all shall show before a block is lost."""
        page = self._xp.ones(_PAGE // self.dtype.itemsize, self.dtype)
        self.fence()()
        written = int(self._direct.pwrite(page, page.nbytes, 0).get())
        back = self._xp.zeros(page.size, self.dtype)
        self.fence()()
        read = int(self._direct.pread(back, back.nbytes, 0).get())
        if written != page.nbytes or read != page.nbytes or not bool((back == page).all()):
            raise OSError("kvikio does not give back what it was given")

    def buffer(self, size: int) -> Array:
        return self._xp.empty(size, self.dtype)

    def fence(self) -> Fence:
        event = self._xp.cuda.Event(block=True, disable_timing=True)  # who waits leaves the processor to others
        event.record(self._xp.cuda.get_current_stream())

        def wait() -> None:
            self._xp.cuda.runtime.setDevice(self._device)  # of the thread that asks
            event.synchronize()

        return wait

    def write(self, at: int, block: Array) -> bool:
        try:
            return int(self._direct.pwrite(block, block.nbytes, at).get()) == block.nbytes
        except _FAILURES:
            return False

    def read(self, at: int, block: Array) -> None:
        try:
            count = int(self._direct.pread(block, block.nbytes, at).get())
        except _FAILURES as error:
            raise StoreError(
                f"kvikio cannot read the scratch file of kernel blocks ({error}); fit again with keep_blocks='never'"
            ) from error
        if count != block.nbytes:
            raise _short()

    def close(self) -> None:
        self._opened.close()


def scratch_file(folder: str) -> IO[bytes]:
    """Return a new file for reading and writing, without a name where the system can do that, else gone when closed.

    Raises
    ------
    SpecError
        When no file can be made in `folder`.
    """
    try:
        return tempfile.TemporaryFile(prefix="daskkern-blocks-", dir=folder, buffering=0)
    except OSError as error:
        raise SpecError(
            f"kernel blocks were to be kept in {folder}, but no file can be made there ({error.strerror}); give "
            "another --set scratch=FOLDER, or --set keep_blocks=never"
        ) from None


def kvikio_module() -> ModuleType | None:
    """Return kvikio, or None where it is not installed or does not load."""
    try:
        import kvikio  # optional package
    except Exception:  # libraries that do not load raise what they like
        return None
    module: ModuleType = kvikio
    return module


def block_file(folder: str, dtype: str, xp: ModuleType, direct: bool) -> BlockFile:
    """Return a file in `folder` for blocks of `xp`; kvikio's, where `direct` is asked and it can be had."""
    kvikio = kvikio_module() if direct and xp is not np else None
    if kvikio is not None:
        with suppress(*_FAILURES):  # of its driver, or a system that does not open files without a name again
            return DirectFile(folder, np.dtype(dtype), xp, kvikio)
    return HostFile(folder, np.dtype(dtype))


def _at_once() -> None:
    return


def _short() -> StoreError:
    return StoreError("the scratch file of kernel blocks ended early; fit again with keep_blocks='never'")
