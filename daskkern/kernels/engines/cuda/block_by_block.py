"""Products of a table on a GPU, summed in float64 over blocks of its columns or rows: adjacent ones in one call.

Blocks of one width that lie side by side go through one strided call of cuBLAS, which reads them where they are, and
one sum over their products.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from daskkern.arrays import Array
from daskkern.kernels.engines.cuda.device import Device

PARTIAL_BYTES = 64 << 20
"""Bytes of the products of blocks that are held at once, or of one block if that is more. Not measured on a GPU."""


def sum_over_blocks(device: Device, left: Array, right: Array, blocks: Sequence[slice], *, turned: bool) -> Array:
    """Return the sum of ``left[:, block] @ right[block]``, or of ``left[block].T @ right[block]`` where it is turned.

    Parameters
    ----------
    left : (m, p) array, or (p, m) where it is turned
        The numbers of a row are contiguous.
    right : (p, c) array
        In the dtype of `left`.
    blocks : sequence of slices
        Of p.
    turned : bool

    Returns
    -------
    array (m, c)
        Float64: each block is summed in the working dtype.
    """
    xp, m, c = device.xp, left.shape[1 if turned else 0], right.shape[1]
    right = xp.ascontiguousarray(right)
    most = max(1, PARTIAL_BYTES // max(1, m * c * right.itemsize))
    total = None
    for run in _runs(blocks, most):
        part, width = slice(run[0].start, run[-1].stop), run[0].stop - run[0].start
        partial = xp.empty((len(run), m, c), right.dtype)
        device.multiply_blocks(left[part] if turned else left[:, part], right[part], partial, width, turn_left=turned)
        if total is None:
            total = partial.sum(axis=0, dtype=np.float64)
        else:
            total += partial.sum(axis=0, dtype=np.float64)
    return xp.zeros((m, c), np.float64) if total is None else total


def _runs(blocks: Sequence[slice], most: int) -> Iterator[list[slice]]:
    """Yield blocks of one width that follow each other, at most so many of them."""
    run: list[slice] = []
    for block in itertools.chain(blocks, [None]):
        same = bool(run) and block is not None and block.start == run[-1].stop and _width(block) == _width(run[0])
        if run and (not same or len(run) == most):
            yield run
            run = []
        if block is not None and _width(block):
            run.append(block)


def _width(block: slice) -> int:
    width: int = block.stop - block.start
    return width
