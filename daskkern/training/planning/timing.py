"""The time of a fit as arithmetic: counts of what it does, times the rates of a calibration."""

from dataclasses import dataclass, replace

from daskkern.data.storage.random_access import GAP
from daskkern.linalg import block_width, group_count
from daskkern.training.planning.calibration import Rates
from daskkern.training.planning.disk_rates import DiskRates
from daskkern.training.planning.footprint import HELD_OUT
from daskkern.training.planning.memory import MemoryPlan
from daskkern.training.planning.row_timing import newton_parts, setup_parts, sweep_parts
from daskkern.training.planning.sizes import FitSizes

Parts = tuple[tuple[str, float], ...]

_COLLECTIVE_S = 1e-3  # two ranks on one host that compute in between: not measured, the ranks do not run yet
_CALLS = 10  # products of a step that are too small to take any time but that of the call
_ITERATIONS_OF_PROJECTOR = 10
_EIGSH_PRODUCTS = 60
_REQUEST_S = 2e-4  # of a byte range on a local disk
_GAIN = 0.8  # blocks go to disk when reading back costs less than this share of computing again
_READERS = 2


@dataclass(frozen=True)
class Stage:
    """Seconds of a stage, and what they are made of. Reading runs beside the rest where threads are free."""

    name: str
    seconds: float
    parts: Parts


@dataclass(frozen=True)
class TimePlan:
    """Set-up, first epoch, each later epoch; `batch` is the expected number of rows of a batch."""

    stages: tuple[Stage, ...]
    total: float
    batch: int


def estimate(
    plan: MemoryPlan, rates: Rates, epochs: int, stored: bool = False, sweeps: tuple[int, int] = (1, 1)
) -> TimePlan:
    """Return the time of a fit of `epochs` epochs. `stored` is Nystrom-SGD with its features on disk.

    `sweeps` are the passes over the rows of the first epoch, and of each later one.
    """
    assert plan.sizes is not None
    if plan.sizes.by_rows:
        return _by_rows(plan, plan.sizes, rates, epochs, sweeps)
    z = _with_batch(plan.sizes, rates.batch)
    keeps = bool(plan.kept or plan.disk) and not stored
    write = z.blocks_bytes / rates.disk.write if plan.disk and rates.disk is not None else 0.0
    read_back = z.blocks_bytes / rates.disk.read if plan.disk and rates.disk is not None else 0.0
    first = _epoch("first epoch", z, rates, fresh=True, rows=True, disk=write, stored=stored)
    first = _with_new_memory(first, plan.kept / rates.fresh)
    needs_rows = not plan.keeps_rows and (not keeps or z.window > 1)
    later = _epoch("later epochs, each", z, rates, fresh=not keeps, rows=needs_rows, disk=read_back, stored=stored)
    first = _joined(first.name, [first, *[later] * (sweeps[0] - 1)])
    later = _joined(later.name, [later] * sweeps[1])
    setup = _setup(z, rates, stored)
    total = setup.seconds + first.seconds + (epochs - 1) * later.seconds
    return TimePlan((setup, first, later), total, z.m)


def _by_rows(plan: MemoryPlan, z: FitSizes, rates: Rates, epochs: int, sweeps: tuple[int, int]) -> TimePlan:
    """Return the time of a fit whose rows are dealt."""
    keeps = bool(plan.kept or plan.disk)
    write = z.blocks_bytes / rates.disk.write if plan.disk and rates.disk is not None else 0.0
    read_back = z.blocks_bytes / rates.disk.read if plan.disk and rates.disk is not None else 0.0
    rows = z.own_rows * rates.row_s

    def sweep(name: str, fresh: bool, disk: float) -> Stage:
        parts = sweep_parts(z, rates, fresh=fresh) + [("collectives", _COLLECTIVE_S)] * (z.ranks > 1)
        return _stage(name, parts, rows * fresh, disk, z.threads)

    setup = _stage("set-up", setup_parts(z, rates))
    fresh, again = sweep("", True, write), sweep("", not keeps, read_back)
    more = _stage("", newton_parts(z, rates))
    first = _with_new_memory(_joined("first epoch", [fresh, *[again] * (sweeps[0] - 1), more]), plan.kept / rates.fresh)
    later = _joined("later epochs, each", [*[again] * sweeps[1], more])
    return TimePlan((setup, first, later), setup.seconds + first.seconds + (epochs - 1) * later.seconds, z.m)


def _joined(name: str, stages: list[Stage]) -> Stage:
    """Return stages one after the other as one."""
    parts: dict[str, float] = {}
    for part, seconds in (part for stage in stages for part in stage.parts):
        parts[part] = parts.get(part, 0.0) + seconds
    return Stage(name, sum(stage.seconds for stage in stages), tuple(parts.items()))


def disk_pays(z: FitSizes, rates: Rates, epochs: int) -> bool:
    """Return whether `epochs` epochs are shorter with blocks written to disk and read back than computed again.

    Rates that came from the system's cache prove nothing about the disk.
    """
    if rates.disk is None or rates.disk.cached:
        return False
    return disk_ns(z, rates.disk, epochs) < _GAIN * entry_ns(z, rates)


def disk_ns(z: FitSizes, disk: DiskRates, epochs: int) -> float:
    """Return what an entry on disk costs in each epoch after the first, its share of having been written included."""
    return 1e9 * z.itemsize * (1 / disk.read + 1 / disk.write / max(epochs - 1, 1))


def memory_pays(z: FitSizes, rates: Rates, epochs: int) -> bool:
    """Return whether blocks kept in memory save more in `epochs` epochs than the first use of the memory costs."""
    return 1e9 * z.itemsize / rates.fresh < (epochs - 1) * entry_ns(z, rates)


