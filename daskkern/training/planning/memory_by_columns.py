"""The memory items of a rank that holds a block of the columns.

What a fit holds is what lives as long as the rank, and on top the largest of its phases: the spectrum, the set-up of
the columns, the steps. The method adds its own; see :meth:`daskkern.solvers.Solver.costs`.

Factors such as ``10 * own * c`` count arrays of one size that exist at the same time. They are upper bounds, found by
measuring: ``tests/training/planning/test_memory_measured.py`` compares the plan with the peak of real fits, so that a
factor that is too small fails there. Whoever adds an array to a step or a set-up raises the factor of its size.
"""

from daskkern.cluster.collectives.shared_memory import MEMORY_BYTES
from daskkern.data.rows.shared_batches import AHEAD, MESSAGE_BYTES
from daskkern.kernels.columns.regenerated_features import KEPT_BYTES
from daskkern.kernels.engines import cuda
from daskkern.kernels.points import BLOCK_COLUMNS
from daskkern.solvers.costs.primitives import (
    left_bytes,
    matvec_bytes,
    padded,
    points_bytes,
    read_bytes,
    workspace_bytes,
)
from daskkern.solvers.costs.sizes import FitSizes, Items, MethodMemory

INTERPRETER = 288 << 20
"""Python with NumPy, SciPy, Zarr and Dask's worker, before a fit and after hours of one, with what malloc keeps."""
THREAD = 12 << 20  # a thread's stack and its buffers in BLAS
KEPT_MODELS = 2  # of the best epoch and of the last one
_WIDE_TILES = 4  # tiles of a block of columns that the plain engine of a GPU holds in float64
_UNIT = 16  # a unit vector: its entry, and where that is
_SPREAD = 128  # sparse columns that are spread at once, and numbers of one line of them


def budget_of_shard(budget: int, shards: int) -> int:
    """Return what each of `shards` virtual ranks of one process may plan with, which each count its interpreter."""
    return (budget + (shards - 1) * INTERPRETER) // shards


def shared_bytes(z: FitSizes) -> int:
    """Return the memory for sums of the ranks of a host, which counts as each rank's own."""
    return MEMORY_BYTES if z.all_ranks > 1 else 0


def rank_items(z: FitSizes) -> tuple[Items, Items]:
    """Return the items in host memory and those on the device, which are none with device "cpu"."""
    own = z.costs.memory(z)
    host: dict[str, int] = {"interpreter and libraries": INTERPRETER + z.threads * THREAD}
    host["sums in shared memory"] = shared_bytes(z)
    device: dict[str, int] = {} if z.device == "gpu" else host
    steps = _steps(z, own)
    numbered = z.units or z.tables > 0
    host["own columns"] = z.own * (_UNIT if numbered else z.d * z.itemsize)
    device["precomputed column data"] = z.own * _UNIT if numbered else points_bytes(z.own, z.d, z.within)
    if z.tables:
        host["tables of columns"] = z.tables
    device["precomputed column data"] += z.own * z.operand_bytes
    if z.mapped:  # of all on every rank's host, and its own twice more
        host["eigenvectors M"] = (z.p + 2 * z.own) * z.p * z.itemsize
        device["precomputed column data"] = points_bytes(z.p, z.d, z.within) + z.own * z.p * z.itemsize
    host["rows read ahead"] = _read_ahead(z)
    if device is not host:
        # Two, each for a batch: one is filled while the GPU copies the other. See daskkern.backend.uploads.
        host["pinned buffers"] = 2 * z.m * (z.d + z.c + 1) * z.itemsize
    if z.moving:
        host["support points"] = z.moving + KEPT_MODELS * z.own * z.d * z.itemsize
    host["validation rows"] = 2 * z.validation * (z.d + 2 * z.c) * z.itemsize
    host.update(own.host)
    device.update(own.device)
    device["coefficients"] = 10 * z.own * padded(z.c) * z.itemsize
    if z.drawn:  # products take a piece of them at a time
        device["coefficients"] = 6 * z.own * z.c * z.itemsize
        device["drawn features"] = KEPT_BYTES if z.entries else min(KEPT_BYTES, points_bytes(z.own, z.d, z.itemsize))
    device["models of earlier epochs"] = KEPT_MODELS * z.own * z.c * z.itemsize
    device["coefficients"] += own.coefficients
    device.update(steps)
    # Landmarks exist before the penalty is chosen, and centres that are rows or numbers do not.
    points = 0 if z.all_rows or numbered else z.p * z.d * z.itemsize
    kept = sum(size for _, size in own.host)
    before = max(own.before_host, z.choosing + points * (z.choosing > 0), z.penalty + (points + kept) * (z.penalty > 0))
    passing = sum(steps[name] for name in _PASSING) + (host["rows read ahead"] if device is host else 0)
    # The spectrum is found before there is anything else; the columns are set up before rows are read.
    beyond = max(0, before * z.prepares - sum(host.values()) + host["interpreter and libraries"])
    device["set-up peak above training peak"] = max(0, own.before_device - passing)
    host["set-up peak above training peak"] = max(host.get("set-up peak above training peak", 0), beyond)
    return tuple(host.items()), () if device is host else tuple(device.items())


