"""CUDA kernel launches: sizes of grids and order of arguments."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.tiles import balanced
from daskkern.kernels.engines.cuda.device import Device
from daskkern.kernels.engines.cuda.source import (
    BLOCK_THREADS,
    BLOCK_TILE,
    FUNCTIONS,
    SCORE_THREADS,
    SUM_LINES,
    SUM_THREADS,
    KernelSizes,
    Name,
    constants,
    source,
    sums_source,
)
from daskkern.kernels.formula import Program
from daskkern.kernels.points import Side

OUTPUTS_PER_PASS = 16
"""Columns of A whose sums one thread keeps in registers. Not measured."""
_WANTED_BLOCKS = 1056  # blocks of threads that fill a large GPU: 8 on each of 132 processors
_MOST_ACROSS = 65535  # blocks of threads along the second side of a grid
_PROFILE_LINES = 1024


def scores(device: Device, what: Program, rows: Side, columns: Side, table: Array, factor: Array) -> Array:
    """Return ``K factor`` (m, c), float64, for dense rows of few features; K is never written.

    Parameters
    ----------
    table : (blocks, 2) int64
        Where blocks of columns start and stop, on the device: sums are float64 over blocks.
    factor : (p, c) array
        In the dtype of the rows.
    """
    xp = device.xp
    (m, d), c, n_blocks = rows.rows.shape, factor.shape[1], table.shape[0]
    if not (m and c and n_blocks):
        return xp.zeros((m, c), np.float64)
    factor = xp.ascontiguousarray(factor)
    tile = SCORE_THREADS * KernelSizes(factor.itemsize, d).rows_per_thread
    each, groups = blocks_per_group(-(-m // tile), n_blocks)
    partial = xp.empty((groups, m, c), np.float64)
    for part in balanced(c, OUTPUTS_PER_PASS):
        arguments = [
            *_side(xp, rows), np.int64(m), *_side(xp, columns),
            table, np.int64(n_blocks), np.int64(each),
            factor[:, part], np.int64(c), partial[:, :, part], np.int64(c), *_caps(what, columns),
        ]  # fmt: skip
        sizes = KernelSizes(factor.itemsize, d, part.stop - part.start)
        _launch(device, "scores", what, sizes, (-(-m // tile), groups), SCORE_THREADS, arguments)
    return partial[0] if groups == 1 else partial.sum(axis=0)  # in one order, whichever group finished first


def blocks_per_group(tiles: int, n_blocks: int) -> tuple[int, int]:
    """Return how many blocks of columns one block of threads takes, and the number of groups that makes.

    Few rows would leave a GPU idle. Only shapes decide, so that results are the same on every GPU.
    """
    wanted = min(n_blocks, max(1, -(-_WANTED_BLOCKS // tiles)))
    each = -(-n_blocks // wanted)
    return each, -(-n_blocks // each)


def write_block(device: Device, what: Program, rows: Side, columns: Side, out: Array) -> None:
    """Write K (m, p) to `out`, whose rows are contiguous, for dense rows of few features."""
    m, p = out.shape
    if not (m and p):
        return
    xp = device.xp
    stride = np.int64(_stride(out))
    arguments = [*_side(xp, rows), np.int64(m), *_side(xp, columns), np.int64(p), out, stride, *_caps(what, columns)]
    grid = (-(-m // BLOCK_TILE), min(-(-p // BLOCK_TILE), _MOST_ACROSS))
    _launch(device, "block", what, KernelSizes(out.itemsize, rows.rows.shape[1]), grid, BLOCK_THREADS, arguments)


def apply_profile(device: Device, what: Program, rows: Side, columns: Side, tile: Array) -> None:
    """Turn the inner products in `tile` (m, p), whose rows are contiguous, into the kernel's values."""
    m, p = tile.shape
    if not (m and p):
        return
    stats = [*_stats(rows, tile), *_stats(columns, tile)]
    arguments = [tile, np.int64(m), np.int64(p), np.int64(_stride(tile)), *stats]
    grid = (-(-p // SCORE_THREADS), min(m, _PROFILE_LINES))
    _launch(device, "profile", what, KernelSizes(tile.itemsize), grid, SCORE_THREADS, arguments)


def block_sums(device: Device, left: Array, right: Array, table: Array, *, turned: bool) -> Array:
    """Return ``left @ right``, or ``left.T @ right`` where it is turned, in float64, block by block: two launches.

    Parameters
    ----------
    left : (m, p) array
        Its rows are contiguous.
    right : (p, c) array
        In the dtype of `left`; (m, c) where it is turned. At least one output.
    table : (blocks, 2) int64
        Starts and stops of the blocks of the side that is summed, on the device.
    turned : bool
    """
    n_lines, n_blocks, c = left.shape[1 if turned else 0], table.shape[0], right.shape[1]
    partial = device.xp.empty((n_blocks, n_lines, c), right.dtype)
    if partial.size:
        arguments = [
            left, np.int64(_stride(left)), np.int64(n_lines), table, np.int64(n_blocks),
            device.xp.ascontiguousarray(right), partial,
        ]  # fmt: skip
        grid = (-(-n_lines // SUM_LINES), min(n_blocks, _MOST_ACROSS))
        text = sums_source(right.itemsize, c, turned)
        device.launch(text, "block_sums", grid, SUM_THREADS, arguments)
    return partial.sum(axis=0, dtype=np.float64)


def _launch(
    device: Device,
    name: Name,
    what: Program,
    sizes: KernelSizes,
    grid: tuple[int, int],
    threads: int,
    args: Sequence[Any],
) -> None:
    text = source(name, what.instructions, sizes)
    numbers = constants(what, np.dtype(f"f{sizes.itemsize}"))
    device.launch(text, FUNCTIONS[name], grid, threads, [*args, *numbers])


def _side(xp: Any, side: Side) -> list[Array]:
    rows = xp.ascontiguousarray(side.rows)
    return [rows, *_stats(side, rows)]


def _caps(what: Program, side: Side) -> list[Array]:
    return [side.caps] if what.is_capped and side.caps is not None else []


def _stats(side: Side, instead: Array) -> list[Array]:
    """Return the three statistics; one that the formula does not read gets an arbitrary address."""
    return [instead if stat is None else stat for stat in side.stats]


def _stride(table: Array) -> int:
    return table.strides[0] // table.itemsize
