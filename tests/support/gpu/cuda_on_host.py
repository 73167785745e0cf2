"""A stand-in for a GPU: the same CUDA text compiled as plain C++, and NumPy for cuBLAS."""

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from daskkern.arrays import Array
from daskkern.kernels.precision import Precision, rounded

HEADER = Path(__file__).with_name("cuda_on_host.h")


class HostDevice:
    """Runs the engine's kernels on NumPy arrays, thread for thread. One launch at a time."""

    xp: ModuleType = np
    number = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launches: list[str] = []
        self._compiled = cache(self._compile)
        # The header is read once for all kernels: it is most of what there is to compile.
        self._header = Path(shutil.copy(HEADER, folder))
        self._run_compiler("-x", "c++-header", "-o", f"{self._header}.gch", str(self._header))

    def launch(self, text: str, name: str, grid: tuple[int, int], threads: int, arguments: Sequence[Any]) -> None:
        words: list[Any] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                words.append(ctypes.c_void_p(argument.ctypes.data))
            else:
                kinds = {"int64": ctypes.c_int64, "float32": ctypes.c_float, "float64": ctypes.c_double}
                words.append(kinds[argument.dtype.name](argument.item()))
        addresses = (ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words))
        assert self._compiled(text, name)(addresses, *grid, threads), "threads did not meet at a barrier"
        self.launches.append(name)

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
        assert left.dtype == right.dtype == out.dtype
        if precision == "bf16x9":  # errs less than float32
            left, right = left.astype(np.float64), right.astype(np.float64)
        else:
            left, right = rounded(left, precision), rounded(right, precision)
        made = (left.T if turn_left else left) @ (right.T if turn_right else right)
        out[...] = scale * made + (out if add else 0)

    def multiply_blocks(self, left: Array, right: Array, out: Array, width: int, *, turn_left: bool) -> None:
        assert left.dtype == right.dtype == out.dtype
        for block, product in enumerate(out):
            cut = slice(block * width, (block + 1) * width)
            product[...] = (left[cut].T if turn_left else left[:, cut]) @ right[cut]

    def _compile(self, text: str, name: str) -> Any:
        stem = self.folder / f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        source = stem.with_suffix(".cpp")
        source.write_text(f'#include "{self._header}"\n{text}\nEXPORT({name})\n')
        library = stem.with_suffix(".so")
        self._run_compiler("-shared", "-o", str(library), str(source))
        function = getattr(ctypes.CDLL(str(library)), f"run_{name}")
        function.restype = ctypes.c_bool
        function.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint]
        return function

    def _run_compiler(self, *words: str) -> None:
        command = ["g++", "-O1", "-std=c++17", "-march=native", "-fPIC", "-Wno-unknown-pragmas", *words]
        subprocess.run(command, check=True, capture_output=True, text=True)
