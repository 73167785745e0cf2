"""The bytes of the primitives that fits are made of.

Each function bounds what a primitive holds at once in addition to its inputs, its result included.
"""

from daskkern.backend.tiles import TILE_COLUMNS, TILE_ROWS
from daskkern.kernels.engines import native
from daskkern.linalg import block_width
from daskkern.preconditioners.covariance import is_smaller

HELD_OUT = 2000
"""Rows held out of a subsample, on which its spectrum is checked."""
BLOCK_COLUMNS = 512
"""Columns that are one block when none are given."""
PIECES = 12
"""Pieces of a batch whose rows are distributed."""
_GROUPS = 16  # most partial sums of a product
_NORM_ROWS = 4096  # rows whose squares are summed at once
_GRAM_ROWS = 4096
_LANES = 16  # skinny operands are padded to whole vector registers
_READERS = 2


def workspace_bytes(threads: int, d: int, itemsize: int) -> int:
    """Return what tiles of rows with `d` features take, one a thread, in whichever engine takes more."""
    plain = 2 * TILE_ROWS * TILE_COLUMNS * itemsize
    return threads * max(plain, native.workspace_bytes(d, native.MOST_OUTPUTS, itemsize))


def points_bytes(p: int, d: int, itemsize: int) -> int:
    """Return the bytes of `p` rows prepared as points: the operand, the shifted rows, and squares on the way."""
    return (2 * p * (d + 2) + min(p, _NORM_ROWS) * d) * itemsize


def left_bytes(m: int, d: int, itemsize: int) -> int:
    """Return the bytes of `m` rows prepared as the left side of blocks."""
    return (m * (d + 2) + min(m, _NORM_ROWS) * d) * itemsize


def block_bytes(m: int, p: int, d: int, itemsize: int, threads: int, within: int = 0) -> int:
    """Return the bytes of a kernel block (m, p) while it is made from prepared points, `within` bytes a number."""
    within = within or itemsize
    return m * p * itemsize + left_bytes(m, d, within) + workspace_bytes(threads, d, within)


def matvec_bytes(m: int, p: int, d: int, c: int, itemsize: int, threads: int, *, distributed: bool = False) -> int:
    """Return the bytes of ``K(X, Z) A``: the prepared rows, a partial sum a group of column blocks, and the sum.

    Columns that are `distributed` to ranks come in many blocks, however few they are.
    """
    groups = _GROUPS if distributed else min(_GROUPS, -(-p // BLOCK_COLUMNS))
    sums = (groups + 1) * m * c * 8
    return sums + left_bytes(m, d, itemsize) + workspace_bytes(threads, d, itemsize) + p * padded(c) * itemsize


def spectrum_bytes(s: int, q: int, h: int, d: int, itemsize: int, threads: int, within: int = 0) -> int:
    """Return the bytes of the spectrum of `s` rows and of `h` rows held out: dense, in float64."""
    inside = s * s * (2 * itemsize + 3 * 8) + 4 * s * q * 8
    outside = h * h * (2 * itemsize + 4 * 8) + h * s * (2 * itemsize + 8) + 3 * h * q * 8 + 3 * s * q * 8
    within = within or itemsize
    rows = 2 * points_bytes(s, d, within) + 2 * points_bytes(h, d, within)
    return max(inside, outside) + rows + workspace_bytes(threads, d, within)


def covariance_bytes(p: int, s: int, q: int, h: int, d: int, itemsize: int, width: int = BLOCK_COLUMNS) -> int:
    """Return the bytes of the covariance of `p` features from `s` rows, and of `h` held out: in float64.

    Features are held for `width` columns at a time.
    """
    rows = (s + h) * (d + 2 * min(p, width)) * itemsize
    square = 6 * p * p + 3 * s * p if is_smaller(p, s) else 6 * s * s
    return 8 * (square + 6 * h * h) + 5 * (s + h) * q * 8 + 4 * p * q * 8 + rows


def mapped_bytes(p: int, itemsize: int) -> int:
    """Return the bytes of the p x p eigenproblem of Nystrom features."""
    return p * p * (6 * 8 + itemsize)


def nystrom_bytes(p: int, d: int, itemsize: int, threads: int, within: int = 0) -> int:
    """Return the bytes of the two p x p eigenproblems of Nystrom-SGD, and of the Gram sums of two tasks."""
    within = within or itemsize
    gram = 2 * (block_bytes(_GRAM_ROWS, p, d, itemsize, 1, within) + 2 * _GRAM_ROWS * p * itemsize + 2 * p * p * 8)
    return p * p * (6 * 8 + 2 * itemsize) + points_bytes(p, d, within) + gram + workspace_bytes(threads, d, within)


def factor_bytes(p: int, ranks: int, itemsize: int, share: float | None = None) -> int:
    """Return the bytes of a rank's panels of the factor, which stay.

    A rank with the `share` f of the columns has at most ``f (k + ranks - 1)`` of the first k blocks, the highest ones.
    """
    width = block_width(p, ranks, even=share is None)
    if share is not None:
        return int(share * (p * p // 2 + ranks * p * width) + 2 * p * width) * itemsize
    return (p * p // ranks + 3 * p * width) * itemsize // 2 + p * width * itemsize * (ranks > 1)


def factor_setup_bytes(p: int, d: int, ranks: int, itemsize: int, threads: int, within: int = 0) -> int:
    """Return the bytes of a factorisation without its panels: all centres, a panel in the making, others in transit."""
    width = block_width(p, ranks)
    transit = (1 + 2 * (ranks > 1)) * p * width * itemsize + 4 * width * width * 8
    return p * d * itemsize + block_bytes(p, width, d, itemsize, threads, within) + transit


def read_bytes(rows: int, chunk_rows: int, d: int, itemsize: int) -> int:
    """Return the bytes of reading ahead: three windows of `rows`, and for each reader a chunk in three forms."""
    return (3 * rows * d + _READERS * 3 * chunk_rows * d) * itemsize


def triangle_bytes(p: int, ranks: int, itemsize: int) -> int:
    """Return the bytes of a whole triangular factor in panels, with its diagonal blocks apart."""
    return (p * p // 2 + 2 * p * block_width(p, ranks)) * itemsize


def padded(c: int) -> int:
    """Return `c` columns of a skinny operand in whole vector registers."""
    return -(-c // _LANES) * _LANES
