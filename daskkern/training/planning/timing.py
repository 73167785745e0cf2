"""The estimated time of a fit: operation counts times calibrated rates."""

from dataclasses import dataclass, replace

from daskkern.cluster.collectives.probe import MessageTimes
from daskkern.feature_learning.costs import LearningCosts
from daskkern.linalg import group_count
from daskkern.linalg.krylov_ridge import LANCZOS_STEPS
from daskkern.solvers.costs.columns import entry_ns
from daskkern.solvers.costs.sizes import FitSizes
from daskkern.training.feeding.disk_rates import DiskRates
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.grids import LEAST_RANKS, sum_seconds
from daskkern.training.planning.measured_rates import Rates
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import MOST_OUTPUTS, noisy_rows, sample_rows
from daskkern.training.setup.kernel_choice import kernel_rows, n_kernels

Parts = tuple[tuple[str, float], ...]

_COLLECTIVE_S = 1e-3  # two ranks on one host that compute in between: not measured, the ranks do not run yet
_CALLS = 10  # products of a step that are too small to take any time but that of the call
_GAIN = 0.8  # blocks go to disk when reading back costs less than this share of computing again
_READERS = 2
_SENT_S = 3e-9  # a byte of a row that is received, passed on and scaled; not measured, the ranks do not run yet
_PENALTIES = 22
_WIDE = 2.0  # a kernel value in float64, in units of one in float32


@dataclass(frozen=True)
class Stage:
    """Seconds of a stage, and what they are made of. Reading runs in parallel with the rest where threads are free."""

    name: str
    seconds: float
    parts: Parts


@dataclass(frozen=True)
class TimePlan:
    """Feature learning where there is some, set-up, first epoch, each later epoch.

    `batch` is the expected number of rows of a batch.
    """

    stages: tuple[Stage, ...]
    total: float
    batch: int


def estimate(
    plan: MemoryPlan,
    rates: Rates,
    epochs: int,
    stored: bool = False,
    sweeps: tuple[int, int] = (1, 1),
    learning: LearningCosts | None = None,
    candidates: int = 1,
    choices: Parts = (),
) -> TimePlan:
    """Return the time of a fit of `epochs` epochs. `stored` is Nystrom-SGD with its features on disk.

    `sweeps` are the passes over the rows of the first epoch, and of each later one. `learning` is what feature learning
    takes for each of so many `candidates`; with it, a stage comes first. `choices` are parts of the set-up, those of
    :func:`choice_seconds`.
    """
    assert plan.sizes is not None
    time = _with_choices(_fitting(plan, plan.sizes, rates, epochs, stored, sweeps), choices)
    if learning is None:
        return time
    first = learning_stage(plan.sizes, rates, learning, candidates)
    return TimePlan((first, *time.stages), first.seconds + time.total, time.batch)


def choice_seconds(source: RowSource, settings: FitSettings, z: FitSizes, rates: Rates) -> Parts:
    """Return how long the choice of a kernel takes, and of a penalty, where rows choose them: on as many as they do."""
    info, count = source.info, n_kernels(settings, source.info)
    parts = []
    if count:
        s = kernel_rows(info, z.n, z.c, count, settings)
        parts.append(("choice of the kernel", count * _leave_one_out_s(s, z.c, rates)))
    if settings.chooses_alpha and not z.leaf_rows:
        s = sample_rows(z.n, z.p, info.row_width, z.c, settings)
        many = noisy_rows(z.n, z.p, info.row_width, z.c, settings)
        parts.append(("choice of the penalty", _leave_one_out_s(s, z.c, rates) + _halves_s(many, z.c, rates)))
    return tuple(parts)


def _leave_one_out_s(s: int, c: int, rates: Rates) -> float:
    """Return the seconds of a kernel matrix of `s` rows, all its eigenpairs, and errors for some 20 penalties."""
    eigen = 1.33 * s**3 / rates.memory + 4 * s**3 / rates.flops64
    return _WIDE * s**2 * rates.block_ns * 1e-9 + eigen + 2 * _PENALTIES * (c + 1) * s**2 / rates.flops64


def _halves_s(s: int, c: int, rates: Rates) -> float:
    """Return the seconds of three kernel matrices of halves of `s` rows, and of Lanczos steps with two of them."""
    return 0.75 * s**2 * rates.block_ns * 1e-9 + LANCZOS_STEPS * min(c, MOST_OUTPUTS) * 2 * s**2 / rates.memory


def _with_choices(time: TimePlan, choices: Parts) -> TimePlan:
    """Return the time with more parts of the set-up, which is the first stage."""
    setup, more = time.stages[0], sum(seconds for _, seconds in choices)
    stage = Stage(setup.name, setup.seconds + more, (*choices, *setup.parts))
    return TimePlan((stage, *time.stages[1:]), time.total + more, time.batch)


def learning_stage(z: FitSizes, rates: Rates, learning: LearningCosts, candidates: int) -> Stage:
    """Return the time of feature learning, at most: all rounds of all candidates, and the pass over all rows.

    Trials are made in float64, where a kernel value takes about twice as long, by one rank; the pass in the dtype of
    the fit, by all.
    """
    trials = _WIDE * learning.sample_entries() * rates.block_ns * 1e-9 + learning.sample_flops() / rates.flops64
    gradients = learning.pass_entries() * rates.block_ns * 1e-9 + learning.pass_flops() / rates.flops64 * z.itemsize / 8
    parts = [("trials on sampled rows", candidates * trials), ("reading the sample", rates.sample_s(z, learning.m))]
    rows = 0.0
    if learning.learning.of_all_rows:
        parts.append(("gradients at all rows", gradients / z.all_ranks))
        rows = z.n / z.all_ranks * rates.row_s
    return _stage("learned features", parts, rows, 0.0, z.threads)


