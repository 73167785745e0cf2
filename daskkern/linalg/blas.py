"""In-place subtraction of a matrix product, safe to call from several threads at once."""

import threading

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.tiles import slices

ROWS = 512  # of an intermediate product: in float32 and with 500 columns it stays in a core's L2

_local = threading.local()


def subtract_product(out: Array, left: Array, right: Array) -> None:
    """Subtract ``left @ right`` from `out`, in place.

    On the host in parts of 512 rows, so that the product is read back from cache. BLAS could accumulate by itself,
    but SciPy's wrappers hold the GIL, and NumPy's product does not: two threads are twice as fast.
    """
    if not isinstance(out, np.ndarray):
        out -= left @ right
        return
    product = _scratch(min(ROWS, out.shape[0]), out.shape[1], out.dtype)
    for part in slices(out.shape[0], ROWS):
        here = product[: part.stop - part.start]
        np.matmul(left[part], right, out=here)
        out[part] -= here


def _scratch(n_rows: int, width: int, dtype: np.dtype) -> HostArray:
    """Return a reusable array of this thread."""
    held = getattr(_local, "numbers", None)
    nbytes = n_rows * width * dtype.itemsize
    if held is None or held.nbytes < nbytes:
        held = _local.numbers = np.empty(nbytes, np.uint8)
    return held[:nbytes].view(dtype).reshape(n_rows, width)
