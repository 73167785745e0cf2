"""One unit of a compiled product: operands as addresses, the calling thread's buffers, and the call."""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.machine_code.shape import Shape
from daskkern.kernels.engines.native.call import FIELDS, CallKind
from daskkern.kernels.engines.native.chunks import CHUNK, WIDE, chunk_panels
from daskkern.kernels.engines.native.packing import CSRParts, Packed, aligned
from daskkern.kernels.formula import Program

try:
    from daskkern.backend.machine_code import compiler as machine
    from daskkern.kernels.engines.native import compiler
except ModuleNotFoundError as error:  # training needs llvmlite, but a saved model predicts without it
    if error.name is None or not error.name.startswith("llvmlite"):
        raise
    _available = False
else:
    _available = True

SPARSE_ROWS = 2016
"""Rows of a tile with a sparse side: they share a spread chunk, or a panel in cache."""
MOST_ROWS = 384
"""Rows of a dense tile."""
LEAST_ROWS = 24
"""Rows of a dense tile of few features."""
_PACKED_BYTES = 16 << 20
_CACHED_BYTES = 16 << 20  # workspaces up to this size are cached per thread
_local = threading.local()
_Call = ctypes.c_int64 * len(FIELDS)
_PLACES = {name: place for place, name in enumerate(FIELDS)}


@dataclass(frozen=True)
class LeftRows:
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


def processor() -> str:
    """Return the vector instructions that compiled products use, or "" where nothing can be compiled."""
    width = machine.register_bytes() if _available else 0
    return {64: "AVX-512", 32: "AVX2", 16: "NEON"}.get(width, "")


def shape_for(itemsize: int) -> Shape:
    """Return the register tile of this processor."""
    return machine.shape_for(itemsize)


def workspace_bytes(n_features: int, n_outputs: int, itemsize: int) -> int:
    """Return the bytes of one thread's buffers for dense operands."""
    shape = shape_for(itemsize)
    rows = tile_rows(n_features, shape, sparse=False)
    return (rows + shape.rows) * itemsize * (n_features + CHUNK * shape.panel + n_outputs * shape.lanes)


def tile_rows(n_features: int, shape: Shape, *, sparse: bool) -> int:
    """Return rows of a tile: with few features its sums fit in the first-level cache, with many its packed rows."""
    if sparse:
        return SPARSE_ROWS
    wanted = MOST_ROWS if n_features >= WIDE else LEAST_ROWS
    held = _PACKED_BYTES // (max(n_features, 1) * shape.itemsize)
    return max(shape.rows, min(wanted, held) // shape.rows * shape.rows)


def run_unit(
    makes: str,
    what: Program,
    left: LeftRows,
    right: Packed,
    part: slice,
    blocks: Sequence[int],
    c: int,
    made: dict[str, int],
    stripe: int = 0,
) -> None:
    """Run one unit. With `stripe` rows at most, the tile stays in the chunks' buffers ("keep", then "stored")."""
    if part.stop <= part.start or not blocks:
        return
    program = compiler.lowered(what)
    sparse_rows, sparse_columns = isinstance(left.rows, CSRParts), right.csr is not None
    values = left.rows.values if isinstance(left.rows, CSRParts) else left.rows
    shape = shape_for(values.itemsize)
    d = left.shape[1]
    tile = tile_rows(d, shape, sparse=sparse_rows or sparse_columns)
    tile = min(tile, -(-(part.stop - part.start) // shape.rows) * shape.rows)
    chunks = right.chunks_of(blocks) if stripe else 1
    if stripe:
        tile = stripe
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
    width = chunk_panels(sparse_columns=sparse_columns) * shape.panel
    buffers = {
        "packed": 0 if sparse_rows else tile * d,
        "buffer": tile * width * chunks,
        "lanes": tile * c * shape.lanes if makes in ("scores", "keep") else 0,
        "spread": _spread_size(right, d, width, sparse_rows),
    }
    held = {name: _buffer(name, size, values.dtype) for name, size in buffers.items() if size}
    words |= {name: array.ctypes.data for name, array in held.items()}
    if stripe:
        words["buffer"] -= int(right.blocks[blocks[0], 4]) * tile * width * values.itemsize
    if sparse_rows and sparse_columns:
        slots = np.zeros(d + 3, np.int64)
        words["slots"] = slots.ctypes.data
    function = compiler.compiled(program, shape, CallKind(makes, sparse_rows, sparse_columns))
    call = _Call()
    for name, word in words.items():
        call[_PLACES[name]] = word
    function(ctypes.addressof(call))


def _left_words(left: LeftRows, part: slice) -> dict[str, int]:
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
    if right.caps is not None:
        words["caps"] = right.caps.ctypes.data
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
    """Return a workspace of the calling thread; small ones are cached, because first access to memory is slow."""
    if size * dtype.itemsize > _CACHED_BYTES:
        return aligned((size,), dtype)
    kept: dict[tuple[str, str], HostArray] = _local.__dict__.setdefault("buffers", {})
    key = (name, dtype.char)
    if key not in kept or kept[key].size < size:
        kept[key] = aligned((size,), dtype)
    return kept[key]
