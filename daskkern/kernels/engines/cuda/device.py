"""The GPU operations of the engine: kernel launches, and matrix products in a chosen precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.devices import compiled_once
from daskkern.kernels.engines.cuda.recording import current_recorder
from daskkern.kernels.precision import Precision

_EMULATED_16BFX9 = 78
"""CUBLAS_COMPUTE_32F_EMULATED_16BFX9 of cuBLAS 12.9, for which CuPy 14 has no name."""


class Device(Protocol):
    """A GPU, or its stand-in in tests."""

    @property
    def xp(self) -> ModuleType:
        """The array module of its arrays."""

    @property
    def number(self) -> int:
        """Which of the machine's GPUs it is."""

    def __hash__(self) -> int: ...

    def launch(self, text: str, name: str, grid: tuple[int, int], threads: int, arguments: Sequence[Any]) -> None:
        """Run the kernel `name` of the CUDA source `text`: arrays are passed as addresses, NumPy numbers as values."""

    def multiply(
        self,
        left: Array,
        right: Array,
        out: Array,
        *,
        turn_left: bool,
        turn_right: bool,
        precision: Precision | Literal["bf16x9"],
        scale: float = 1.0,
        add: bool = False,
    ) -> None:
        """Write the product of two tables, each transposed before where it is turned, to `out`. See :class:`Cupy`."""

    def multiply_blocks(self, left: Array, right: Array, out: Array, width: int, *, turn_left: bool) -> None:
        """Write the products of consecutive blocks of two tables to `out`. See :class:`Cupy`."""


@dataclass(frozen=True)
class Cupy:
    """The current CUDA device through CuPy."""

    xp: ModuleType

    @property
    def number(self) -> int:
        """The number of the current GPU."""
        return int(self.xp.cuda.runtime.getDevice())

    @property
    def _calls(self) -> Any:
        recorder = current_recorder()
        return self.xp.cuda.cublas if recorder is None else recorder.cublas

    def launch(self, text: str, name: str, grid: tuple[int, int], threads: int, arguments: Sequence[Any]) -> None:
        """Compile `text` on first use, and run its kernel on the current stream."""
        _function(self.xp, text, name)(grid, (threads,), tuple(arguments))

    def multiply(
        self,
        left: Array,
        right: Array,
        out: Array,
        *,
        turn_left: bool,
        turn_right: bool,
        precision: Precision | Literal["bf16x9"],
        scale: float = 1.0,
        add: bool = False,
    ) -> None:
        """Write ``left @ right`` to `out` by cuBLAS, whatever CuPy's own compute type is (``CUPY_TF32``).

        Parameters
        ----------
        left, right, out : arrays (., .)
            Float32, or all float64; operands that "float16" rounds may be in it already. Rows may have any stride; the
            numbers of a row are contiguous.
        turn_left, turn_right : bool
            Take the transpose instead.
        precision : str
            "tf32" and "float16" let tensor cores round the operands; products are summed in float32. "bf16x9" are nine
            products of bfloat16 with the error of float32; RuntimeError where cuBLAS has none.
        scale : float
            Multiplies the product.
        add : bool
            Add it to what `out` holds.
        """
        m, n = out.shape
        k = left.shape[0] if turn_left else left.shape[1]
        if not (m and n and k):
            if not add:
                out[...] = 0
            return
        xp, half = self.xp, precision == "float16"
        cublas, runtime = xp.cuda.cublas, xp.cuda.runtime
        if half:
            left, right = left.astype(xp.float16, copy=False), right.astype(xp.float16, copy=False)
        double = out.dtype == np.float64
        made = runtime.CUDA_R_64F if double else runtime.CUDA_R_32F
        taken = runtime.CUDA_R_16F if half else made
        compute = cublas.CUBLAS_COMPUTE_64F if double else cublas.CUBLAS_COMPUTE_32F
        if precision == "tf32":
            compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32
        elif precision == "bf16x9":
            compute = _EMULATED_16BFX9
        alpha, beta = np.full(1, scale, out.dtype), np.full(1, float(add), out.dtype)
        # cuBLAS is column-major: it gets the transposes, in exchanged order.
        self._calls.gemmEx(
            xp.cuda.device.get_cublas_handle(),
            cublas.CUBLAS_OP_T if turn_right else cublas.CUBLAS_OP_N,
            cublas.CUBLAS_OP_T if turn_left else cublas.CUBLAS_OP_N,
            n, m, k,
            alpha.ctypes.data,
            right.data.ptr, taken, _line(right),
            left.data.ptr, taken, _line(left),
            beta.ctypes.data,
            out.data.ptr, made, _line(out),
            compute, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    def multiply_blocks(self, left: Array, right: Array, out: Array, width: int, *, turn_left: bool) -> None:
        """Write the products of consecutive blocks to `out` in one call of cuBLAS, without copies of the blocks.

        Parameters
        ----------
        left : (m, k width) array, or (k width, m) where it is turned
            The contiguous numbers of its rows are blocks of `width` columns; where it is turned, blocks of rows.
        right : (k width, c) array
            Contiguous, in the dtype of `left`.
        out : (k, m, c) array
            Contiguous: ``left[:, block] @ right[block]`` for each block, or ``left[block].T @ right[block]``.
        """
        xp, (count, m, n) = self.xp, out.shape
        if not out.size:
            return
        cublas, runtime = xp.cuda.cublas, xp.cuda.runtime
        double = out.dtype == np.float64
        kind = runtime.CUDA_R_64F if double else runtime.CUDA_R_32F
        alpha, beta = np.ones(1, out.dtype), np.zeros(1, out.dtype)
        line = _line(left)
        self._calls.gemmStridedBatchedEx(
            xp.cuda.device.get_cublas_handle(),
            cublas.CUBLAS_OP_N,
            cublas.CUBLAS_OP_T if turn_left else cublas.CUBLAS_OP_N,
            n, m, width,
            alpha.ctypes.data,
            right.data.ptr, kind, n, width * n,
            left.data.ptr, kind, line, width * line if turn_left else width,
            beta.ctypes.data,
            out.data.ptr, kind, n, m * n,
            count,
            cublas.CUBLAS_COMPUTE_64F if double else cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip


@cache
def device_of(xp: ModuleType) -> Device:
    """Return the device of a module's arrays."""
    return Cupy(xp)


@compiled_once
def _function(xp: ModuleType, text: str, name: str) -> Any:
    return xp.RawModule(code=text).get_function(name)


def _line(table: Array) -> int:
    """Return the stride of rows in numbers; that of a single row is arbitrary."""
    return table.strides[0] // table.itemsize if table.shape[0] > 1 else table.shape[1]
