"""A stand-in for kvikio: its files, on the arrays of the stand-in for CuPy, and as late as kvikio may be."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from tests.support.gpu.fake_arrays import FakeArray

SIGNATURES = {
    "CuFile": ("file", "flags"),
    "CuFile.pread": ("buf", "size", "file_offset"),
    "CuFile.pwrite": ("buf", "size", "file_offset"),
    "CuFile.close": (),
}
"""Names in kvikio, and the parameters that daskkern gives there, in their order."""


class Future:
    """What happens when somebody waits for it, and not before."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work

    def get(self) -> int:
        return self._work()


class FakeKvikio:
    """The module, and what it counts.

    Attributes
    ----------
    n_read, n_written : int
        Bytes.
    room : int
        Bytes that the disk still takes; then writing fails as kvikio's does.
    """

    def __init__(self) -> None:
        self.n_read = self.n_written = 0
        self.room = 1 << 40

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Within the context, this is what ``import kvikio`` gives."""
        before, module = sys.modules.get("kvikio"), ModuleType("kvikio")
        module.__dict__["CuFile"] = lambda file, flags="r": _CuFile(self, file, flags)
        sys.modules["kvikio"] = module
        try:
            yield
        finally:
            if before is None:
                del sys.modules["kvikio"]
            else:
                sys.modules["kvikio"] = before


class _CuFile:
    def __init__(self, kvikio: FakeKvikio, file: str, flags: str) -> None:
        self._kvikio = kvikio
        self._descriptor = os.open(file, {"r": os.O_RDONLY, "r+": os.O_RDWR}[flags])

    def pread(self, buf: FakeArray, size: int | None = None, file_offset: int = 0) -> Future:
        _check(buf, size, file_offset)
        buf.held.fill(np.nan)  # as much as anything can be in it until the future is asked

        def read() -> int:
            data = os.pread(self._descriptor, buf.nbytes, file_offset)
            whole = len(data) // buf.itemsize
            buf.held[:whole] = np.frombuffer(data[: whole * buf.itemsize], buf.dtype)
            self._kvikio.n_read += len(data)
            return len(data)

        return Future(read)

    def pwrite(self, buf: FakeArray, size: int | None = None, file_offset: int = 0) -> Future:
        _check(buf, size, file_offset)

        def write() -> int:
            if self._kvikio.room < buf.nbytes:
                raise RuntimeError("POSIX error on pwrite: No space left on device")
            self._kvikio.room -= buf.nbytes
            self._kvikio.n_written += buf.nbytes
            return os.pwrite(self._descriptor, buf.held.tobytes(), file_offset)

        return Future(write)

    def close(self) -> None:
        os.close(self._descriptor)


def _check(buf: FakeArray, size: int | None, file_offset: int) -> None:
    assert isinstance(buf, FakeArray), "a buffer of the host was handed to the device's way"
    assert buf.ndim == 1, "kvikio takes flat buffers"
    assert buf.flags.c_contiguous, "kvikio takes contiguous buffers"
    assert size == buf.nbytes
    assert file_offset % 4096 == 0, "GPUDirect wants blocks that begin at pages"
