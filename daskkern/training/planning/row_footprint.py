"""The bytes of a rank that has all columns and a share of the rows, item by item; see :mod:`.footprint`."""

from daskkern.linalg import block_width
from daskkern.training.planning.footprint import (
    INTERPRETER,
    KEPT_MODELS,
    THREAD,
    Items,
    block_bytes,
    left_bytes,
    padded,
    points_bytes,
    rank_items,
    read_bytes,
    workspace_bytes,
)
from daskkern.training.planning.sizes import FitSizes

_UNITS = 8  # partial sums of a double product
_STRIPE = 8 << 20  # a stripe of K that a thread holds
_VECTORS = 20  # (p, c) arrays of a run in float64, those on their way included
_PIECES = 12
_DOUBLE = 8
_BESIDE = 2048  # columns of a dense matrix that its factorization holds beside it


def items_of(z: FitSizes) -> tuple[Items, Items]:
    """Return the items of a rank in host memory and on its device, whichever way its fit is distributed."""
    return row_items(z) if z.by_rows else rank_items(z)


def row_items(z: FitSizes) -> tuple[Items, Items]:
    """Return the items in host memory and those on the device, which are none with device "cpu"."""
    b, m = z.itemsize, -(-min(z.m, z.n) // z.ranks)
    host: dict[str, int] = {"interpreter and libraries": INTERPRETER + z.threads * THREAD}
    device: dict[str, int] = {} if z.device == "gpu" else host
    host["landmarks"] = (z.p + z.own) * z.d * b
    device["landmarks, prepared"] = points_bytes(z.p, z.d, z.within)
    device["landmarks, prepared"] += points_bytes(z.own, z.d, z.within) if z.ranks > 1 else 0
    host["rows read ahead"] = read_bytes(m, min(z.chunk_rows, z.n), z.d, b)
    if device is not host:
        host["pinned buffers"] = 2 * m * (z.d + z.c + 1) * b
    host["validation rows"] = 2 * z.validation * (z.d + 2 * z.c) * z.itemsize
    if z.dense:
        host["matrix"] = z.p * z.p * (8 * z.dense + b * (z.dense - 1)) + 8 * _BESIDE * z.p
    else:
        device["triangular factors"] = _factors(z)
    device["coefficients"] = _VECTORS * z.p * padded(z.c) * 8
    device["models of earlier epochs"] = KEPT_MODELS * z.own * z.c * z.itemsize
    device["one batch"] = _batch(z, m)
    device["tiles"] = (
        z.threads * (_STRIPE + workspace_bytes(1, z.d, z.within)) if z.device == "cpu" else m * z.p * z.within
    )
    if z.newton:
        device["scores of its rows"] = z.own_rows * z.c * b
    passing = device["one batch"] + device["tiles"] + (host["rows read ahead"] if device is host else 0)
    device["set-up, beyond the steps"] = 0 if z.dense else max(0, _setup(z) - passing)
    if z.penalty:  # chosen before there is anything but the landmarks
        chosen = z.penalty + host["interpreter and libraries"] + host["landmarks"]
        host["choice of the penalty, beyond the steps"] = max(0, chosen - sum(host.values()))
    return tuple(host.items()), () if device is host else tuple(device.items())


def _factors(z: FitSizes) -> int:
    """Return the bytes of T in float64 and of A in the dtype of the fit, with the copy of T that A is made of."""
    outer, inner = (triangle_bytes(z.p, z.ranks, itemsize) for itemsize in (_DOUBLE, z.itemsize))
    return outer + (z.factors - 1) * inner * (1 + (z.itemsize < _DOUBLE))


def triangle_bytes(p: int, ranks: int, itemsize: int) -> int:
    """Return the bytes of a whole triangular factor in panels, with its diagonal blocks apart."""
    return (p * p // 2 + 2 * p * block_width(p, ranks)) * itemsize


def _batch(z: FitSizes, m: int) -> int:
    """Return what a step holds: its rows and scores, and partial sums of (p, c) numbers."""
    piece = -(-m * z.ranks // _PIECES)
    sums = (_UNITS + 3) * z.p * padded(z.c) * 8
    if z.dense:  # a piece of K in three forms
        sums = piece * z.p * (z.itemsize + 16)
    rows = m * z.d * z.itemsize * (1 + (z.device == "gpu"))  # a GPU has the next ones, too
    return rows + left_bytes(piece, z.d, z.within) + 6 * m * padded(z.c) * 8 + sums


def _setup(z: FitSizes) -> int:
    """Return what the factors take while they are made: own panels, one in the making, copies, one in transit."""
    width = block_width(z.p, z.ranks)
    own = (z.p * z.p // 2 // z.ranks + z.p * width) * _DOUBLE * (z.ranks > 1)
    panel = z.p * width * _DOUBLE
    filled = block_bytes(z.p, width, z.d, _DOUBLE, z.threads) + z.p * z.d * _DOUBLE
    return own + (3 + (z.ranks > 1)) * panel + max(0, filled - panel) + 8 * width * width * 8