def _fitting(
    plan: MemoryPlan, sizes: FitSizes, rates: Rates, epochs: int, stored: bool, sweeps: tuple[int, int]
) -> TimePlan:
    """Return the time of a fit whose kernel is known."""
    if sizes.costs.by_rows:
        return _by_rows(plan, sizes, rates, epochs, sweeps)
    z = _with_batch(sizes, rates.batch)
    keeps = bool(plan.kept or plan.disk) and not stored
    write = z.blocks_bytes / rates.disk.write if plan.disk and rates.disk is not None else 0.0
    read_back = z.blocks_bytes / rates.disk.read if plan.disk and rates.disk is not None else 0.0
    first = _epoch("first epoch", z, rates, fresh=True, rows=True, disk=write, stored=stored)
    first = _with_new_memory(first, plan.kept / rates.fresh)
    needs_rows = not plan.keeps_rows and (not keeps or z.window > 1)
    later = _epoch("each later epoch", z, rates, fresh=not keeps, rows=needs_rows, disk=read_back, stored=stored)
    first = _joined(first.name, [first, *[later] * (sweeps[0] - 1)])
    later = _joined(later.name, [later] * sweeps[1])
    setup = _stage("set-up", z.costs.setup_seconds(z, rates, stored))
    total = setup.seconds + first.seconds + (epochs - 1) * later.seconds
    return TimePlan((setup, first, later), total, z.m)


def _by_rows(plan: MemoryPlan, z: FitSizes, rates: Rates, epochs: int, sweeps: tuple[int, int]) -> TimePlan:
    """Return the time of a fit whose rows are distributed."""
    keeps = bool(plan.kept or plan.disk)
    write = z.blocks_bytes / rates.disk.write if plan.disk and rates.disk is not None else 0.0
    read_back = z.blocks_bytes / rates.disk.read if plan.disk and rates.disk is not None else 0.0
    rows = z.own_rows * rates.row_s

    def sweep(name: str, fresh: bool, disk: float) -> Stage:
        parts = z.costs.sweep_seconds(z, rates, fresh=fresh, stored=False)
        parts += [("collectives", _COLLECTIVE_S)] * (z.ranks > 1)
        return _stage(name, parts, rows * fresh, disk, z.threads)

    setup = _stage("set-up", z.costs.setup_seconds(z, rates, False))
    fresh, again = sweep("", True, write), sweep("", not keeps, read_back)
    more = _stage("", z.costs.epoch_seconds(z, rates))
    first = _with_new_memory(_joined("first epoch", [fresh, *[again] * (sweeps[0] - 1), more]), plan.kept / rates.fresh)
    later = _joined("each later epoch", [*[again] * sweeps[1], more])
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


def _with_batch(z: FitSizes, m: int) -> FitSizes:
    """Return the sizes with the expected batch, and a window of as many rows."""
    if z.all_rows or not z.costs.has_subsample:
        return replace(z, m=m, window=1)
    return replace(z, m=m, window=max(1, -(-(z.span or z.window * z.m) // m)), span=0)


def _epoch(name: str, z: FitSizes, rates: Rates, *, fresh: bool, rows: bool, disk: float, stored: bool) -> Stage:
    """Return one epoch: with blocks computed (`fresh`) or kept, rows read or not, `disk` seconds at the disk."""
    steps, projections = z.n / z.m, z.costs.projections(z)
    parts = z.costs.sweep_seconds(z, rates, fresh=fresh, stored=stored)
    disk = 0.0 if stored else disk
    parts.append(("calls", steps * _CALLS * rates.call_s))
    if z.all_ranks > 1:
        each = _COLLECTIVE_S if z.all_ranks < LEAST_RANKS else max(_COLLECTIVE_S, sum_seconds(z, MessageTimes()) / 2)
        if z.groups > 1:
            each = sum_seconds(z, MessageTimes()) / 2
        parts.append(("collectives", 2 * steps * each + (4 * group_count(z.p) - 3) * projections * _COLLECTIVE_S))
    row_s, reading = _reading(z, rates)
    return _stage(name, parts, z.n * row_s * rows, disk, z.threads, reading)


def _reading(z: FitSizes, rates: Rates) -> tuple[float, str]:
    """Return the seconds of a row in one thread of a rank, and what they are spent on."""
    once = rates.row_s / z.all_ranks + z.sent_row_bytes * _SENT_S
    if z.all_ranks == 1 or z.reading == "each" or (z.reading == "auto" and rates.row_s <= once):
        return rates.row_s, "reading"
    return once, "reading and sending"


def _with_new_memory(stage: Stage, seconds: float) -> Stage:
    """Return the stage, longer by the time that the first use of the memory for cached blocks takes."""
    parts = (*stage.parts, ("filling the cache", seconds)) if seconds else stage.parts
    return Stage(stage.name, stage.seconds + seconds, parts)


def _stage(
    name: str,
    parts: list[tuple[str, float]],
    rows: float = 0.0,
    disk: float = 0.0,
    threads: int = 1,
    reading: str = "reading",
) -> Stage:
    """Return the stage; `rows` seconds of `reading` share the threads, `disk` seconds run in parallel with all else."""
    computing = sum(seconds for _, seconds in parts)
    together = max(computing + rows / threads, rows / _READERS, disk)
    if rows:
        parts.append((reading, rows / threads))
    if disk:
        parts.append(("waiting for the disk", max(0.0, disk - computing - rows / threads)))
    return Stage(name, together, tuple(parts))
