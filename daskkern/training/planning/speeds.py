"""Measured rates of products and factorisations on the device of this process."""

import math
import statistics
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, HostArray
from daskkern.backend.concurrency import compute_threads, library_threads
from daskkern.backend.namespace import is_sparse, settle, to_device
from daskkern.backend.tiles import slices
from daskkern.kernels import Kernel
from daskkern.kernels.engines.block_products import multiply_blocks, multiply_transposed
from daskkern.kernels.rows import module_of
from daskkern.linalg.blas import subtract_product
from daskkern.linalg.panels import each_panel
from daskkern.training.feeding.block_cache import new_memory

_ENTRIES = 1 << 22
_FLOPS_SIZE = 768
_SYMV_SIZE = 2000
_ENOUGH, _LONG = 0.03, 0.12
_CALL_TIMES = 3
_FRESH_STEP, _FRESH_MOST, _FRESH_SECONDS = 16 << 20, 256 << 20, 0.06


@dataclass(frozen=True)
class Speeds:
    """Of a device, for the operands that were timed.

    Attributes
    ----------
    call, matvec, block, product : float
        Seconds of a tiny matvec, of ``Kernel.matvec``, of ``Kernel.block``, and of both products with a block.
    factor, flops64 : float
        Flops a second of the downdates of a factor, and of a product in float64.
    memory : float
        Bytes a second of a symmetric product.
    """

    call: float
    matvec: float
    block: float
    product: float
    factor: float
    flops64: float
    memory: float


class SpeedCache:
    """Speeds that hold for a while, in a process; one measurement at a time, since two would slow each other down.

    Parameters
    ----------
    seconds : float
        How long a measurement holds.
    """

    def __init__(self, seconds: float = 600.0) -> None:
        self._seconds = seconds
        self._known: dict[Hashable, tuple[float, Speeds]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, measure: Callable[[], Speeds]) -> Speeds:
        """Return the speeds of `key`: those that are known, or those that `measure` returns."""
        with self._lock:
            measured, found = self._known.get(key, (-math.inf, None))
            if found is None or time.monotonic() - measured >= self._seconds:
                found = measure()
                self._known[key] = time.monotonic(), found
            return found


_GPU_SPEEDS = SpeedCache()


def speeds(
    kernel: Kernel,
    X: HostArray,
    Z: HostArray,
    n_outputs: int,
    width: int,
    threads: int,
    xp: ModuleType,
    cache: SpeedCache = _GPU_SPEEDS,
) -> Speeds:
    """Return the speeds of this process's device, which is the host where `xp` is NumPy.

    Those of a GPU hold for a while in a process, so that the next fits on the same worker have them at once. Those of a
    host are measured again, because others use it.

    Parameters
    ----------
    X, Z : (m, d) and (p, d) arrays of the host
    n_outputs : int
    width : int
        Columns of a downdate.
    threads : int
        Of the host.
    cache : SpeedCache
        Of GPUs.
    """
    if xp is np or is_sparse(X) or is_sparse(Z):
        return _measured(kernel, X, Z, n_outputs, width, threads, xp)
    key = (xp, xp.cuda.runtime.getDevice(), repr(kernel), X.dtype, X.shape, Z.shape, n_outputs, width)
    return cache.get(key, lambda: _measured(kernel, X, Z, n_outputs, width, threads, xp))


def _measured(
    kernel: Kernel, X: HostArray, Z: HostArray, n_outputs: int, width: int, threads: int, xp: ModuleType
) -> Speeds:
    with compute_threads(threads):
        times = kernel_times(kernel, to_device(X, xp), to_device(Z, xp), n_outputs)
        factor = _factor_rate(width, X.dtype.name, threads, xp)
    with library_threads(threads):
        return Speeds(*times, factor, *_library_rates(xp))


class KernelTimes(NamedTuple):
    """Seconds of a call, of a matvec, of a block, and of both products with a block from memory."""

    call: float
    matvec: float
    block: float
    product: float


