"""Products of a table on a GPU with few columns, accumulated in float64 over blocks of its columns or rows.

Up to :data:`MOST_OUTPUTS` columns take one launch of our own for all blocks and one sum. Beyond that, blocks of one
width that lie side by side go through one strided call of cuBLAS, which reads them where they are.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from daskkern.arrays import Array
from daskkern.backend.reductions import add_parts
from daskkern.backend.tiles import balanced, slices
from daskkern.kernels.engines.cuda.device import Device
from daskkern.kernels.engines.cuda.launch import block_sums, sums_bytes, transposed_sums
from daskkern.kernels.engines.cuda.recording import current_recorder

MOST_OUTPUTS = 32
"""Columns up to which products are fused; each 12 to 16 of them read, or compute, the table again."""
SUM_ROWS = 512
"""Rows that a transposed product sums in the working dtype."""
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
    if 0 < right.shape[1] <= MOST_OUTPUTS:
        table = block_table(device, blocks)
        return _transposed(device, left, right, table) if turned else block_sums(device, left, right, table)
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


def transposed_product(device: Device, left: Array, right: Array, scale: float) -> Array:
    """Return ``scale left.T @ right`` (p, c) in the dtype of both, for 1 to :data:`MOST_OUTPUTS` columns.

    Parts of 512 rows of `left` (m, p), whose numbers are contiguous, are summed each, and these sums added.
    """
    table = block_table(device, slices(left.shape[0], SUM_ROWS))
    return _transposed(device, left, right, table, right.dtype, scale)


def partial_bytes(m: int, p: int, c: int, itemsize: int, width: int) -> int:
    """Return the most bytes of partial sums of a block (m, p), in pieces of `width` columns, with c columns."""
    if c > MOST_OUTPUTS:
        line = m * c * itemsize
        return max(line, min(PARTIAL_BYTES, -(-p // width) * line))
    line = -(-m // SUM_ROWS) * c * itemsize
    return max(line, min(PARTIAL_BYTES, p * line)) + sums_bytes(m, c)


def block_table(device: Device, blocks: Sequence[slice]) -> Array:
    """Return starts and stops of blocks, (blocks, 2) int64, on the GPU: a fit uses the same ones in every step."""
    table = _cached_table(device, device.number, tuple((block.start, block.stop) for block in blocks))
    recorder = current_recorder()
    if recorder is not None:
        recorder.hold(table)  # the cache may drop it
    return table


@lru_cache(256)
def _cached_table(device: Device, number: int, edges: tuple[tuple[int, int], ...]) -> Array:
    del number  # a part of the key
    return device.xp.asarray(np.array(edges, np.int64).reshape(-1, 2))


def _transposed(
    device: Device, left: Array, right: Array, table: Array, dtype: DTypeLike = np.float64, scale: float = 1.0
) -> Array:
    p, c, n_blocks = left.shape[1], right.shape[1], max(1, len(table))
    most = max(1, PARTIAL_BYTES // (n_blocks * c * right.itemsize))
    if p <= most:
        return add_parts(transposed_sums(device, left, right, table, scale), dtype)
    out = device.xp.empty((p, c), dtype)
    for cols in balanced(p, most):
        out[cols] = add_parts(transposed_sums(device, left[:, cols], right, table, scale), dtype)
    return out


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
