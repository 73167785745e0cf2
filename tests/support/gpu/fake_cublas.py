"""A stand-in for cuBLAS: NumPy behind the same addresses and strides."""

import ctypes
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support.gpu import fake_graphs
from tests.support.gpu.fake_arrays import launched

_OPS = {"CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1}
TYPES = {"CUDA_R_32F": (0, np.float32), "CUDA_R_64F": (1, np.float64), "CUDA_R_16F": (2, np.float16)}
_COMPUTE = {
    "CUBLAS_COMPUTE_32F": 68, "CUBLAS_COMPUTE_64F": 70, "CUBLAS_COMPUTE_32F_FAST_TF32": 77, "CUBLAS_GEMM_DEFAULT": -1,
}  # fmt: skip


def module() -> SimpleNamespace:
    """Return ``cupy.cuda.cublas``, which cannot be recorded."""
    return SimpleNamespace(
        gemmEx=_unless_recording(gemm_ex),
        gemmStridedBatchedEx=_unless_recording(gemm_strided_batched_ex),
        **_OPS,
        **_COMPUTE,
    )


class Library:
    """The functions of the library itself, which can be recorded."""

    def __init__(self) -> None:
        for name in ("cublasSetStream_v2", "cublasSetWorkspace_v2"):
            setattr(self, name, _succeeding(lambda *arguments: None))
        self.cublasGemmEx = _succeeding(gemm_ex, 13)
        self.cublasGemmStridedBatchedEx = _succeeding(gemm_strided_batched_ex, 15)


def _succeeding(work: Callable[..., None], beta: int = 0) -> Callable[..., int]:
    """Return a function with a status. A recording has the numbers at the addresses alpha and `beta` of that time."""

    def call(*arguments: int) -> int:
        work(*arguments)
        if beta:
            kept = {place: bytearray(ctypes.string_at(arguments[place], 8)) for place in (6, beta)}
            scalars = {place: (ctypes.c_char * 8).from_buffer(content) for place, content in kept.items()}
            again = [ctypes.addressof(scalars[at]) if at in scalars else word for at, word in enumerate(arguments)]
            fake_graphs.record(partial(_again, work, again, scalars))
        return 0

    return call


def _again(work: Callable[..., None], arguments: list[int], held: object) -> None:
    del held  # not earlier
    work(*arguments)


def _unless_recording(work: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: int) -> None:
        if fake_graphs.is_recording():
            raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
        work(*arguments)

    return call


def gemm_ex(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int,
    A: int, Atype: int, lda: int, B: int, Btype: int, ldb: int, beta: int,
    C: int, Ctype: int, ldc: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    """Do what cublasGemmEx does, on tables in column order at addresses."""
    launched("gemmEx")
    _gemm(transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc)


def gemm_strided_batched_ex(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int,
    A: int, Atype: int, lda: int, strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int,
    C: int, Ctype: int, ldc: int, strideC: int, batchCount: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    """Do what cublasGemmStridedBatchedEx does: strides are in numbers."""
    launched("gemmStridedBatchedEx")
    a, b, c = (_size(kind) for kind in (Atype, Btype, Ctype))
    for i in range(batchCount):
        places = A + i * strideA * a, B + i * strideB * b, C + i * strideC * c
        _gemm(transa, transb, m, n, k, alpha, places[0], Atype, lda, places[1], Btype, ldb, beta, places[2], Ctype, ldc)


def _gemm(
    transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int,
    B: int, Btype: int, ldb: int, beta: int, C: int, Ctype: int, ldc: int,
) -> None:  # fmt: skip
    left = _table(A, Atype, lda, (k, m) if transa else (m, k))
    right = _table(B, Btype, ldb, (n, k) if transb else (k, n))
    out = _table(C, Ctype, ldc, (m, n))
    product = (left.T if transa else left).astype(out.dtype) @ (right.T if transb else right).astype(out.dtype)
    scale, kept = (_table(place, Ctype, 1, (1, 1))[0, 0] for place in (alpha, beta))
    out[...] = scale * product + (kept * out if kept else 0)


def _size(kind: int) -> int:
    return next(np.dtype(dtype).itemsize for number, dtype in TYPES.values() if number == kind)


def _table(address: int, kind: int, line: int, shape: tuple[int, int]) -> Any:
    dtype: np.dtype[Any] = next(np.dtype(dtype) for number, dtype in TYPES.values() if number == kind)
    rows, columns = shape
    assert line >= rows, "the leading dimension is less than the rows"
    size = ((columns - 1) * line + rows) * dtype.itemsize
    flat = np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)).cast("B"), dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, (dtype.itemsize, line * dtype.itemsize))
