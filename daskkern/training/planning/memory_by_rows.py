"""The memory items of a rank that has all columns and a share of the rows; see :mod:`.memory_by_columns`."""

from daskkern.solvers.costs.primitives import PIECES, left_bytes, padded, points_bytes, read_bytes, workspace_bytes
from daskkern.solvers.costs.sizes import FitSizes, Items
from daskkern.training.planning.memory_by_columns import INTERPRETER, KEPT_MODELS, THREAD, shared_bytes

_STRIPE = 8 << 20  # a stripe of K that a thread holds
_VECTORS = 20  # (p, c) arrays of a run in float64, those on their way included


def row_items(z: FitSizes) -> tuple[Items, Items]:
    """Return the items in host memory and those on the device, which are none with device "cpu"."""
    b, m = z.itemsize, z.own_batch_rows
    own = z.costs.memory(z)
    host: dict[str, int] = {"interpreter and libraries": INTERPRETER + z.threads * THREAD}
    host["sums in shared memory"] = shared_bytes(z)
    device: dict[str, int] = {} if z.device == "gpu" else host
    host["landmarks"] = (z.p + z.own) * z.d * b
    device["precomputed landmark data"] = points_bytes(z.p, z.d, z.within)
    device["precomputed landmark data"] += points_bytes(z.own, z.d, z.within) if z.ranks > 1 else 0
    device["precomputed landmark data"] += (z.p + z.own * (z.ranks > 1)) * z.operand_bytes
    host["rows read ahead"] = read_bytes(m, min(z.chunk_rows, z.n), z.d, b)
    if device is not host:
        host["pinned buffers"] = 2 * m * (z.d + z.c + 1) * b
    host["validation rows"] = 2 * z.validation * (z.d + 2 * z.c) * z.itemsize
    host.update(own.host)
    device.update(own.device)
    device["coefficients"] = _VECTORS * z.p * padded(z.c) * 8 + own.coefficients
    device["models of earlier epochs"] = KEPT_MODELS * z.own * z.c * z.itemsize
    device["one batch"] = _batch(z, m) + own.batch
    device["tiles"] = (
        z.threads * (_STRIPE + workspace_bytes(1, z.d, z.within)) if z.device == "cpu" else m * z.p * z.within
    )
    device.update(own.steps)
    # The set-up is over when steps begin: only what it needs beyond a batch and its tiles counts.
    passing = device["one batch"] + device["tiles"] + (host["rows read ahead"] if device is host else 0)
    device["set-up peak above training peak"] = max(0, own.before_device - passing)
    if z.penalty:  # chosen before there is anything but the landmarks
        chosen = z.penalty + host["interpreter and libraries"] + host["landmarks"]
        host["penalty choice peak above training peak"] = max(0, chosen - sum(host.values()))
    return tuple(host.items()), () if device is host else tuple(device.items())


def _batch(z: FitSizes, m: int) -> int:
    """Return what a step holds of any method: its rows and scores."""
    piece = -(-min(z.m, z.n) // PIECES) + 1
    rows = m * z.d * z.itemsize * (1 + (z.device == "gpu"))  # a GPU has the next ones, too
    return rows + piece * z.operand_bytes + left_bytes(piece, z.d, z.within) + 6 * m * padded(z.c) * 8
