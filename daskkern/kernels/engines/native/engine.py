"""Compiled kernel products, split into units of work for a thread pool, and the reduction of their results."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.tiles import SMALL, balanced, for_each, within
from daskkern.kernels.engines.native.chunks import WIDE, chunk_panels
from daskkern.kernels.engines.native.invoke import (
    LEAST_ROWS,
    MOST_ROWS,
    SPARSE_ROWS,
    LeftRows,
    run_unit,
    shape_for,
    tile_rows,
)
from daskkern.kernels.engines.native.packing import CSRParts, Packed, aligned, pack
from daskkern.kernels.formula import Program

MOST_OUTPUTS = 32
"""Columns of A or G up to which a product is fused with the block; wider ones go to BLAS, tile by tile."""
_UNITS = 8  # units of work at least, where there is enough work
_UNIT_ROWS = 480
_EVEN = 4  # units of rows come in fours: two or four threads finish together
_STRIPE_BYTES = 4 << 20
_KEPT_ROWS = 240  # of a tile of wide rows that is used twice: its kernel values stay in cache
_MIRROR = 64  # features from which half of a symmetric block is computed and the other half copied
_TOGETHER = 4  # blocks whose tiles a symmetric product holds at once


def prepare(
    rows: Any,
    stats: tuple[HostArray | None, HostArray | None, HostArray | None],
    blocks: Sequence[slice],
    caps: HostArray | None = None,
) -> Packed:
    """Return points (p, d) as the engine reads them: dense ones are copied into panels. See :func:`packing.pack`."""
    return pack(rows, stats, blocks, shape_for(rows.dtype.itemsize).panel, caps)


def block(what: Program, left: LeftRows, right: Packed, part: slice, k: int, out: HostArray) -> None:
    """Write the kernel's values for the rows `part` and the columns of block `k` to `out`, without threads."""
    start = int(right.blocks[k, 2])  # compiled code adds it to the address, so it is subtracted below
    lines = out if out.strides[1] == out.itemsize else np.empty(out.shape, out.dtype)
    made = {"out": lines.ctypes.data - start * out.itemsize, "out_stride": lines.strides[0] // out.itemsize}
    run_unit("block", what, left, right, part, range(k, k + 1), 1, made)
    if lines is not out:
        out[...] = lines


def block_all(what: Program, left: LeftRows, right: Packed, out: HostArray) -> None:
    """Write the whole block (m, p) to `out`, whose rows are contiguous."""

    def unit(work: tuple[slice, range]) -> None:
        part, blocks = work
        made = {"out": out[part].ctypes.data, "out_stride": out.strides[0] // out.itemsize}
        run_unit("block", what, left, right, part, blocks, 1, made)

    for_each(list(itertools.product(*_units(left, right))), unit, _size(left, right))


def matvec(what: Program, left: LeftRows, right: Packed, A: HostArray, head: HostArray | None) -> HostArray:
    """Return ``K A`` (m, c) in float64; `head` receives the first columns of K."""
    c = A.shape[1]
    coefficients = _by_slot(right, A)
    parts, groups = _units(left, right)
    partial = np.zeros((len(groups), left.shape[0], c))

    def unit(work: tuple[slice, tuple[int, range]]) -> None:
        part, (number, blocks) = work
        made = _words(partial[number, part], c, coefficients)
        if head is not None:
            made |= {
                "head": head[part].ctypes.data,
                "head_stride": head.strides[0] // head.itemsize,
                "n_head": head.shape[1],
            }
        run_unit("scores", what, left, right, part, blocks, c, made)

    for_each(list(itertools.product(parts, enumerate(groups))), unit, _size(left, right))
    return partial[0] if len(groups) == 1 else partial.sum(axis=0)  # in the order of the groups, for any threads


def _size(left: LeftRows, right: Packed) -> float:
    """Return the work of a block for the tile pool: inner products, and a function of each worth 32 multiply-adds."""
    return float(left.shape[0]) * right.slots * (left.shape[1] + 32)


def rmatvec(what: Program, left: LeftRows, right: Packed, G: HostArray) -> HostArray:
    """Return ``K^T G`` (p, c) in the dtype of `G`, summed over tiles of rows in float64."""
    c = G.shape[1]
    G = np.ascontiguousarray(G)
    out = np.zeros((c, max(right.slots, 1)))
    # A unit has all rows of a block of columns: no two units write to the same sums.

    def unit(blocks: range) -> None:
        run_unit("pull", what, left, right, slice(0, left.shape[0]), blocks, c, _words(out, out.shape[1], G))

    for_each([range(k, k + 1) for k in range(len(right.blocks))], unit, _size(left, right))
    return _by_column(right, out).astype(G.dtype)


def double_product(
    what: Program, left: LeftRows, right: Packed, V: HostArray, between: Callable[[HostArray, slice], HostArray] | None
) -> HostArray:
    """Return ``K^T op(K V)`` (p, c) in float64: stripes of K are computed once, and reused while in cache."""
    m, c = left.shape[0], V.shape[1]
    height = stripe_rows(left.shape[1], right, V.dtype.itemsize)
    stripes = balanced(m, height)
    groups = [range(part.start, part.stop) for part in balanced(len(stripes), max(1, -(-len(stripes) // _UNITS)))]
    partial = np.zeros((len(groups), c, max(right.slots, 1)))
    coefficients = _by_slot(right, V)
    every = range(len(right.blocks))

    def unit(group: int) -> None:
        for at in groups[group]:
            rows = stripes[at]
            scores = np.zeros((rows.stop - rows.start, c))
            run_unit("keep", what, left, right, rows, every, c, _words(scores, c, coefficients), height)
            g = np.ascontiguousarray(scores if between is None else between(scores, rows), V.dtype)
            pulled = _words(partial[group], partial.shape[2], g)
            run_unit("stored", what, left, right, rows, every, c, pulled, height)

    for_each(range(len(groups)), unit)
    return _by_column(right, partial.sum(axis=0))


def symmetric_matvec(what: Program, left: LeftRows, right: Packed, A: HostArray) -> HostArray:
    """Return ``K(X, X) A`` (n, c) in float64, for points that are the rows themselves.

    Each tile above the diagonal is computed once and used twice: K_IJ A_J for its rows, K_IJ^T A_I for its columns.
    """
    c, n_blocks = A.shape[1], len(right.blocks)
    A = np.ascontiguousarray(A)
    coefficients = _by_slot(right, A)
    tile = min(_KEPT_ROWS, tile_rows(left.shape[1], shape_for(A.dtype.itemsize), sparse=False))
    out = np.zeros((left.shape[0], c))
    groups = [range(part.start, part.stop) for part in balanced(n_blocks, max(1, -(-n_blocks // (2 * _UNITS))))]
    partial = np.zeros((len(groups), c, max(right.slots, 1)))

    def unit(group: int) -> None:
        for block in groups[group]:
            start, width = (int(word) for word in right.blocks[block, 2:4])
            for rows in within(slice(start, start + width), tile):
                scores = _words(out[rows], c, coefficients)
                run_unit("scores", what, left, right, rows, range(block, block + 1), c, scores)
                pulled = _words(partial[group], partial.shape[2], A[rows])
                for first in range(block + 1, n_blocks, _TOGETHER):
                    beyond = range(first, min(first + _TOGETHER, n_blocks))
                    run_unit("keep", what, left, right, rows, beyond, c, scores, tile)
                    run_unit("stored", what, left, right, rows, beyond, c, pulled, tile)

    for_each(range(len(groups)), unit)
    return out + _by_column(right, partial.sum(axis=0))


def symmetric_block(what: Program, left: LeftRows, right: Packed, out: HostArray) -> None:
    """Write ``K(X, X)`` (n, n): the upper half is computed, the lower one copied."""
    parts, n_blocks = balanced(left.shape[0], _UNIT_ROWS), len(right.blocks)

    def upper(part: slice) -> None:
        first = int(np.searchsorted(right.blocks[:, 2], part.start, "right")) - 1
        made = {"out": out[part].ctypes.data, "out_stride": out.strides[0] // out.itemsize}
        run_unit("block", what, left, right, part, range(first, n_blocks), 1, made)

    def lower(part: slice) -> None:
        for rows in parts:
            if rows.start > part.start:
                out[rows, part] = out[part, rows].T
        square = out[part, part]
        below = np.tril_indices(square.shape[0], -1)
        square[below] = square.T[below]

    for_each(parts[::2] + parts[1::2], upper)
    for_each(parts, lower)


def is_mirrored(left: LeftRows) -> bool:
    """Return whether a symmetric product is worth its second use of each tile."""
    return left.shape[1] >= _MIRROR


def stripe_rows(n_features: int, right: Packed, itemsize: int) -> int:
    """Return the rows of K that :func:`double_product` holds a thread: those in cache, or a tile of wide rows."""
    shape = shape_for(itemsize)
    line = max(right.chunks, 1) * chunk_panels(sparse_columns=right.csr is not None) * shape.panel * itemsize
    least = min(_KEPT_ROWS, tile_rows(n_features, shape, sparse=False)) if n_features >= WIDE else shape.rows
    return max(least, min(_UNIT_ROWS, _STRIPE_BYTES // line) // shape.rows * shape.rows)


def _words(out: HostArray, stride: int, factor: HostArray) -> dict[str, int]:
    return {
        "out": out.ctypes.data,
        "out_stride": stride,
        "right": factor.ctypes.data,
        "right_stride": factor.strides[0] // factor.itemsize,
    }


def _by_column(right: Packed, by_slot: HostArray) -> HostArray:
    """Return (c, slots) as (p, c), in float64."""
    result = np.empty((sum(columns.stop - columns.start for columns, _ in right.runs), by_slot.shape[0]))
    for columns, slots in right.runs:
        result[columns] = by_slot[:, slots].T
    return result


def _by_slot(right: Packed, A: HostArray) -> HostArray:
    """Return A transposed and padded, (c, slots), from a cache line on."""
    out = aligned((A.shape[1], max(right.slots, 1)), A.dtype)
    out[...] = 0
    for columns, slots in right.runs:
        out[:, slots] = A[columns].T
    return out


def _units(left: LeftRows, right: Packed) -> tuple[list[slice], list[range]]:
    """Cut the rows, and the blocks where there are few rows and much to do.

    Only the operands decide, so that results do not vary.
    """
    if isinstance(left.rows, CSRParts) or right.csr is not None:
        most = SPARSE_ROWS
    else:
        most = MOST_ROWS if left.shape[1] >= WIDE else _UNIT_ROWS
    parts = whole_tiles(left.shape[0], most)
    count, worth = len(right.blocks), int(2 * _size(left, right) / SMALL)
    wanted = min(count, max(1, min(worth, -(-_UNITS // max(len(parts), 1)))))
    groups = [range(count * k // wanted, count * (k + 1) // wanted) for k in range(wanted)] if count else []
    return parts, groups


def whole_tiles(m: int, most: int) -> list[slice]:
    """Cut m rows into nearly equal parts of at most `most`, all but the last of whole tiles, and a multiple of four."""
    if not m:
        return []
    tiles = -(-m // LEAST_ROWS)
    count = -(-tiles // max(1, most // LEAST_ROWS))
    if count > _EVEN:
        count = min(tiles, -(-count // _EVEN) * _EVEN)
    edges = [min(m, tiles * k // count * LEAST_ROWS) for k in range(count + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]
