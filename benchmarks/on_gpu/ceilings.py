"""The ceilings of the device: matrix products in float32 and TF32, copies on the device and to it."""

from types import ModuleType
from typing import Any

import numpy as np

from daskkern.backend.uploads import Uploads
from daskkern.kernels.engines.cuda import device_of
from daskkern.kernels.precision import Precision
from on_gpu.clock import median_seconds
from on_gpu.sizes import Sizes


def measure_ceilings(xp: ModuleType, sizes: Sizes) -> dict[str, Any]:
    """Return TFLOP/s of square matrix products, and GB/s of copies (read and written bytes together)."""
    n = sizes.matrix
    made: dict[str, Any] = {"sgemm_tflops": round(_gemm(xp, n, "float32"), 3)}
    if hasattr(xp, "cuda"):
        made["tf32_tflops"] = round(_gemm(xp, n, "tf32"), 3)
    made["copy_gb_per_s"] = round(_copied(xp, sizes.copied), 2)
    rows, uploads = np.zeros(sizes.copied // 16, np.float32), Uploads(xp)
    seconds = median_seconds(xp, lambda: uploads.begin(rows)()[0])
    made["host_to_device_gb_per_s"] = round(rows.nbytes / seconds / 1e9, 2)
    return made


def _copied(xp: ModuleType, size: int) -> float:
    source = xp.zeros(size // 4, np.float32)
    target = xp.zeros_like(source)

    def copy() -> None:
        target[...] = source

    return 2 * size / median_seconds(xp, copy) / 1e9


def _gemm(xp: ModuleType, n: int, precision: Precision) -> float:
    rng = np.random.default_rng(0)
    left = xp.asarray(rng.standard_normal((n, n), np.float32))
    out = xp.empty((n, n), np.float32)

    def multiply() -> None:
        if hasattr(xp, "cuda"):
            device_of(xp).multiply(left, left, out, turn_left=False, turn_right=False, precision=precision)
        else:
            xp.matmul(left, left, out=out)

    return 2 * n**3 / median_seconds(xp, multiply) / 1e12
