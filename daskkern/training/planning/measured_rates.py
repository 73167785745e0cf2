"""Measurement of compute and read rates in a fraction of a second, through the code that a fit itself calls."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from distributed import Client

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.concurrency import compute_threads
from daskkern.backend.namespace import namespace_for, to_device
from daskkern.backend.random import generator
from daskkern.backend.task_names import task_name
from daskkern.cluster.scheduler.task_results import resubmitting, results_of
from daskkern.data.rows.rows import Fields, Rows
from daskkern.data.storage.random_access import GAP
from daskkern.kernels import AutoKernel, Kernel, Linear
from daskkern.linalg import block_width
from daskkern.preconditioners import column_statistics, usable
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes
from daskkern.solvers.preparation import SPECTRAL
from daskkern.training.feeding.disk_rates import DiskRates, measure_disk
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.scratch import scratch_folder
from daskkern.training.planning.speeds import fresh_memory, kernel_times, speeds
from daskkern.training.run.settings import FitSettings, batch_limit
from daskkern.training.setup.explicit_columns import column_functions

_ROWS, _COLUMNS = 1024, 4096  # of the block that is timed
_SAMPLE = 500
_STREAM = 71
_REQUEST_S = 2e-4  # of a byte range on a local disk


@dataclass(frozen=True)
class Rates(ComputeRates):
    """What one rank of this machine reaches while the others work as well.

    Attributes
    ----------
    batch : int
        Rows of an automatic batch, as a small sample has it.
    disk : DiskRates or None
        None where blocks were not to be kept on disk.
    seconds : float
        What the measurement took.
    """

    batch: int
    disk: DiskRates | None
    seconds: float

    def sample_s(self, z: FitSizes, k: int) -> float:
        """Return the seconds of reading `k` random rows: with all others, or by byte ranges if far apart."""
        every = z.n * self.row_s
        far_apart = not z.entries and z.n / k * z.d * z.itemsize > GAP
        return min(every, k * (self.row_s + _REQUEST_S)) if far_apart else every


def calibrate(source: RowSource, settings: FitSettings, sizes: FitSizes, ranks_here: int, with_disk: bool) -> Rates:
    """Measure in this process, on rows of `source` and on the device of the fit.

    Parameters
    ----------
    sizes : FitSizes
        Of the fit: the operands that are timed are cut from them.
    ranks_here : int
        Ranks that will share this machine and are not measuring at this moment: their threads are simulated.
    with_disk : bool
        Measure the folder for scratch files, too, with at most 48 MB.
    """
    begun = time.perf_counter()
    rows = source.open(settings.dtype)
    X, row_s = _read(rows)
    given = settings.kernel
    settings = replace(settings, kernel=given.resolve(X[:512]))
    kernel, points = _columns(rows, settings, X)
    timed = kernel
    if isinstance(given, AutoKernel) and settings.solver.suits_smooth_kernels and kernel is settings.kernel:
        timed = given.slowest(X[:512])
    xp = namespace_for(settings.device)
    # A rank without columns is timed with the usual number: of one, an entry would carry the cost of a whole call.
    m, p = min(_ROWS, sizes.m, X.shape[0]), min(_COLUMNS, sizes.own or _COLUMNS, points.shape[0])
    left, Z = _some(X, m), points[:p]
    threads = sizes.threads * ranks_here
    found = speeds(timed, left, Z, sizes.c, min(block_width(sizes.p, sizes.ranks), 512), threads, xp)
    disk = measure_disk(scratch_folder(settings)) if with_disk else None
    each = 1e9 * ranks_here / (m * p)
    return Rates(
        found.matvec * each,
        found.block * each,
        found.product * each,
        found.factor / ranks_here,
        found.flops64 / ranks_here,
        found.memory / ranks_here,
        (fresh_memory() if xp is np else found.memory) / ranks_here,  # a GPU's memory pool is as fast as its memory
        row_s,
        found.call,
        _expected_batch(settings, kernel, points, X, sizes),
        None if disk is None else replace(disk, write=disk.write / ranks_here, read=disk.read / ranks_here),
        time.perf_counter() - begun,
    )


def product_rate(source: RowSource, settings: FitSettings, n_outputs: int, threads: int) -> float:
    """Return the kernel values a second whose products with `n_outputs` columns this process takes, on its device."""
    X, _ = _read(source.open(settings.dtype))
    settings = replace(settings, kernel=settings.kernel.resolve(X[:512]))
    kernel, points = _columns(source.open(settings.dtype), settings, X)
    left, xp = _some(X, min(_ROWS, X.shape[0])), namespace_for(settings.device)
    with compute_threads(threads):
        seconds = kernel_times(kernel, to_device(left, xp), to_device(points, xp), n_outputs).matvec
    return left.shape[0] * points.shape[0] / seconds


def calibrate_workers(
    client: Client,
    workers: Sequence[str],
    source: RowSource,
    settings: FitSettings,
    sizes: Sequence[FitSizes],
    with_disk: bool,
    ranks_each: Sequence[int],
) -> list[Rates]:
    """Measure on all workers at once, in plain tasks: for ranks of these sizes, one for each worker.

    The workers will have `ranks_each` ranks: more than one where they are virtual.
    """

    def measured() -> list[Rates]:
        futures = {
            worker: client.submit(
                calibrate,
                source,
                settings,
                of_rank,
                each,
                with_disk,
                key=task_name("measure_rates"),
                workers=[worker],
                pure=False,
                retries=0,
                priority=10,
            )
            for worker, of_rank, each in zip(workers, sizes, ranks_each, strict=True)
        }
        return results_of(client, futures)

    return resubmitting(measured)


def worst(rates: list[Rates]) -> Rates:
    """Return the slowest of everything: ranks wait for each other."""
    disks = [rate.disk for rate in rates if rate.disk is not None]
    slow = None
    if disks and len(disks) == len(rates):
        slow = min(disks, key=lambda disk: disk.read)
        slow = replace(
            slow,
            free=min(disk.free for disk in disks),
            write=min(disk.write for disk in disks),
            cached=any(disk.cached for disk in disks),
        )
    costs = {
        name: max(getattr(rate, name) for rate in rates)
        for name in ("matvec_ns", "block_ns", "product_ns", "row_s", "call_s", "seconds")
    }
    speeds = {
        name: min(getattr(rate, name) for rate in rates)
        for name in ("factor_flops", "flops64", "memory", "fresh", "batch")
    }
    return Rates(**costs, **speeds, disk=slow)


def _expected_batch(settings: FitSettings, kernel: Kernel, points: HostArray, X: HostArray, sizes: FitSizes) -> int:
    """Return the rows of a batch that are expected, whatever the method."""
    if settings.solver.auto_batch is not None or settings.basis.drawn_per_step:
        return sizes.m
    if settings.basis.is_explicit:  # a linear model of the features
        kernel, X = Linear(), kernel.block(X, points[: sizes.p]).astype(np.float64)
    if settings.solver.preparation in SPECTRAL or not sizes.auto_batch or sizes.costs.by_rows:
        return expected_batch(kernel, X, sizes)
    S = X[:_SAMPLE]
    return int(min(sizes.m, max(1.0, column_statistics(kernel.block(S, S), None).critical_batch / 2)))


def expected_batch(kernel: Kernel, X: HostArray, z: FitSizes) -> int:
    """Return about half the critical batch that the set-up will find, from the spectrum of a few rows.

    A sample as large as the set-up's is taken where that is small. The eigenvalues that only a larger one shows are
    taken to fall by the power of the last ones seen.
    """
    if not z.auto_batch or z.costs.by_rows:
        return z.m
    size = z.s if 0 < z.s <= _SAMPLE and z.s < X.shape[0] else max(1, min(_SAMPLE, X.shape[0] // 2))
    order = generator(0, _STREAM).permutation(X.shape[0])
    S, H = X[order[:size]], X[order[size : size + _SAMPLE] if X.shape[0] > size else order]  # of one row, that one
    q, wanted = size // 5, max(1, z.q if z.explicit else z.s // 5 if z.costs.has_subsample else z.p)
    gram = kernel.block(S, S).astype(np.float64)
    values, vectors = np.linalg.eigh(gram)
    values, vectors = np.maximum(values[::-1], 1e-12) / size, vectors[:, ::-1]
    least = 1e-6 * float(values[0])
    if not z.costs.has_subsample:  # all of sqrt(l_k l_i) over the largest of them
        tail = values[q] * (np.arange(q + 1, max(wanted, q) + 1) / max(q, 1)) ** -_slope(values, q)
        eigenvalues = np.maximum(np.concatenate([values[:q], tail]), least)
        return int(min(z.m, max(1.0, np.sqrt(eigenvalues / values[0]).sum() / 2)))
    cut = usable(values, q, float(gram.diagonal().max()) / batch_limit(z.s if z.all_rows else z.p))
    # Where the set-up leaves directions out, it does so at the same eigenvalue, whatever its sample.
    next_one = values[q] * (wanted / max(q, 1)) ** -_slope(values, q) if cut == q else values[cut]
    damped, scale = 1 - values[cut] / values[:cut], np.sqrt(values[:cut] * size)
    features = kernel.block(H, S).astype(np.float64) @ (vectors[:, :cut] / scale)
    rest = kernel.block(H, H).astype(np.float64) - (features * damped) @ features.T
    inside = gram.diagonal() - ((vectors[:, :cut] * scale) ** 2 * damped).sum(axis=1)
    beta = max(float(rest.diagonal().max()), float(inside.max()))
    # Rows held out see more than S does.
    excess = max(1.0, float(np.linalg.eigvalsh(rest)[-1]) / H.shape[0] / values[cut])
    return int(min(z.m, max(1.0, np.ceil(beta / (2 * excess * max(float(next_one), least))))))


def _slope(values: FloatArray, q: int) -> float:
    """Return the power by which descending eigenvalues fall up to number q."""
    if q < 1:
        return 0.0
    return max(0.0, float(np.log(values[q // 4] / values[q]) / np.log((q + 1) / (q // 4 + 1))))


def _read(rows: Rows) -> tuple[HostArray, float]:
    """Return the rows of one chunk, and the seconds of one row, as the second reading has them."""
    stop = min(max(rows.chunk_rows, 512), rows.n_rows)
    rows.read(0, stop, Fields.X)  # opens files
    begun = time.perf_counter()
    X = rows.read(0, stop, Fields.X).X
    assert X is not None
    _ = X[generator(0, _STREAM).permutation(stop)]  # rows of a window are shuffled as they come
    return X, (time.perf_counter() - begun) / stop


def _columns(rows: Rows, settings: FitSettings, X: HostArray) -> tuple[Kernel, HostArray]:
    """Return a function and points as the model's columns have them."""
    basis = settings.basis
    if not basis.is_explicit:
        return settings.kernel, _some(X, _COLUMNS)
    return column_functions(rows, settings, -(-_COLUMNS // max(1, basis.drawn_per_step)))


def _some(X: HostArray, count: int) -> HostArray:
    return X[generator(0, _STREAM).integers(0, X.shape[0], count)]