def kernel_times(kernel: Kernel, X: Array, Z: Array, c: int) -> KernelTimes:
    """Return how long products of the kernel of `X` (m, d) and `Z` (p, d) with `c` columns take where these are."""
    xp = module_of(X)
    points = kernel.points(Z, kernel.placement_for(Z).on(xp))  # a mapped kernel's own is on the host
    A, g = xp.ones((Z.shape[0], c), X.dtype), xp.ones((X.shape[0], c), X.dtype)
    few = slice(0, min(16, X.shape[0]))
    tiny = kernel.points(Z[:16])
    kernel.matvec(X[few], points, A)  # a compiled engine compiles now
    # Copies go round, so that a block comes from memory as it does when it was kept.
    copies = [kernel.block(X, points) for _ in range(2 if X.shape[0] * Z.shape[0] > _ENTRIES // 4 else 1)]
    cuts = slices(Z.shape[0], max(1, -(-Z.shape[0] // 24)))

    def products() -> Array:
        block = copies.pop(0)
        copies.append(block)
        multiply_blocks(block, A, cuts, xp)
        return multiply_transposed(block, g, xp)

    return KernelTimes(
        # A fit makes thousands of such calls, few of which are held up for long as one of these may be.
        statistics.median(_time(lambda: kernel.matvec(X[few], tiny, A[:16])) for _ in range(_CALL_TIMES)),
        _time(lambda: kernel.matvec(X, points, A)),
        _time(lambda: kernel.block(X, points)),
        _time(products),
    )


def _factor_rate(width: int, dtype: str, threads: int, xp: ModuleType) -> float:
    """Return flops a second of the downdates of a factor, each in a thread of its own on a CPU."""
    rows = 2048
    outs = [xp.ones((rows, width), dtype) for _ in range(max(1, threads) if xp is np else 1)]
    tall, square = xp.ones((rows, width), dtype), xp.ones((width, width), dtype)

    def downdates() -> Array:
        each_panel(outs, lambda out: subtract_product(out, tall, square), xp)
        return outs[0]

    seconds = _time(downdates)
    return 2 * len(outs) * rows * width * width / seconds


def _library_rates(xp: ModuleType) -> tuple[float, float]:
    """Return flops a second in float64, and bytes a second of a symmetric product."""
    dense = xp.ones((_FLOPS_SIZE, _FLOPS_SIZE))
    flops = 2 * _FLOPS_SIZE**3 / _time(lambda: dense @ dense)
    if xp is not np:
        wide, ones = xp.ones((_SYMV_SIZE, _SYMV_SIZE)), xp.ones((_SYMV_SIZE, 1))
        return flops, _SYMV_SIZE**2 * 8 / _time(lambda: wide @ ones)
    symmetric, vector = np.ones((_SYMV_SIZE, _SYMV_SIZE), order="F"), np.ones(_SYMV_SIZE)
    memory = _SYMV_SIZE**2 * 4 / _time(lambda: scipy.linalg.blas.dsymv(1.0, symmetric, vector, lower=1))
    return flops, memory


def fresh_memory() -> float:
    """Return bytes a second of the first use of new memory, over as much as a short time allows."""
    memory, done, begun = new_memory(_FRESH_MOST, "uint8"), 0, time.perf_counter()
    while done < _FRESH_MOST and time.perf_counter() - begun < _FRESH_SECONDS:
        memory[done : done + _FRESH_STEP] = 1
        done += _FRESH_STEP
    return done / (time.perf_counter() - begun)


def _time(work: Callable[[], Array], least: int = 2) -> float:
    """Return the mean time of `work` over at least `least` calls and 30 ms: other jobs on the machine count, too.

    A GPU has made what `work` returns before the clock is looked at.
    """
    count, begun = 0, time.perf_counter()
    while True:
        settle(work())
        count += 1
        spent = time.perf_counter() - begun
        if spent > _LONG or (count >= least and spent > _ENOUGH):
            return spent / count
