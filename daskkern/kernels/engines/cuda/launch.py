"""CUDA kernel launches: sizes of grids and order of arguments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.csr import parts_of
from daskkern.backend.namespace import is_sparse
from daskkern.backend.reductions import add_parts
from daskkern.backend.tiles import balanced
from daskkern.kernels.engines.cuda.device import Device
from daskkern.kernels.engines.cuda.source import (
    BLOCK_THREADS,
    BLOCK_TILE,
    FUNCTIONS,
    SCORE_THREADS,
    SPARSE_LINES,
    SPARSE_LISTS,
    SUM_THREADS,
    TURNED_LINES,
    KernelSizes,
    Name,
    constants,
    lines_of_sums,
    profile_sums_source,
    source,
    sums_source,
)
from daskkern.kernels.formula import Program
from daskkern.kernels.points import Side

OUTPUTS_PER_PASS = 16
"""Columns of A whose sums one thread keeps in registers."""
OUTPUTS_OF_SUMS = 12
"""Columns whose sums a thread of `block_sums` keeps in registers; a table is read again for each 12 of them."""
_PROCESSORS = 132  # of the GPU that grids are made for
_WANTED_BLOCKS = 8 * _PROCESSORS  # of threads
_PROFILE_OPERATIONS = 12  # of a formula, about
_MOST_ACROSS = 65535  # blocks of threads along the second side of a grid
_PROFILE_LINES = 1024
_PROFILE_ROWS = 4  # PASSED of profile.cu


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
    grid = score_grid(m, n_blocks, KernelSizes(factor.itemsize, d, min(c, OUTPUTS_PER_PASS)))
    partial = xp.empty((grid.groups, m, c), np.float64)
    for part in balanced(c, OUTPUTS_PER_PASS):
        arguments = [
            *_side(xp, rows), np.int64(m), *_side(xp, columns),
            table, np.int64(n_blocks), np.int64(grid.blocks_per_group),
            factor[:, part], np.int64(c), partial[:, :, part], np.int64(c), *_caps(what, columns),
        ]  # fmt: skip
        sizes = KernelSizes(factor.itemsize, d, part.stop - part.start, grid.rows_per_thread)
        _launch(device, "scores", what, sizes, (grid.tiles, grid.groups), SCORE_THREADS, arguments)
    return partial[0] if grid.groups == 1 else add_parts(partial)  # in one order, whichever group finished first


@dataclass(frozen=True)
class ScoreGrid:
    """How `scores` is divided: `tiles` of rows by `groups` of blocks of columns, each for one block of threads."""

    rows_per_thread: int
    tiles: int
    blocks_per_group: int
    groups: int


@lru_cache(4096)
def score_grid(m: int, n_blocks: int, sizes: KernelSizes) -> ScoreGrid:
    """Return the grid whose busiest processor has the least to do; of equal ones, that of most blocks of threads.

    For one column, a warp issues about ``R (d + c + 12) + L`` instructions for R rows a thread, with L reads of shared
    memory, which the four warps of a block share: 4 L cycles at least. A processor with a single block of one row a
    thread waits half of its time for its own results. A count, not a measurement. Only shapes decide, so that
    results are the same on every GPU.
    """
    d, c = sizes.n_features, sizes.n_outputs
    reads = -(-d // 4) + -(-c // 4) + 1

    def cost(grid: ScoreGrid) -> tuple[int, int]:
        busiest = max(-(-grid.tiles * grid.groups // _PROCESSORS), 2 // grid.rows_per_thread)
        column = max(grid.rows_per_thread * (d + c + _PROFILE_OPERATIONS) + reads, 4 * reads)
        return busiest * grid.blocks_per_group * column, -grid.tiles * grid.groups

    grids = []
    for rows in range(1, sizes.most_rows_per_thread + 1):
        tiles = -(-m // (SCORE_THREADS * rows))
        for wanted in range(1, min(n_blocks, max(1, -(-_WANTED_BLOCKS // tiles))) + 1):
            each = -(-n_blocks // wanted)
            grids.append(ScoreGrid(rows, tiles, each, -(-n_blocks // each)))
    return min(grids, key=cost)


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


def write_sparse(device: Device, what: Program, rows: Side, columns: Side, out: Array) -> None:
    """Write K (m, p) to `out`, whose rows are contiguous, where one side is CSR or both are, in one launch.

    For formulas of inner products, distances, cosines and norms.
    """
    m, p = out.shape
    if not (m and p):
        return
    turned = not is_sparse(columns.rows)  # the rows of X are walked along, those of Z are spread
    listed, spread = (rows, columns) if turned else (columns, rows)
    strides = (_stride(out), 1) if turned else (1, _stride(out))
    both = is_sparse(spread.rows)
    table = parts_of(listed.rows)
    other = parts_of(spread.rows) if both else (device.xp.ascontiguousarray(spread.rows), *table[1:])
    arguments = [
        *table, *_stats(listed, out), np.int64(listed.rows.shape[0]),
        *other, *_stats(spread, out), np.int64(spread.rows.shape[0]),
        np.int64(rows.rows.shape[1]), out, *map(np.int64, strides),
    ]  # fmt: skip
    grid = -(-spread.rows.shape[0] // SPARSE_LINES), min(-(-listed.rows.shape[0] // SPARSE_LISTS), _MOST_ACROSS)
    _launch(device, "sparse", what, KernelSizes(out.itemsize, both_sparse=both), grid, SCORE_THREADS, arguments)


def apply_profile(device: Device, what: Program, rows: Side, columns: Side, tile: Array) -> None:
    """Turn the inner products in `tile` (m, p), whose rows are contiguous, into the kernel's values."""
    m, p = tile.shape
    if not (m and p):
        return
    stats = [*_stats(rows, tile), *_stats(columns, tile)]
    arguments = [tile, np.int64(m), np.int64(p), np.int64(_stride(tile)), *stats]
    grid = (-(-p // SCORE_THREADS), min(-(-m // _PROFILE_ROWS), _PROFILE_LINES))
    _launch(device, "profile", what, KernelSizes(tile.itemsize), grid, SCORE_THREADS, arguments)


def block_sums(device: Device, left: Array, right: Array, table: Array) -> Array:
    """Return ``left @ right`` (m, c) in float64, summed in the working dtype within the blocks: two launches.

    Parameters
    ----------
    left : (m, p) array
        Its rows are contiguous.
    right : (p, c) array
        In the dtype of `left`. At least one output; up to 12 of them read `left` once.
    table : (blocks, 2) int64
        Starts and stops of the blocks of columns, on the device.
    """
    return _sums(device, left, right, table, lambda c: sums_source(right.itemsize, c, False), "block_sums", [])


def profile_sums(
    device: Device, what: Program, rows: Side, columns: Side, inner: Array, table: Array, A: Array
) -> Array:
    """Return ``K A`` (m, c), float64 over blocks of columns, from the inner products of K, which is never written.

    Parameters
    ----------
    inner : (m, p) array
        Its rows are contiguous.
    table : (blocks, 2) int64
        Starts and stops of the blocks, on the device.
    A : (p, c) array
        At least one output.
    """
    formula = [*_stats(rows, inner), *_stats(columns, inner), *constants(what, A.dtype)]

    def text(c: int) -> str:
        return profile_sums_source(what.instructions, A.itemsize, c)

    return _sums(device, inner, A, table, text, "profile_sums", formula)


def _sums(
    device: Device,
    left: Array,
    right: Array,
    table: Array,
    text: Callable[[int], str],
    name: str,
    formula: Sequence[Any],
) -> Array:
    xp, m, n_blocks, c = device.xp, left.shape[0], table.shape[0], right.shape[1]
    if not (m and c and n_blocks):
        return xp.zeros((m, c), np.float64)
    right = xp.ascontiguousarray(right)
    passes = balanced(c, OUTPUTS_OF_SUMS)
    tiles = -(-m // lines_of_sums(right.itemsize))
    each = -(-n_blocks // min(n_blocks, max(1, -(-_WANTED_BLOCKS // tiles))))  # by shapes that are the same everywhere
    groups = -(-n_blocks // each)
    partial = xp.empty((groups, m, c), np.float64)
    for part in passes:
        arguments = [
            left, np.int64(_stride(left)), np.int64(m), table, np.int64(n_blocks), np.int64(each),
            right[:, part], np.int64(c), partial[:, :, part], np.int64(c), *formula,
        ]  # fmt: skip
        device.launch(text(part.stop - part.start), name, (tiles, groups), SUM_THREADS, arguments)
    return partial[0] if groups == 1 else add_parts(partial)


def sums_bytes(m: int, c: int) -> int:
    """Return the most bytes of the partial sums of :func:`block_sums` for `m` rows and `c` outputs."""
    return 2 * (_WANTED_BLOCKS * lines_of_sums(4) + m) * c * 8


def transposed_sums(device: Device, left: Array, right: Array, table: Array, scale: float = 1.0) -> Array:
    """Return ``scale left[b].T @ right[b]`` for each block b of rows, (blocks, p, c) in the working dtype: one launch.

    Parameters
    ----------
    left : (m, p) array
        Its rows are contiguous.
    right : (m, c) array
        In the dtype of `left`. At least one output.
    table : (blocks, 2) int64
        Starts and stops of the blocks of rows, on the device.
    scale : float
    """
    n_lines, n_blocks, c = left.shape[1], table.shape[0], right.shape[1]
    partial = device.xp.empty((n_blocks, n_lines, c), right.dtype)
    if partial.size:
        arguments = [
            left, np.int64(_stride(left)), np.int64(n_lines), table, np.int64(n_blocks),
            device.xp.ascontiguousarray(right), right.dtype.type(scale), partial,
        ]  # fmt: skip
        grid = (-(-n_lines // TURNED_LINES), min(n_blocks, _MOST_ACROSS))
        device.launch(sums_source(right.itemsize, c, True), "block_sums", grid, SUM_THREADS, arguments)
    return partial


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
