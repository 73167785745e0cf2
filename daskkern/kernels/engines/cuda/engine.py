"""Kernel products on a GPU: one fused kernel for few features, else a matrix product and a fused formula.

Workspaces are bounded: a tile of the block holds at most :data:`WORKSPACE_BYTES`. Sums are taken in the working
dtype within a block of columns (for the transposed product: within 512 rows) and in float64 over the blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import balanced, slices
from daskkern.kernels.engines.cuda import launch
from daskkern.kernels.engines.cuda.block_by_block import MOST_OUTPUTS, SUM_ROWS, block_table, sum_over_blocks
from daskkern.kernels.engines.cuda.device import Device
from daskkern.kernels.engines.cuda.float32_products import float32_way, multiply_float32, rows_at_once
from daskkern.kernels.engines.cuda.tensor_operands import FEW_FEATURES
from daskkern.kernels.formula import Program
from daskkern.kernels.points import Side
from daskkern.kernels.precision import Precision

WORKSPACE_BYTES = 256 << 20
"""Bytes of the largest tile of the block that is held. Not measured on a GPU."""
TABLE_BYTES = 64 << 20
"""Bytes of sparse rows that are made dense at once."""


@dataclass(frozen=True, eq=False)
class Operands:
    """The two sides of a block on a device.

    Attributes
    ----------
    what : Program
    left, right : Side
        Rows (m, d) and points (p, d).
    blocks : sequence of slices
        Pieces of the points.
    table : (blocks, 2) int64
        The same on the device. See :func:`block_table`.
    precision : str
        Of the inner products; rows are rounded to it already.
    """

    device: Device
    what: Program
    left: Side
    right: Side
    blocks: Sequence[slice]
    table: Array
    precision: Precision

    @property
    def is_narrow(self) -> bool:
        """Whether the rows are dense and short enough for the fused kernels."""
        return not self.is_sparse and self.left.rows.shape[1] <= FEW_FEATURES

    @property
    def is_sparse(self) -> bool:
        """Whether one side is CSR, or both are."""
        return is_sparse(self.left.rows) or is_sparse(self.right.rows)

    @property
    def is_one_product(self) -> bool:
        """Whether one call writes the values where they belong, without a copy of its operands on the way."""
        if self.is_sparse:
            return self.what.difference is None
        in_terms = self.precision == "float32" and float32_way() == "tf32x3"
        return not (in_terms or self.precision == "float16")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and points."""
        return self.left.rows.shape[0], self.right.rows.shape[0]


def block(of: Operands, out: Array) -> None:
    """Write the whole block to `out` (m, p)."""
    m, p = of.shape
    everything = slice(0, p)
    if not (m and p):
        return
    if out.strides[1] != out.itemsize:
        fill(of, slice(0, m), everything, out)
    elif of.is_narrow or of.is_one_product:
        _fill(of, slice(0, m), everything, out)
    else:  # as many rows as possible: for each part of them, all points are rounded, or made into terms, again
        for rows in balanced(m, rows_at_once(of.left.rows.shape[1])):
            _fill(of, rows, everything, out[rows])


def fill(of: Operands, rows: slice, cols: slice, out: Array) -> None:
    """Write the kernel's values for some rows and columns to `out`, of any strides."""
    if out.strides[1] == out.itemsize or not out.size:
        _fill(of, rows, cols, out)
        return
    made = of.device.xp.empty(out.shape, out.dtype)
    _fill(of, rows, cols, made)
    out[...] = made


def matvec(of: Operands, A: Array, head: Array | None) -> Array:
    """Return ``K A`` (m, c), float64; `head` receives the first columns of K."""
    if not (of.is_narrow and A.shape[1] <= MOST_OUTPUTS):
        return _tiled_matvec(of, A, head)
    if head is not None:
        first = slice(0, head.shape[1])
        block(_among(of, first), head)
    return launch.scores(of.device, of.what, of.left, of.right, of.table, A)