def _read_ahead(z: FitSizes) -> int:
    """Return the bytes of rows on their way: read by this rank, and sent or received where one reads for all."""
    window, chunk = min(z.window_rows, z.n), min(z.chunk_rows, z.n)
    each = read_bytes(window, chunk, z.d, z.itemsize)
    if z.all_ranks == 1 or z.reading == "each":
        return each
    windows = (2 + (z.entries > 0)) * window + 3 * chunk  # sparse rows are put in order once more
    messages = (AHEAD + 2) * max(z.m * z.d * z.itemsize, MESSAGE_BYTES)  # as the solver takes them
    messages += (AHEAD + 3) * max(z.m * z.sent_row_bytes, MESSAGE_BYTES)  # received, and to be passed on
    once = windows * z.d * z.itemsize + messages
    return once if z.reading == "once" else max(each, once)


_PASSING = ("one batch", "temporary centres", "tiles")


def _steps(z: FitSizes, own: MethodMemory) -> dict[str, int]:
    """Return what steps need on the device: three items that pass, and what the method keeps."""
    passing = (z.window - 1) * z.m // z.ranks * z.operand_bytes
    items = {"one batch": _batch(z) + own.batch, "tiles": _tiles(z), "temporary centres": own.passing + passing}
    items.update(own.steps)
    return items


def _tiles(z: FitSizes) -> int:
    tiles = workspace_bytes(z.threads, z.d, z.within)
    if z.device == "gpu":
        tiles = z.group_m * (z.own * z.itemsize + _WIDE_TILES * BLOCK_COLUMNS * 8 * z.wide)
        tiles += cuda.partial_bytes(z.group_m, z.own, padded(z.c), z.itemsize, z.block_columns)
        if z.itemsize == 4 and z.d > cuda.FEW_FEATURES and not z.entries:
            tiles += cuda.terms_bytes(z.group_m, z.own, z.d)
    return tiles + z.threads * _SPREAD * _SPREAD * z.entries * z.itemsize


def _batch(z: FitSizes) -> int:
    """Return what a step holds of any method: rows, the values of the columns, and scores."""
    b, w, own, m = z.itemsize, z.within, z.own, z.group_m
    rows = (
        m * z.operand_bytes + left_bytes(m, z.d, w) + 8 * m * padded(z.c) * 8 + 2 * z.m * z.d * b * (z.device == "gpu")
    )
    if z.groups > 1:  # rows of other groups, residuals and positions of all; the gradient on its way
        rows += 2 * z.m * z.d * b + 2 * z.m * padded(z.c) * 8 + 3 * own * padded(z.c) * 8
    if z.all_rows:
        return rows + matvec_bytes(m, own, z.d, padded(z.c), w, 0, distributed=True) + m * z.own_s * (b + 8 * z.wide)
    if z.drawn:
        features = 4 * z.drawn * z.d * 8 + points_bytes(z.drawn, z.d, b)
        return rows + matvec_bytes(m, z.drawn, z.d, padded(z.c), b, 0, distributed=True) + features + 16 * own
    rows += m * (own + z.p * z.mapped) * b + (own + m) * padded(z.c) * 8 * z.wide
    return rows
