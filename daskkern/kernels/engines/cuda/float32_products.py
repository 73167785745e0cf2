"""Inner products of float32 rows on tensor cores, by three products of TF32, or by nine of bfloat16 in cuBLAS.

    x.z = low(x).high(z) + high(x).low(z) + high(x).high(z) ,   x = high(x) + low(x) + rest ,

where high(x) is x and low(x) is ``x - high(x)``, rounded to TF32's 10 mantissa bits. What is left out is of the order
of 2^-22 |x| |z|, as is the rounding of float32's own sums. Tensor cores cut off the digits of their sums, which counts
with many terms: so at most 512 of the last kind are summed there, and these sums are added in float32. On an H200, with
784 normal features and 512 terms of any kind at a time, the largest error was 0.9 times float32's and the root of the
mean square 2.0 times, in 0.6 of its time; in one sum of all 2,352 terms 1.4 and 3.7 times, in 0.5 of the time.

From CUDA 12.9 on, cuBLAS makes float32 products of nine products of bfloat16 where a GPU has them (Blackwell); that has
not been measured. :func:`fastest_exact_way` measures the time and the error of each way.

References
----------
Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
performance", IJHPCA 2022.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Literal

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.tiles import balanced
from daskkern.kernels.engines.cuda.device import Device, device_of
from daskkern.kernels.engines.cuda.source import terms_source

_THREADS = 256
_MOST_ACROSS = 65535
TERMS_BYTES = 256 << 20  # of the terms of points, and of rows, at once
_SLICE = 512  # terms whose products tensor cores sum, before they are added in float32
_GAIN, _AS_EXACT = 0.9, 1.5
_SIDE = 64  # rows and points of the calibration for each processor: 8,448 on an H100
_LEAST_SIDE, _CHECKED, _REPEATS = 256, 128, 3

Way = Literal["float32", "tf32x3", "bf16x9"]
"""How float32 rows are multiplied: in float32, by three products of TF32, or by nine of bfloat16."""
WAYS: tuple[Way, ...] = ("float32", "tf32x3", "bf16x9")

_way: ContextVar[Way] = ContextVar("way", default="float32")


@contextmanager
def products_by(way: Way) -> Iterator[None]:
    """Within the context, wide float32 rows on a GPU are multiplied in this way."""
    token = _way.set(way)
    try:
        yield
    finally:
        _way.reset(token)


def float32_way() -> Way:
    """Return how wide float32 rows are multiplied here."""
    return _way.get()


def multiply_float32(device: Device, X: Array, Z: Array, out: Array, way: Way) -> None:
    """Write ``X Z^T`` (m, p) to `out` for contiguous float32 rows (m, d) and (p, d)."""
    if way == "tf32x3":
        three_products(device, X, Z, out)
    else:
        device.multiply(X, Z, out, turn_left=False, turn_right=True, precision=way)


def three_products(device: Device, X: Array, Z: Array, out: Array) -> None:
    """Write ``X Z^T`` (m, p) to `out` for contiguous float32 rows (m, d) and (p, d)."""
    left = tf32_terms(device, X, left=True)
    for cols in balanced(Z.shape[0], rows_at_once(X.shape[1])):
        right, place = tf32_terms(device, Z[cols], left=False), out[:, cols]
        for part in _parts(X.shape[1]):
            device.multiply(
                left[:, part], right[:, part], place, turn_left=False, turn_right=True, precision="tf32",
                add=part.start > 0,
            )  # fmt: skip


def tf32_terms(device: Device, rows: Array, *, left: bool) -> Array:
    """Return the terms of float32 rows (n, d) as rows (n, 3 d'), each with zeros up to a multiple of 4 numbers."""
    n, d = rows.shape
    width = 3 * _third(d)
    out = device.xp.empty((n, width), np.float32)
    if not out.size:
        return out
    stride = rows.strides[0] // rows.itemsize if n > 1 else d
    arguments = [rows, *map(np.int64, (n, d, stride)), out, np.int64(width // 3), np.int64(left)]
    device.launch(terms_source(), "tf32_terms", (-(-width // _THREADS), min(n, _MOST_ACROSS)), _THREADS, arguments)
    return out


def rows_at_once(d: int) -> int:
    """Return the rows of `d` features whose terms are held at once."""
    return max(1, TERMS_BYTES // (12 * _third(d)))


def terms_bytes(m: int, p: int, d: int) -> int:
    """Return the most bytes of the terms of `m` rows and `p` points."""
    each = 12 * _third(d)
    return m * each + min(p * each, max(TERMS_BYTES, each))


@cache
def fastest_exact_way(xp: ModuleType, d: int) -> Way:
    """Return how float32 rows of `d` features are multiplied in the least time on this GPU, with an error of float32's.

    Float32 itself, unless another way takes less than nine tenths of its time and errs by at most 1.5 times as much,
    against float64 on normal features. A way that cuBLAS does not have here is none.
    """
    device, rng = device_of(xp), np.random.default_rng(0)
    processors = int(xp.cuda.runtime.getDeviceProperties(xp.cuda.runtime.getDevice())["multiProcessorCount"])
    side = max(_LEAST_SIDE, _SIDE * processors)
    X, Z = (xp.asarray(rng.standard_normal((side, d), np.float32)) for _ in range(2))
    out = xp.empty((side, side), np.float32)
    some = X[:_CHECKED].astype(np.float64) @ Z.astype(np.float64).T

    def measured(way: Way) -> tuple[float, float]:
        multiply_float32(device, X, Z, out, way)
        error = float(abs(out[:_CHECKED] - some).max())
        return _seconds(xp, lambda: multiply_float32(device, X, Z, out, way)), error

    (seconds, exact), best = measured("float32"), WAYS[0]
    least = _GAIN * seconds
    for way in WAYS[1:]:
        try:
            seconds, error = measured(way)
        except RuntimeError:  # cuBLAS's words for what it does not have
            continue
        if seconds < least and error <= _AS_EXACT * exact:
            least, best = seconds, way
    return best


def _seconds(xp: ModuleType, work: Callable[[], None]) -> float:
    stream, found = xp.cuda.get_current_stream(), []
    for _ in range(_REPEATS):
        stream.synchronize()
        begun = time.perf_counter()
        work()
        stream.synchronize()
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def _third(d: int) -> int:
    return -(-d // 4) * 4


@cache
def _parts(d: int) -> list[slice]:
    """Return the terms that are summed at a time: those with low parts, which are small, then pieces of the others."""
    third = _third(d)
    high = balanced(third // 4, max(1, _SLICE // 4))
    return [slice(0, 2 * third), *(slice(2 * third + 4 * part.start, 2 * third + 4 * part.stop) for part in high)]
