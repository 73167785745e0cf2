"""Calls of the compiled products: operands as addresses, work in units for the tile pool."""

import ctypes
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.tiles import balanced, for_each
from daskkern.kernels.formula import Program
from daskkern.kernels.native.call import FIELDS, Kind
from daskkern.kernels.native.packing import CSRParts, Packed, aligned, pack
from daskkern.kernels.native.shape import CHUNK, Shape, shape_of

try:
    from daskkern.kernels.native import compiler
except ModuleNotFoundError as error:  # llvmlite is wanted for training, but a saved model is served without it
    if error.name is None or not error.name.startswith("llvmlite"):
        raise
    _available = False
else:
    _available = True

MOST_OUTPUTS = 32
"""Columns of A or G up to which a product is fused with the block; wider ones go to BLAS, tile by tile."""
_UNITS = 16  # units of work at least, where there is enough work
_UNIT_ROWS = 480
_LEAST_ROWS, _MOST_ROWS, _SPARSE_ROWS = 48, 240, 960
_PACKED_BYTES = 1 << 20
_KEPT_BYTES = 4 << 20  # workspaces up to this size stay with their thread
_local = threading.local()
_Words = ctypes.c_int64 * len(FIELDS)


@dataclass(frozen=True)
class Rows:
    """The left side: dense rows with a stride, or CSR parts, and their statistics, each (m,) or None."""

    rows: HostArray | CSRParts
    squared: HostArray | None
    norm: HostArray | None
    inverse: HostArray | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.rows.shape[0], self.rows.shape[1]


def is_supported(what: Program, itemsize: int) -> bool:
    """Return whether products with this formula can be compiled here."""
    return _available and compiler.is_supported(what, itemsize)


def shape_for(itemsize: int) -> Shape:
    """Return the register tile of this processor."""
    return shape_of(itemsize, compiler.register_bytes())


def prepare(
    rows: Any, stats: tuple[HostArray | None, HostArray | None, HostArray | None], blocks: Sequence[slice]
) -> Packed:
    """Return points (p, d) as the engine reads them: dense ones are copied into panels. See :func:`packing.pack`."""
    return pack(rows, stats, blocks, shape_for(rows.dtype.itemsize).panel)