def entry_ns(z: FitSizes, rates: Rates) -> float:
    """Return what a kept entry saves in each epoch."""
    return max(0.0, rates.matvec_ns - rates.product_ns / 2) if z.all_rows else rates.block_ns


def _with_batch(z: FitSizes, m: int) -> FitSizes:
    """Return the sizes with the expected batch, and a window of as many rows."""
    if z.all_rows or z.nystrom:
        return replace(z, m=m, window=1)
    return replace(z, m=m, window=max(1, -(-(z.span or z.window * z.m) // m)), span=0)


def _setup(z: FitSizes, rates: Rates, stored: bool) -> Stage:
    b = rates.block_ns * 1e-9
    if z.nystrom:
        eigen = 2 * (1.33 * z.p**3 / rates.memory + 4 * z.p**3 / rates.flops64)
        gram = z.n * z.p * (b + 4 * z.p / rates.factor_flops) / z.ranks
        parts = [("eigenproblems", eigen + z.p**2 * b), ("Gram sums", gram), ("reading", 4 * z.n * rates.row_s)]
        if stored:
            parts.append(("eigenfeatures", z.n * z.p * (b + 2 * z.p / rates.factor_flops) / z.ranks))
        return _stage("set-up", parts)
    h = min(HELD_OUT, z.n)
    entries = (z.s**2 + h * z.s + h**2) * b
    eigen = 1.33 * z.s**3 / rates.memory + (2 / 3 * z.s**3 + 2 * z.s**2 * z.q) / rates.flops64
    outside = 2 * h * z.q * (z.s + h) / rates.flops64 + _EIGSH_PRODUCTS * 8 * h * h / rates.memory
    damped = (z.own_s if z.all_rows else z.own) * z.s * (b + 2 * z.q / rates.factor_flops)
    parts = [("spectrum", entries + eigen + outside), ("damped directions", damped)]
    if z.exact:
        width = block_width(z.p, z.ranks)
        corners = 4 * z.own * width**2 / rates.flops64
        flops = z.p**3 / 3 * (1 + 1 / group_count(z.p) ** 2)
        parts.append(("factor", z.p * z.own / 2 * b + flops / z.ranks / rates.factor_flops + corners))
    sample = z.n if z.all_rows else min(z.n, max(z.p, HELD_OUT))
    parts.append(("reading", (4 + z.exact) * _sample_s(z, rates, sample)))
    return _stage("set-up", parts)


def _sample_s(z: FitSizes, rates: Rates, k: int) -> float:
    """Return the seconds of reading `k` random rows: with all others, or by byte ranges where they lie far apart."""
    every = z.n * rates.row_s
    far_apart = not z.entries and z.n / k * z.d * z.itemsize > GAP
    return min(every, k * (rates.row_s + _REQUEST_S)) if far_apart else every


def _epoch(name: str, z: FitSizes, rates: Rates, *, fresh: bool, rows: bool, disk: float, stored: bool) -> Stage:
    """Return one epoch: with blocks computed (`fresh`) or kept, rows read or not, `disk` seconds at the disk."""
    steps, ns = z.n / z.m, 1e-9
    entries = z.n * z.own
    passes = 1.0 if not z.all_rows else 0.5
    products = entries * rates.product_ns * ns * passes
    kernel = entries * entry_ns(z, rates) * ns * fresh
    if stored:
        kernel, disk = 0.0, 0.0
    parts = [("kernel blocks", kernel), ("products", products)]
    parts.append(("preconditioner", steps * _correction(z, stored) * rates.product_ns / 2 * ns))
    if z.window > 1:
        parts.append(("temporary centres", z.n * (z.window - 1) / 2 * z.m / z.ranks * rates.matvec_ns * ns))
    projections = 0.0 if z.all_rows or z.nystrom else max(1.0, steps / z.window)
    if projections:
        once = z.p * z.own / 2 * rates.product_ns
        if not z.exact:
            once = _ITERATIONS_OF_PROJECTOR * z.p * z.own * rates.matvec_ns
        parts.append(("projection", projections * once * ns))
    parts.append(("calls", steps * _CALLS * rates.call_s))
    if z.ranks > 1:
        parts.append(("collectives", (2 * steps + (4 * group_count(z.p) - 3) * projections) * _COLLECTIVE_S))
    return _stage(name, parts, z.n * rates.row_s * rows, disk, z.threads)


def _with_new_memory(stage: Stage, seconds: float) -> Stage:
    """Return the stage with what the first use of the memory for kept blocks takes."""
    parts = (*stage.parts, ("memory for kept blocks", seconds)) if seconds else stage.parts
    return Stage(stage.name, stage.seconds + seconds, parts)


def _correction(z: FitSizes, stored: bool) -> float:
    """Return the numbers of the preconditioner that meet c columns in one step."""
    if z.nystrom:
        return 0.0 if stored else 2.0 * z.own * z.p
    return 2.0 * z.own_s * z.q + (0 if z.all_rows else z.own * z.q)


def _stage(name: str, parts: list[tuple[str, float]], rows: float = 0.0, disk: float = 0.0, threads: int = 1) -> Stage:
    """Return the stage; `rows` seconds of reading share the threads, `disk` seconds run beside everything."""
    computing = sum(seconds for _, seconds in parts)
    together = max(computing + rows / threads, rows / _READERS, disk)
    if rows:
        parts.append(("reading", rows / threads))
    if disk:
        parts.append(("waiting for the disk", max(0.0, disk - computing - rows / threads)))
    return Stage(name, together, tuple(parts))
