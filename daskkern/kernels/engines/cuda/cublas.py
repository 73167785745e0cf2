"""The cuBLAS calls that CuPy rejects during stream capture, with the signatures of CuPy's wrappers.

CuPy 14 raises NotImplementedError for them. cuBLAS can be recorded in a workspace that the caller gives it: its own may
serve work outside the recording at the same time.
"""

import ctypes
from functools import cache
from types import ModuleType
from typing import Any

from daskkern.arrays import Array

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_TABLE, _TABLES = [_POINTER, _INT, _INT], [_POINTER, _INT, _INT, _LONG]
_FIRST = [_POINTER, *[_INT] * 5, _POINTER]
_SIGNATURES: dict[str, list[Any]] = {
    "cublasSetStream_v2": [_POINTER, _POINTER],
    "cublasSetWorkspace_v2": [_POINTER, _POINTER, ctypes.c_size_t],
    "cublasGemmEx": [*_FIRST, *_TABLE, *_TABLE, _POINTER, *_TABLE, _INT, _INT],
    "cublasGemmStridedBatchedEx": [*_FIRST, *_TABLES, *_TABLES, _POINTER, *_TABLES, _INT, _INT, _INT],
}


@cache
def cublas_library(xp: ModuleType) -> Any:
    """Return the library that CuPy has loaded. OSError where it has another name."""
    xp.cuda.device.get_cublas_handle()  # loads it
    return ctypes.CDLL(f"libcublas.so.{int(xp.cuda.runtime.runtimeGetVersion()) // 1000}")


class DirectCublas:
    """cuBLAS on one stream, in a workspace.

    Parameters
    ----------
    xp : module
    stream : int
        Its address.
    workspace : (bytes,) array of uint8
    """

    def __init__(self, xp: ModuleType, stream: int, workspace: Array) -> None:
        library = cublas_library(xp)
        self._functions = {name: getattr(library, name) for name in _SIGNATURES}
        for name, kinds in _SIGNATURES.items():
            self._functions[name].argtypes = kinds
        self._stream, self._workspace = stream, workspace

    def gemmEx(self, handle: int, *arguments: int) -> None:  # noqa: N802
        """As ``cupy.cuda.cublas.gemmEx``."""
        self._call("cublasGemmEx", handle, arguments)

    def gemmStridedBatchedEx(self, handle: int, *arguments: int) -> None:  # noqa: N802
        """As ``cupy.cuda.cublas.gemmStridedBatchedEx``."""
        self._call("cublasGemmStridedBatchedEx", handle, arguments)

    def _call(self, name: str, handle: int, arguments: tuple[int, ...]) -> None:
        # CuPy sets the stream before each of its own calls, which also gives cuBLAS its own workspace back.
        work = self._workspace
        self._checked("cublasSetStream_v2", handle, self._stream)
        self._checked("cublasSetWorkspace_v2", handle, work.data.ptr, work.nbytes)
        self._checked(name, handle, *arguments)

    def _checked(self, name: str, *arguments: int) -> None:
        status = self._functions[name](*arguments)
        if status:
            raise RuntimeError(f"{name} returned status {status}")
