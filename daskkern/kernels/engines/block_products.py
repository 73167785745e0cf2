"""Products of a block in memory, such as cached kernel values or the panels of a factor, with few columns.

They compute the same as the functions of those names in :mod:`daskkern.backend.tiles`, with compiled code where it
applies: BLAS copies a block to multiply it, which for ten columns takes longer than the product. The choice must not
depend on a rank's share of the distributed dimension: last bits differ, coefficients of a kernel model cancel, and
models of 1 and 3 ranks would differ by 1e-3.
"""

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend import tiles
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import balanced, for_each, skinny_size, slices, within
from daskkern.kernels.engines import cuda
from daskkern.kernels.engines.dispatch import is_plain
from daskkern.kernels.engines.native import processor
from daskkern.kernels.precision import exact_precision

try:
    from daskkern.kernels.engines.native import tall_skinny as skinny
except ImportError:  # llvmlite is missing
    skinny = None  # type: ignore[assignment]

_LEAST_ROWS = 32  # of a block whose columns are distributed over ranks
_COLUMNS = range(1, 12 + 1)  # more would read a block more than once
_ROWS = 256  # of a unit of work; more for tall blocks, which are cut into 16 units
_UNITS = 16
_STRIP = 64  # rows whose products are summed in the working dtype: they stay in cache
_BLOCK = 1024  # columns likewise, where the caller has no blocks
_WIDTH = 2048  # columns of a unit of a transposed product: narrower ones read the block in short pieces
_PANEL = 32


def multiply(left: Array, right: Array, xp: ModuleType, rows: Sequence[slice] | None = None) -> Array:
    """Return ``left @ right`` in the dtype of `right` for a block `left` (m, p) and `right` (p, c).

    On the host, `rows` are the parts for each call of BLAS where the rows are distributed over ranks: its last bits
    depend on their number.
    """
    if _is_compiled(left, right, xp) and left.shape[1] and not 0 < left.shape[1] % _BLOCK < _PANEL:
        return _times(left, right, slices(left.shape[1], _BLOCK)).astype(right.dtype)
    if _is_plain_on_gpu(left, right, xp):
        return _gemm(left, right, xp, turned=False, scale=1.0)
    if rows is None or xp is not np:
        return tiles.multiply(left, right, xp)
    out = np.empty((left.shape[0], right.shape[1]), right.dtype)

    def one(part: slice) -> None:
        np.matmul(left[part], right, out=out[part])

    for_each(rows, one, skinny_size(left))
    return out


def add_multiple(
    out: Array, scale: float, left: Array, right: Array, xp: ModuleType, rows: Sequence[slice] | None = None
) -> None:
    """Add ``scale left @ right`` to `out` (m, c), in one call on a GPU. `rows` as in :func:`multiply`."""
    if _is_plain_on_gpu(left, right, xp) and out.dtype == right.dtype:
        exact = exact_precision(right.dtype)
        cuda.device_of(xp).multiply(
            left, xp.ascontiguousarray(right), out, turn_left=False, turn_right=False, precision=exact, scale=scale,
            add=True,
        )  # fmt: skip
    else:
        out += scale * multiply(left, right, xp, rows)


def multiply_blocks(left: Array, right: Array, blocks: Sequence[slice], xp: ModuleType) -> Array:
    """Return ``left @ right`` in float64, summed over column `blocks`. See :func:`daskkern.backend.tiles`."""
    if _is_plain_on_gpu(left, right, xp):
        return cuda.sum_over_blocks(cuda.device_of(xp), left, right, blocks, turned=False)
    if left.shape[0] < _LEAST_ROWS or not _is_compiled(left, right, xp):
        return tiles.multiply_blocks(left, right, blocks, xp)
    total = np.zeros((left.shape[0], right.shape[1]))
    for compiled, run in _runs(blocks):  # each block is treated alike, whatever the rank's other blocks
        columns = slice(run[0].start, run[-1].stop)
        work = _times if compiled else _in_tiles
        total += work(left[:, columns], right[columns], [_from(block, columns.start) for block in run])
    return total


def _in_tiles(left: HostArray, right: HostArray, blocks: Sequence[slice]) -> HostArray:
    return tiles.multiply_blocks(left, right, blocks, np)


def _from(block: slice, start: int) -> slice:
    return slice(block.start - start, block.stop - start)


def _runs(blocks: Sequence[slice]) -> list[tuple[bool, list[slice]]]:
    """Return runs of adjacent blocks that all fill a vector register, or all do not."""
    found: list[tuple[bool, list[slice]]] = []
    for block in blocks:
        wide = block.stop - block.start >= _PANEL
        if found and found[-1][0] == wide and found[-1][1][-1].stop == block.start:
            found[-1][1].append(block)
        else:
            found.append((wide, [block]))
    return found