def rmatvec(of: Operands, G: Array) -> Array:
    """Return ``K^T G`` (p, c), float64."""
    if not (of.is_narrow and G.shape[1] <= MOST_OUTPUTS):
        return _tiled_rmatvec(of, G)
    table = block_table(of.device, slices(of.shape[0], SUM_ROWS))
    return launch.scores(of.device, of.what, of.right, of.left, table, G)


def double_product(of: Operands, V: Array, between: Callable[[Array, slice], Array] | None) -> Array:
    """Return ``K^T op(K V)`` (p, c), float64. For narrow rows the block is computed twice and never stored."""
    m, p = of.shape
    if of.is_narrow and V.shape[1] <= MOST_OUTPUTS:
        middle = matvec(of, V, None)
        return rmatvec(of, (middle if between is None else between(middle, slice(0, m))).astype(V.dtype))
    xp = of.device.xp
    total = xp.zeros((p, V.shape[1]), np.float64)
    height = _fitting(m, p, V.itemsize)
    held = xp.empty(height * p, V.dtype)
    for rows in balanced(m, height):
        values = _tile(held, rows, slice(0, p))
        _fill(of, rows, slice(0, p), values)
        middle = sum_over_blocks(of.device, values, V, of.blocks, turned=False)
        _add_pull(of, values, (middle if between is None else between(middle, rows)).astype(V.dtype), total)
    return total


