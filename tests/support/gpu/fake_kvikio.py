"""A stand-in for kvikio: its files, on the arrays of the stand-in for CuPy, and as late as kvikio may be."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np

from tests.support.gpu.fake_arrays import FakeArray

SIGNATURES = {
    "CuFile": ("file", "flags"),
    "CuFile.pread": ("buf", "size", "file_offset"),
    "CuFile.pwrite": ("buf", "size", "file_offset"),
    "CuFile.close": (),
    "cufile_driver.get": ("config_name",),
}
"""Names in kvikio, and the parameters that daskkern gives there, in their order."""


class Future:
    """What happens when somebody waits for it, and not before."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work: Callable[[], int] | None = work

    def get(self) -> int:
        assert self._work is not None, "a future was asked twice"
        work, self._work = self._work, None
        return work()


class FakeKvikio:
    """The module, and what it counts.

    Attributes
    ----------
    n_read, n_written, n_open : int
        Bytes, and files that are open.
    gds : bool
        Whether the driver has GPUDirect Storage.
    fails_after : int
        Bytes that are read before a read fails.
    room : int
        Bytes that the disk still takes; then writing fails as kvikio's does.
    """

    def __init__(self, gds: bool = True) -> None:
        self.n_read = self.n_written = self.n_open = 0
        self.room = self.fails_after = 1 << 40
        self.gds = gds

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Within the context, this is what ``import kvikio`` gives."""
        before, module = sys.modules.get("kvikio"), ModuleType("kvikio")
        module.__dict__["CuFile"] = lambda file, flags="r": _CuFile(self, file, flags)
        module.__dict__["cufile_driver"] = SimpleNamespace(get=lambda name: {"is_gds_available": self.gds}[name])
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
        kvikio.n_open += 1

    def pread(self, buf: FakeArray, size: int | None = None, file_offset: int = 0) -> Future:
        _check(buf, size, file_offset)
        buf.held.fill(np.nan if buf.dtype.kind == "f" else 111)  # anything can be in it until the future is asked

        def read() -> int:
            if self._kvikio.n_read >= self._kvikio.fails_after:
                raise RuntimeError("cuFile error: GPUDirect Storage is out of order")
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
        self._kvikio.n_open -= 1


def _check(buf: FakeArray, size: int | None, file_offset: int) -> None:
    assert isinstance(buf, FakeArray), "a buffer of the host was handed to the device's way"
    assert buf.ndim == 1, "kvikio takes flat buffers"
    assert buf.flags.c_contiguous, "kvikio takes contiguous buffers"
    assert size == buf.nbytes
    assert file_offset % 4096 == 0, "GPUDirect wants blocks that begin at pages"
