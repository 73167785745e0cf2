"""The ceilings of the device: launches, matrix products by precision, copies on the device and to it and from it."""

import time
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.backend.uploads import Uploads
from daskkern.kernels.engines.cuda import device_of
from daskkern.kernels.precision import Precision
from on_gpu.clock import median_seconds, wait
from on_gpu.sizes import Sizes

LAUNCHES = 2000
_POOL_BYTES = 64 << 20


def ceilings(
    xp: ModuleType, sizes: Sizes, where: str, so_far: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield TFLOP/s of square products, GB/s of copies (bytes read and written), microseconds of a launch."""
    del where, so_far
    n = sizes.matrix
    made: dict[str, Any] = {"float32_tflops": round(_gemm(xp, n, "float32"), 3)}
    if hasattr(xp, "cuda"):
        made |= {f"{name}_tflops": round(_gemm(xp, n, name), 3) for name in ("tf32", "float16")}
    made["copy_gb_per_s"] = round(_copied(xp, sizes.copied), 2)
    rows, uploads = np.zeros(sizes.copied // 16, np.float32), Uploads(xp)
    seconds = median_seconds(xp, lambda: uploads.begin(rows)()[0])
    made["host_to_device_gb_per_s"] = round(rows.nbytes / seconds / 1e9, 2)
    yield "ceilings", made
    yield "launches", _launches(xp)
    yield "allocations", allocations(xp)


def _launches(xp: ModuleType) -> dict[str, float]:
    """Return what a small operation costs the host where it does not wait, and where it waits for each."""
    small = xp.zeros(32, np.float32)
    small += 1  # compiled
    wait(xp)
    begun = time.perf_counter()
    for _ in range(LAUNCHES):
        small += 1
    given = time.perf_counter()
    wait(xp)
    done = time.perf_counter()
    for _ in range(LAUNCHES // 10):
        small += 1
        wait(xp)
    waited = time.perf_counter()
    return {
        "launch_us": round((given - begun) / LAUNCHES * 1e6, 3),
        "operation_us": round((done - begun) / LAUNCHES * 1e6, 3),
        "launch_and_wait_us": round((waited - done) / (LAUNCHES // 10) * 1e6, 3),
    }


def allocations(xp: ModuleType) -> dict[str, Any]:
    """Return what an array of memory costs the host: from CuPy's pool with a limit, and from an RMM pool."""
    if not hasattr(xp, "cuda"):
        return {"note": "not on a CPU"}
    found: dict[str, Any] = {}
    before, pool = xp.cuda.get_allocator(), xp.cuda.MemoryPool()
    try:
        pool.set_limit(size=_POOL_BYTES)
        xp.cuda.set_allocator(pool.malloc)
        found["cupy_pool_us"] = _allocated(xp)
        try:
            import rmm  # optional package
            from rmm.allocators.cupy import rmm_cupy_allocator
        except ImportError:
            return found | {"note": "RMM is not installed"}
        device = rmm.mr.get_current_device_resource()
        rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(device, initial_pool_size=_POOL_BYTES))
        try:
            xp.cuda.set_allocator(rmm_cupy_allocator)
            found["rmm_pool_us"] = _allocated(xp)
        finally:
            rmm.mr.set_current_device_resource(device)
    finally:
        xp.cuda.set_allocator(before)
    return found


def _allocated(xp: ModuleType) -> float:
    """Return microseconds of an array that is made and dropped, of sizes as a step has them."""
    sizes = (1 << 10, 1 << 16, 1 << 22)
    for size in sizes:
        xp.empty(size, np.uint8)
    begun = time.perf_counter()
    for _ in range(LAUNCHES):
        for size in sizes:
            xp.empty(size, np.uint8)
    return round((time.perf_counter() - begun) / (LAUNCHES * len(sizes)) * 1e6, 3)


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