def _tiled_matvec(of: Operands, A: Array, head: Array | None) -> Array:
    xp = of.device.xp
    (m, _), c = of.shape, A.shape[1]
    A = xp.ascontiguousarray(A)
    widest = max((cut.stop - cut.start for cut in of.blocks), default=1)
    height = _fitting(m, widest, A.itemsize)
    tiles = _column_tiles(of.blocks, max(widest, WORKSPACE_BYTES // (height * A.itemsize)))
    held = xp.empty(height * max((_width(tile) for tile in tiles), default=0), A.dtype)
    n_head = 0 if head is None else head.shape[1]
    # Nothing that a rank's share of the columns decides: last bits differ.
    never_written = head is None and not of.is_sparse and of.what.difference is None and 0 < c <= MOST_OUTPUTS
    total = None if len(tiles) == 1 and height >= m else xp.zeros((m, c), np.float64)
    for rows in balanced(m, height):
        for tile in tiles:
            cols = slice(tile[0].start, tile[-1].stop)
            values = _tile(held, rows, cols)
            # Coefficients cancel, so that the reduced precision does not apply to them.
            if never_written:
                scores = _never_written(of, rows, tile, values, A)
            else:
                _fill(of, rows, cols, values)
                scores = sum_over_blocks(of.device, values, A[cols], _from_start(tile, cols), turned=False)
            if total is None:
                total = scores  # of the only tile
            else:
                total[rows] += scores
            if head is not None and cols.start < n_head:
                kept = min(cols.stop, n_head)
                head[rows, cols.start : kept] = values[:, : kept - cols.start]
    return xp.zeros((m, c), np.float64) if total is None else total


def _tiled_rmatvec(of: Operands, G: Array) -> Array:
    xp = of.device.xp
    (m, p), c = of.shape, G.shape[1]
    G = xp.ascontiguousarray(G)
    total = xp.zeros((p, c), np.float64)
    width = _fitting(p, min(m, SUM_ROWS), G.itemsize)
    height = max(SUM_ROWS, WORKSPACE_BYTES // (width * G.itemsize) // SUM_ROWS * SUM_ROWS)
    held = xp.empty(min(height, m) * width, G.dtype)
    for cols in balanced(p, width):
        for rows in slices(m, height):
            values = _tile(held, rows, cols)
            _fill(of, rows, cols, values)
            _add_pull(of, values, G[rows], total[cols])
    return total


def _add_pull(of: Operands, values: Array, G: Array, total: Array) -> None:
    """Add ``values^T @ G`` to `total`, 512 rows at a time."""
    total += sum_over_blocks(of.device, values, G, slices(values.shape[0], SUM_ROWS), turned=True)


def _fill(of: Operands, rows: slice, cols: slice, out: Array) -> None:
    """Write the kernel's values for some rows and columns to `out`, whose rows are contiguous."""
    left, right = _part(of.left, rows), _part(of.right, cols)
    sparse, difference = is_sparse(left.rows) or is_sparse(right.rows), of.what.difference
    if not sparse and (of.is_narrow or difference is not None):  # no matrix product gives sums of differences
        launch.write_block(of.device, of.what, left, right, out)
        return
    if sparse:
        if difference is None:
            launch.write_sparse(of.device, of.what, left, right, out)
        else:
            _fill_from_tables(of, left, right, out)
        return
    _multiply(of, left, right, out)
    launch.apply_profile(of.device, of.what, left, right, out)


def _never_written(of: Operands, rows: slice, tile: Sequence[slice], held: Array, A: Array) -> Array:
    """Return ``K A`` of some rows and blocks, of which only inner products are written, to `held`."""
    cols = slice(tile[0].start, tile[-1].stop)
    table = block_table(of.device, _from_start(tile, cols))
    left, right = _part(of.left, rows), _part(of.right, cols)
    _multiply(of, left, right, held)
    return launch.profile_sums(of.device, of.what, left, right, held, table, A[cols])


def _multiply(of: Operands, left: Side, right: Side, out: Array) -> None:
    """Write the inner products of dense rows to `out`."""
    xp = of.device.xp
    as_rows = left.operand is None or right.operand is None
    X, Z = (xp.ascontiguousarray(side.rows if as_rows else side.operand) for side in (left, right))
    if of.precision == "float32":
        multiply_float32(of.device, X, Z, out, float32_way())
    else:
        of.device.multiply(X, Z, out, turn_left=False, turn_right=True, precision=of.precision)


def _fill_from_tables(of: Operands, left: Side, right: Side, out: Array) -> None:
    """Write values of sums of differences, which every feature of either row has a part in, from dense tiles of rows.

    A look at the features that occur in a batch would be to wait for the GPU.
    """
    height = max(1, min(max(out.shape), TABLE_BYTES // max(1, left.rows.shape[1] * out.itemsize)))
    for cols in balanced(out.shape[1], height):
        points = _as_table(_part(right, cols))
        for rows in balanced(out.shape[0], height):
            launch.write_block(of.device, of.what, _as_table(_part(left, rows)), points, out[rows, cols])


def _as_table(side: Side) -> Side:
    return replace(side, rows=side.rows.toarray()) if is_sparse(side.rows) else side


def _part(side: Side, cut: slice) -> Side:
    squared, norm, inverse = (None if stat is None else stat[cut] for stat in side.stats)
    return Side(side.rows[cut], squared, norm, inverse, side.caps, None if side.operand is None else side.operand[cut])


def _among(of: Operands, cols: slice) -> Operands:
    """Return the operands with some of the points, in one block."""
    return Operands(of.device, of.what, of.left, _part(of.right, cols), (cols,), of.table, of.precision)


def _tile(held: Array, rows: slice, cols: slice) -> Array:
    height, width = rows.stop - rows.start, cols.stop - cols.start
    return held[: height * width].reshape(height, width)


def _fitting(length: int, across: int, itemsize: int) -> int:
    """Return how many of `length` lines of `across` numbers fit into the workspace, at least one."""
    return max(1, min(length, WORKSPACE_BYTES // max(across * itemsize, 1)))


def _column_tiles(blocks: Sequence[slice], width: int) -> list[list[slice]]:
    """Return consecutive blocks together as far as they fit into `width` columns."""
    tiles: list[list[slice]] = []
    for cut in blocks:
        if tiles and cut.stop - tiles[-1][0].start <= width:
            tiles[-1].append(cut)
        else:
            tiles.append([cut])
    return tiles


def _from_start(tile: Sequence[slice], cols: slice) -> list[slice]:
    """Return the blocks of a tile, counted from its first column."""
    return [slice(cut.start - cols.start, cut.stop - cols.start) for cut in tile]


def _width(tile: Sequence[slice]) -> int:
    return tile[-1].stop - tile[0].start