def multiply_transposed_blocks(left: Array, right: Array, blocks: Sequence[slice], xp: ModuleType) -> Array:
    """Return ``left.T @ right`` in float64 for `left` (p, r) and `right` (p, c), summed over blocks of their rows."""
    if _is_plain_on_gpu(left, right, xp):
        return cuda.sum_over_blocks(cuda.device_of(xp), left, right, blocks, turned=True)
    if not left.shape[1] or not _is_compiled(left, right, xp):
        return tiles.multiply_transposed_blocks(left, right, blocks, xp)
    return _pulled(left, right, [rows for block in blocks for rows in within(block, _STRIP)])


def multiply_transposed(
    left: Array, right: Array, xp: ModuleType, columns: Sequence[slice] | None = None, scale: float = 1.0
) -> Array:
    """Return ``scale left.T @ right`` in the dtype of `right` for a block `left` (m, p) and `right` (m, c).

    `columns` are the parts for each call of BLAS, as `rows` in :func:`multiply`.
    """
    if _is_plain_on_gpu(left, right, xp):
        if left.shape[0] and 0 < right.shape[1] <= cuda.MOST_OUTPUTS:
            return cuda.transposed_product(cuda.device_of(xp), left, right, scale)
        return _gemm(left, right, xp, turned=True, scale=scale)
    made = _multiply_transposed(left, right, xp, columns)
    return made if scale == 1.0 else made * scale


def _multiply_transposed(left: Array, right: Array, xp: ModuleType, columns: Sequence[slice] | None) -> Array:
    if not left.shape[1]:
        return xp.zeros((0, right.shape[1]), right.dtype)
    if left.shape[0] < _LEAST_ROWS or not _is_compiled(left, right, xp):
        if not columns or xp is not np:
            return tiles.multiply_transposed(left, right, xp)
        return np.concatenate([tiles.multiply_transposed(left[:, part], right, xp) for part in columns])
    return _pulled(left, right, slices(left.shape[0], _STRIP)).astype(right.dtype)


def _is_plain_on_gpu(left: Array, right: Array, xp: ModuleType) -> bool:
    """Return whether cuBLAS reads both operands in place on a GPU."""
    if xp is np or is_plain() or is_sparse(left):
        return False
    same = left.dtype == right.dtype and left.dtype in (np.float32, np.float64)
    return bool(same and (left.strides[1] == left.itemsize or not left.size))


def _gemm(left: Array, right: Array, xp: ModuleType, *, turned: bool, scale: float) -> Array:
    """Return ``scale left @ right``, or of the transpose of `left`, by one call of cuBLAS."""
    out = xp.empty((left.shape[1 if turned else 0], right.shape[1]), right.dtype)
    cuda.device_of(xp).multiply(
        left, xp.ascontiguousarray(right), out, turn_left=turned, turn_right=False,
        precision=exact_precision(right.dtype), scale=scale,
    )  # fmt: skip
    return out


def block_table(xp: ModuleType, blocks: Sequence[slice]) -> Array:
    """Return starts and stops of blocks, (blocks, 2) int64, on the GPU."""
    return cuda.block_table(cuda.device_of(xp), blocks)


def _pulled(left: HostArray, right: HostArray, strips: Sequence[slice]) -> HostArray:
    """Return ``left.T @ right`` (p, c) in float64: each of the `strips` of rows in the working dtype."""
    p, c = left.shape[1], right.shape[1]
    right = np.ascontiguousarray(right)
    out = np.zeros((c, -(-p // _PANEL) * _PANEL))

    def one(tile: slice) -> None:
        skinny.pull(left[:, tile], right, out[:, tile.start :], strips)

    width = -(-p // max(1, min(_UNITS, p // _WIDTH)))
    for_each(slices(p, -(-width // _PANEL) * _PANEL), one, skinny_size(left))
    return np.ascontiguousarray(out[:, :p].T)


def _times(left: HostArray, right: HostArray, blocks: Sequence[slice]) -> HostArray:
    m, c = left.shape[0], right.shape[1]
    lines = np.ascontiguousarray(right.T)
    edges = _edges(tuple(block.stop for block in blocks))
    out = np.zeros((m, c))

    def one(tile: slice) -> None:
        skinny.times(left[tile], lines, edges, out[tile])

    for_each(balanced(m, max(_ROWS, -(-m // _UNITS))), one, skinny_size(left))
    return out


@lru_cache(256)
def _edges(stops: tuple[int, ...]) -> "skinny.Edges":
    return skinny.Edges(np.array([0, *stops], np.int64))


def _is_compiled(left: Array, right: Array, xp: ModuleType) -> bool:
    if xp is not np or is_plain() or right.shape[1] not in _COLUMNS:
        return False
    plain = left.dtype == right.dtype and left.dtype in (np.float32, np.float64) and left.dtype.isnative
    return bool(
        plain and left.strides[1] == left.itemsize and left.strides[0] > 0 and skinny is not None and processor()
    )