def block(what: Program, left: Rows, right: Packed, part: slice, k: int, out: HostArray) -> None:
    """Write the kernel's values for the rows `part` and the columns of block `k` to `out`, without threads."""
    start = int(right.blocks[k, 2])
    made = {"out": out.ctypes.data - start * out.itemsize, "out_stride": out.strides[0] // out.itemsize}
    _call("block", what, left, right, part, range(k, k + 1), 1, made)


def block_all(what: Program, left: Rows, right: Packed, out: HostArray) -> None:
    """Write the whole block (m, p) to `out`, whose rows are contiguous."""

    def unit(work: tuple[slice, range]) -> None:
        part, blocks = work
        made = {"out": out[part].ctypes.data, "out_stride": out.strides[0] // out.itemsize}
        _call("block", what, left, right, part, blocks, 1, made)

    for_each(list(itertools.product(*_units(left, right))), unit)


def matvec(what: Program, left: Rows, right: Packed, A: HostArray, head: HostArray | None) -> HostArray:
    """Return ``K A`` (m, c) in float64; `head` receives the first columns of K."""
    c = A.shape[1]
    coefficients = _by_slot(right, A)
    parts, groups = _units(left, right)
    partial = np.zeros((len(groups), left.shape[0], c))

    def unit(work: tuple[slice, tuple[int, range]]) -> None:
        part, (number, blocks) = work
        made = {
            "out": partial[number, part].ctypes.data,
            "out_stride": c,
            "right": coefficients.ctypes.data,
            "right_stride": coefficients.shape[1],
        }
        if head is not None:
            made |= {
                "head": head[part].ctypes.data,
                "head_stride": head.strides[0] // head.itemsize,
                "n_head": head.shape[1],
            }
        _call("scores", what, left, right, part, blocks, c, made)

    for_each(list(itertools.product(parts, enumerate(groups))), unit)
    return partial[0] if len(groups) == 1 else partial.sum(axis=0)  # in the order of the groups, whoever computed them


def rmatvec(what: Program, left: Rows, right: Packed, G: HostArray) -> HostArray:
    """Return ``K^T G`` (p, c) in the dtype of `G`, summed over tiles of rows in float64."""
    c = G.shape[1]
    G = np.ascontiguousarray(G)
    out = np.zeros((c, max(right.slots, 1)))

    def unit(blocks: range) -> None:
        made = {
            "out": out.ctypes.data,
            "out_stride": out.shape[1],
            "right": G.ctypes.data,
            "right_stride": c,
        }
        _call("pull", what, left, right, slice(0, left.shape[0]), blocks, c, made)

    for_each([range(k, k + 1) for k in range(len(right.blocks))], unit)
    result = np.empty((sum(columns.stop - columns.start for columns, _ in right.runs), c), G.dtype)
    for columns, slots in right.runs:
        result[columns] = out[:, slots].T
    return result


def workspace_bytes(n_features: int, n_outputs: int, itemsize: int) -> int:
    """Return the bytes of one thread's buffers for dense operands."""
    shape = shape_for(itemsize)
    rows = _tile_rows(n_features, n_outputs, shape, sparse=False)
    return (rows + shape.rows) * itemsize * (n_features + CHUNK * shape.panel + n_outputs * shape.lanes)


def _by_slot(right: Packed, A: HostArray) -> HostArray:
    """Return A transposed and padded, (c, slots)."""
    out = np.zeros((A.shape[1], max(right.slots, 1)), A.dtype)
    for columns, slots in right.runs:
        out[:, slots] = A[columns].T
    return out


def _units(left: Rows, right: Packed) -> tuple[list[slice], list[range]]:
    """Cut the rows, and the blocks where there are few rows. Operands alone decide, so that results do not vary."""
    parts = balanced(left.shape[0], _UNIT_ROWS)
    wanted = min(len(right.blocks), max(1, -(-_UNITS // max(len(parts), 1))))
    count = len(right.blocks)
    groups = [range(count * k // wanted, count * (k + 1) // wanted) for k in range(wanted)] if count else []
    return parts, groups


def _tile_rows(n_features: int, n_outputs: int, shape: Shape, *, sparse: bool) -> int:
    """Return rows of a tile: few features want the sums of a tile in the first-level cache, many its packed rows."""
    if sparse:
        return _SPARSE_ROWS
    wanted = _MOST_ROWS if n_features >= 256 else _LEAST_ROWS
    held = _PACKED_BYTES // (max(n_features, 1) * shape.itemsize)
    return max(shape.rows, min(wanted, held) // shape.rows * shape.rows)


def _call(
    makes: str,
    what: Program,
    left: Rows,
    right: Packed,
    part: slice,
    blocks: Sequence[int],
    c: int,
    made: dict[str, int],
) -> None:
    if part.stop <= part.start or not blocks:
        return
    program = compiler.lowered(what)
    sparse_rows, sparse_columns = isinstance(left.rows, CSRParts), right.csr is not None
    values = left.rows.values if isinstance(left.rows, CSRParts) else left.rows
    shape = shape_for(values.itemsize)
    d = left.shape[1]
    tile = _tile_rows(d, c, shape, sparse=sparse_rows or sparse_columns)
    tile = min(tile, -(-(part.stop - part.start) // shape.rows) * shape.rows)
    constants = np.array(program.constants or (0.0,), values.dtype)
    words: dict[str, int] = {
        "n_rows": part.stop - part.start,
        "n_features": d,
        "blocks": right.blocks.ctypes.data,
        "first_block": blocks[0],
        "last_block": blocks[-1] + 1,
        "constants": constants.ctypes.data,
        "tile_rows": tile,
        "n_outputs": c,
        **_left_words(left, part),
        **_right_words(right),
        **made,
    }
    width = CHUNK * shape.panel
    buffers = {
        "packed": 0 if sparse_rows else tile * d,
        "buffer": tile * width,
        "lanes": tile * c * shape.lanes if makes == "scores" else 0,
        "spread": _spread_size(right, d, width, sparse_rows),
    }
    held = {name: _buffer(name, size, values.dtype) for name, size in buffers.items() if size}
    words |= {name: array.ctypes.data for name, array in held.items()}
    if sparse_rows and sparse_columns:
        slots = np.zeros(d + 3, np.int64)
        words["slots"] = slots.ctypes.data
    function = compiler.compiled(program, shape, Kind(makes, sparse_rows, sparse_columns))
    packed = _Words(*(words.get(name, 0) for name in FIELDS))
    function(ctypes.addressof(packed))


def _left_words(left: Rows, part: slice) -> dict[str, int]:
    stats = {
        f"x_{name}": stat[part].ctypes.data
        for name, stat in (("squared", left.squared), ("norm", left.norm), ("inverse", left.inverse))
        if stat is not None
    }
    if isinstance(left.rows, CSRParts):
        starts = left.rows.starts[part.start : part.stop + 1]
        return {
            "x": left.rows.values.ctypes.data,
            "x_starts": starts.ctypes.data,
            "x_columns": left.rows.columns.ctypes.data,
            **stats,
        }
    return {"x": left.rows[part].ctypes.data, "x_stride": left.rows.strides[0] // left.rows.itemsize, **stats}


def _right_words(right: Packed) -> dict[str, int]:
    words = {
        f"z_{name}": stat.ctypes.data
        for name, stat in (("squared", right.squared), ("norm", right.norm), ("inverse", right.inverse))
        if stat is not None
    }
    if right.csr is not None:
        words |= {
            "z_starts": right.csr.starts.ctypes.data,
            "z_columns": right.csr.columns.ctypes.data,
            "z_values": right.csr.values.ctypes.data,
            "z_rows": right.csr.shape[0],
        }
    elif right.panels is not None:
        words["z"] = right.panels.ctypes.data
    return words


def _spread_size(right: Packed, d: int, width: int, sparse_rows: bool) -> int:
    """Return elements of the buffer that a chunk of CSR columns is spread over."""
    if right.csr is None:
        return 0
    if not sparse_rows:
        return d * width
    starts = right.csr.starts
    ends = np.minimum(np.arange(width, len(starts) + width), len(starts) - 1)
    most = int((starts[ends] - starts).max(initial=0))
    return (min(most, d) + 1) * width


def _buffer(name: str, size: int, dtype: np.dtype) -> HostArray:
    """Return a workspace of the calling thread; small ones are kept, because fresh memory is slow to touch."""
    if size * dtype.itemsize > _KEPT_BYTES:
        return aligned((size,), dtype)
    kept: dict[tuple[str, str], HostArray] = _local.__dict__.setdefault("buffers", {})
    key = (name, dtype.char)
    if key not in kept or kept[key].size < size:
        kept[key] = aligned((size,), dtype)
    return kept[key]
