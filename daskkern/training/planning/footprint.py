"""The bytes of one rank as arithmetic: of every primitive that a fit is made of, and of the whole fit, item by item.

Each function bounds what a primitive holds at once beside its inputs, its result included. What a fit holds is what
lives as long as the rank, and on top the largest of its phases: the spectrum, the set-up of the columns, the steps.
"""

from daskkern.backend.tiles import TILE_COLUMNS, TILE_ROWS
from daskkern.kernels.columns.drawn import KEPT_BYTES
from daskkern.kernels.engines import native
from daskkern.kernels.engines.block_products import SHORT
from daskkern.kernels.points import BLOCK_COLUMNS
from daskkern.linalg import block_width
from daskkern.training.planning.sizes import FitSizes

Items = tuple[tuple[str, int], ...]

INTERPRETER = 288 << 20
"""Python with NumPy, SciPy, Zarr and Dask's worker, before a fit and after hours of one, with what malloc keeps."""
THREAD = 12 << 20  # a thread's stack and its buffers in BLAS
_NORM_ROWS = 4096  # rows whose squares are summed at once
_VECTORS = 9  # (p_r, c) arrays of conjugate gradient in float64
_GROUPS, _BLOCK_COLUMNS = 16, 512  # most partial sums of a product; columns that are one block when none are given
HELD_OUT = 2000
KEPT_MODELS = 2  # of the best epoch and of the last one
_GRAM_ROWS = 4096
_LANES = 16  # skinny operands are padded to whole vector registers
_READERS = 2
_WIDE_TILES = 4  # tiles of a block of columns that the plain engine of a GPU holds in float64
_UNIT = 16  # a unit vector: its entry, and where that is
_SPREAD = 128  # sparse columns that are spread at once, and numbers of one line of them


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
    groups = _GROUPS if distributed else min(_GROUPS, -(-p // _BLOCK_COLUMNS))
    sums = (groups + 1) * m * c * 8
    return sums + left_bytes(m, d, itemsize) + workspace_bytes(threads, d, itemsize) + p * padded(c) * itemsize


def rmatvec_bytes(m: int, p: int, d: int, c: int, itemsize: int, threads: int) -> int:
    """Return the bytes of ``K(X, Z)^T G``."""
    return (p + m) * padded(c) * itemsize + left_bytes(m, d, itemsize) + workspace_bytes(threads, d, itemsize)


def spectrum_bytes(s: int, q: int, h: int, d: int, itemsize: int, threads: int, within: int = 0) -> int:
    """Return the bytes of the spectrum of `s` rows and of `h` rows held out: dense, in float64."""
    inside = s * s * (2 * itemsize + 3 * 8) + 4 * s * q * 8
    outside = h * h * (2 * itemsize + 4 * 8) + h * s * (2 * itemsize + 8) + 3 * h * q * 8 + 3 * s * q * 8
    within = within or itemsize
    rows = 2 * points_bytes(s, d, within) + 2 * points_bytes(h, d, within)
    return max(inside, outside) + rows + workspace_bytes(threads, d, within)


def covariance_bytes(p: int, s: int, q: int, h: int, d: int, itemsize: int, width: int = _BLOCK_COLUMNS) -> int:
    """Return the bytes of the covariance of `p` features from `s` rows, and of `h` held out: in float64.

    Features are held for `width` columns at a time.
    """
    rows = (s + h) * (d + 2 * min(p, width)) * itemsize
    return 6 * 8 * (s * s + h * h) + 5 * (s + h) * q * 8 + 4 * p * q * 8 + rows


def mapped_bytes(p: int, itemsize: int) -> int:
    """Return the bytes of the p x p eigenproblem of Nystrom features."""
    return p * p * (6 * 8 + itemsize)


def nystrom_bytes(p: int, d: int, itemsize: int, threads: int, within: int = 0) -> int:
    """Return the bytes of the two p x p eigenproblems of Nystrom-SGD, and of the Gram sums of two tasks."""
    within = within or itemsize
    gram = 2 * (block_bytes(_GRAM_ROWS, p, d, itemsize, 1, within) + 2 * _GRAM_ROWS * p * itemsize + 2 * p * p * 8)
    return p * p * (6 * 8 + 2 * itemsize) + points_bytes(p, d, within) + gram + workspace_bytes(threads, d, within)


def factor_bytes(p: int, ranks: int, itemsize: int) -> int:
    """Return the bytes of a rank's panels of the factor, which stay."""
    width = block_width(p, ranks)
    return (p * p // ranks + 3 * p * width) * itemsize // 2 + p * width * itemsize * (ranks > 1)


def factor_setup_bytes(p: int, d: int, ranks: int, itemsize: int, threads: int, within: int = 0) -> int:
    """Return what the factorisation needs beside the panels: all centres, a panel in the making, others in transit."""
    width = block_width(p, ranks)
    transit = (1 + 2 * (ranks > 1)) * p * width * itemsize + 4 * width * width * 8
    return p * d * itemsize + block_bytes(p, width, d, itemsize, threads, within) + transit


def read_bytes(rows: int, chunk_rows: int, d: int, itemsize: int) -> int:
    """Return the bytes of reading ahead: three windows of `rows`, and for each reader a chunk in three forms."""
    return (3 * rows * d + _READERS * 3 * chunk_rows * d) * itemsize


def rank_items(z: FitSizes) -> tuple[Items, Items]:
    """Return the items in host memory and those on the device, which are none with device "cpu"."""
    host: dict[str, int] = {"interpreter and libraries": INTERPRETER + z.threads * THREAD}
    device: dict[str, int] = {} if z.device == "gpu" else host
    steps = _steps(z)
    host["own columns"] = z.own * (_UNIT if z.units else z.d * z.itemsize)
    device["own columns, prepared"] = z.own * _UNIT if z.units else points_bytes(z.own, z.d, z.within)
    if z.mapped:  # of all on every rank's host, and its own twice more
        host["eigenvectors M"] = (z.p + 2 * z.own) * z.p * z.itemsize
        device["own columns, prepared"] = points_bytes(z.p, z.d, z.within) + z.own * z.p * z.itemsize
    host["rows read ahead"] = read_bytes(min(z.window_rows, z.n), min(z.chunk_rows, z.n), z.d, z.itemsize)
    if device is not host:
        host["pinned buffers"] = 2 * z.m * (z.d + z.c + 1) * z.itemsize
    if z.moving:
        host["support points"] = z.moving + KEPT_MODELS * z.own * z.d * z.itemsize
    host["validation rows"] = 2 * z.validation * (z.d + 2 * z.c) * z.itemsize
    host["spectrum"], device["preconditioner"] = _spectrum(z)
    device["coefficients"] = 10 * z.own * padded(z.c) * z.itemsize
    if z.drawn:  # products take a piece of them at a time
        device["coefficients"] = 6 * z.own * z.c * z.itemsize
        device["drawn features"] = KEPT_BYTES if z.entries else min(KEPT_BYTES, points_bytes(z.own, z.d, z.itemsize))
    device["models of earlier epochs"] = KEPT_MODELS * z.own * z.c * z.itemsize
    if z.sketch:
        # Vectors of own rows and of all, and the features with what they are made of.
        device["coefficients"] += (18 * z.own + 4 * z.n) * padded(z.c) * 8
        device["preconditioner"] = z.own * z.sketch * 2 * z.itemsize + 6 * z.sketch**2 * 8
    device["coefficients"] += 4 * -(-z.n // z.ranks) * z.state_per_row * padded(z.c) * 8
    device.update(steps)
    before, columns = _before_steps(z)
    points = 0 if z.all_rows or z.units else z.p * z.d * z.itemsize
    before = max(
        before, z.choosing + points * (z.choosing > 0), z.penalty + (points + host["spectrum"]) * (z.penalty > 0)
    )
    passing = sum(steps[name] for name in _PASSING) + (host["rows read ahead"] if device is host else 0)
    # The spectrum is found before there is anything else; the columns are set up before rows are read.
    beyond = max(0, before - sum(host.values()) + host["interpreter and libraries"])
    device["set-up, beyond the steps"] = max(0, columns - passing)
    host["set-up, beyond the steps"] = max(host.get("set-up, beyond the steps", 0), beyond)
    return tuple(host.items()), () if device is host else tuple(device.items())


_PASSING = ("one batch", "temporary centres", "tiles")


def _steps(z: FitSizes) -> dict[str, int]:
    """Return what steps need on the device: three items that pass, and what projections keep."""
    b, w, own = z.itemsize, z.within, z.own
    scores = 8 * z.m * padded(z.c) * 8
    items = {"one batch": left_bytes(z.m, z.d, w) + scores + 2 * z.m * z.d * b * (z.device == "gpu")}
    items["tiles"] = (
        workspace_bytes(z.threads, z.d, w)
        if z.device == "cpu"
        else z.m * (own * b + _WIDE_TILES * BLOCK_COLUMNS * 8 * z.wide)
    )
    items["tiles"] += z.threads * _SPREAD * _SPREAD * z.entries * b
    items["temporary centres"] = 0
    items["one batch"] += 6 * 8 * z.m * z.m * z.row_products
    if z.all_rows:
        items["one batch"] += matvec_bytes(z.m, own, z.d, padded(z.c), w, 0, distributed=True) + z.m * z.own_s * (
            b + 8 * z.wide
        )
        return items
    if z.drawn:
        features = 4 * z.drawn * z.d * 8 + points_bytes(z.drawn, z.d, b)
        items["one batch"] += matvec_bytes(z.m, z.drawn, z.d, padded(z.c), b, 0, distributed=True) + features + 16 * own
        return items
    items["one batch"] += z.m * (own + z.p * z.mapped) * b + (own + z.m) * padded(z.c) * 8 * z.wide
    if z.device == "gpu":  # the parts of a product, which are added in the end
        items["one batch"] += (2 * -(-own // block_width(z.p, z.ranks)) + 2) * min(z.m * padded(z.c), SHORT) * b
    if z.nystrom:
        items["eigenfeatures M"] = own * z.p * b
        return items
    rows = z.span or (z.window - 1) * z.m
    if rows:
        # Joined ones are copied before the old ones go; a rank has at most a batch more than its share.
        items["temporary centres"] = 2 * min(rows, rows // z.ranks + z.m) * ((z.d + 2) * w + z.c * b)
    if z.explicit:
        return items
    items["damped directions"] = own * z.q * b
    if z.exact:
        items["projection factor"] = factor_bytes(z.p, z.ranks, b)
    elif z.s:
        items["projection by iteration"] = _VECTORS * own * padded(z.c) * 8 + 4 * z.q * z.q * 8 + z.m * z.d * b
    return items


def _spectrum(z: FitSizes) -> tuple[int, int]:
    """Return what is kept of the spectrum in host memory, and a rank's part of it on the device."""
    if z.nystrom:
        return z.p * z.p * z.itemsize, 0
    if z.explicit:
        return z.p * z.q * z.itemsize, z.own * z.q * z.itemsize
    return z.s * z.q * 8 + z.s * z.d * z.itemsize, z.own_s * z.q * z.itemsize


def _before_steps(z: FitSizes) -> tuple[int, int]:
    """Return the most that the spectrum needs in host memory, and the set-up of the columns where they live."""
    b, w = z.itemsize, z.within
    chosen = 0 if z.all_rows else z.p * z.d * b
    if z.nystrom:
        return nystrom_bytes(z.p, z.d, b, z.threads, w) + chosen, 0
    if z.sketch:
        made = matvec_bytes(z.own, z.sketch, z.d, z.sketch, w, z.threads) + points_bytes(z.sketch, z.d, w)
        return 0, made + 3 * z.own * z.sketch * 8
    if z.explicit:
        width = z.p if z.mapped else _BLOCK_COLUMNS
        made = covariance_bytes(z.p, z.s, z.q, min(HELD_OUT, z.n), z.d, b, width)
        made = max(made, mapped_bytes(z.p, b) * z.mapped)
        return made + workspace_bytes(z.threads, z.d, b) + (chosen + z.p * z.p * b * z.mapped) * (not z.units), 0
    rows = min(z.own_s if z.all_rows else z.own, block_width(z.p, z.ranks))  # a block of them at a time
    damped = matvec_bytes(rows, z.s, z.d, z.q, w, z.threads) + 2 * z.s * z.q * 8 + points_bytes(z.s, z.d, w)
    factor = factor_setup_bytes(z.p, z.d, z.ranks, b, z.threads, w) if z.exact else 0
    return spectrum_bytes(z.s, z.q, min(HELD_OUT, z.n), z.d, b, z.threads, w) + chosen, max(damped, factor)


def padded(c: int) -> int:
    """Return `c` columns of a skinny operand in whole vector registers."""
    return -(-c // _LANES) * _LANES
