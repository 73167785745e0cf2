"""Helpers of all set-ups: rows by number, sampled rows for step sizes, and the plan of batches."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from dask.base import compute
from dask.delayed import delayed
from distributed import default_client

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.task_names import task_name
from daskkern.backend.tiles import slices
from daskkern.basis import BasisSpec
from daskkern.data.rows.batch_plan import DEFAULT_WINDOW_BYTES, BatchPlan
from daskkern.data.rows.rows import Fields, RowBlock, Rows, take
from daskkern.data.rows.samples import sampled_rows
from daskkern.kernels import Kernel, Placement, arithmetic_note, length_scale_note
from daskkern.preconditioners import SpectrumSettings
from daskkern.solvers.preparation import SpectrumRequest
from daskkern.training.feeding.batch_reshuffling import reshuffles_batches
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sampling import Sampling
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Clock, training_rows

SUBSAMPLE = 2000
TARGETS = Fields.y | Fields.weight
_HELD_OUT = 2000
_HELD = 51


def some_rows(rows: Rows, settings: FitSettings) -> HostArray:
    """Return the features of at most 2,000 rows."""
    return sampled_rows(rows, settings.seed)


def placement_of(kernel: Kernel, Z: HostArray, settings: FitSettings, clock: Clock) -> Placement:
    """Return how rows are prepared for products with points like `Z`.

    It is said where that is in wider arithmetic, and where the length scale does not go with the rows.
    """
    notes = {"length scale": length_scale_note(kernel, Z), "arithmetic": arithmetic_note(kernel, Z, settings.rounding)}
    for name, note in notes.items():
        if note:
            clock.stage(name, note)
    return kernel.placement_for(Z)


def is_all(settings: FitSettings) -> bool:
    return settings.basis.all_rows


def fewer_columns(basis: BasisSpec, n_rows: int, found: int) -> str:
    """Return why there are fewer landmarks than the settings say, to put behind their number; "" where they are all.

    Parameters
    ----------
    basis : BasisSpec
    n_rows : int
        Training rows.
    found : int
        Landmarks, or columns made of them.
    """
    requested = basis.n_landmarks
    if requested is None or found >= requested:
        return ""
    if basis.own_points is None and requested > n_rows:
        return f" (landmarks={requested:,}, but there are {n_rows:,} training rows)"
    return f" (landmarks={requested:,}; repeated or dependent ones are left out)"


def held_out_rows(
    rows: Rows, settings: FitSettings, targets: Targets, sampling: Sampling | None, in_S: IntArray
) -> tuple[RowBlock, HostArray | None]:
    """Return random rows as batches have them, but for those `in_S`, and what they count there."""
    sampled = generator(settings.seed, _HELD).permutation(rows.n_rows)[: 4 * _HELD_OUT + in_S.size]
    if sampling is None:
        block = take(rows, np.sort(sampled[~np.isin(sampled, in_S)][:_HELD_OUT]))
        return block, flat(targets.weight(block))
    drawn = sampling.rows(rows, 0).originals(np.sort(sampled))
    outside = drawn[~np.isin(drawn, in_S)]
    kept = np.sort(generator(settings.seed, _HELD, 1).permutation(outside.size)[:_HELD_OUT])
    block = take(rows, outside[kept])
    return block, flat(sampling.weight(block))


def present(block: RowBlock) -> HostArray:
    assert block.X is not None
    return block.X


def flat(weight: HostArray | None) -> HostArray | None:
    return None if weight is None else weight[:, 0].astype(np.float64)


def spectrum_settings(wanted: SpectrumRequest, device: str) -> SpectrumSettings:
    """Return how the spectrum of a preconditioner is found and damped, and where."""
    return SpectrumSettings(wanted.directions, wanted.rho, wanted.tau, wanted.eigen_method, device)


def batch_plan(rows: Rows, settings: FitSettings, critical: float, held: int, width: int = 0) -> BatchPlan:
    """Return the batches. Windows are sized for rows of `width` numbers, if that is more than the features."""
    reshuffle = reshuffles_batches(settings, rows.n_rows, rows.row_bytes)
    size = settings.batch_size
    batch = int(min(max(np.ceil(critical / 2), 1), settings.batch_limit(held))) if isinstance(size, str) else int(size)
    window_bytes = DEFAULT_WINDOW_BYTES * rows.n_features // max(width, rows.n_features)
    return BatchPlan.for_rows(
        rows, min(batch, rows.n_rows), settings.seed, window_bytes, reshuffle=reshuffle,
        same_order=settings.sampling == "fixed",
    )  # fmt: skip


def tasks_of_a_pass() -> int:
    """Return how many tasks read all rows: one for each worker of the active client, else one for each of 2 threads."""
    try:
        return max(1, len(default_client().scheduler_info(n_workers=-1)["workers"]))
    except ValueError:
        return 2


@dataclass(frozen=True, eq=False)
class RowValues:
    """Computes a function of the features of all training rows, by tasks that each read a share of them.

    The function gets `chunks` chunks of the rows at a time, the same ones for any number of tasks, so that results have
    the same bits. `n_tasks` is that of :func:`tasks_of_a_pass` where it is None.
    """

    source: RowSource
    dtype: str
    validation: IntArray | None
    chunks: int = 16
    n_tasks: int | None = None

    def __call__(self, function: Callable[[HostArray], HostArray]) -> HostArray:
        rows = training_rows(self.source.open(self.dtype), self.validation)
        n, step = rows.n_rows, self.chunks * rows.chunk_rows
        shares = slices(n, step * -(-max(1, -(-n // step)) // (self.n_tasks or tasks_of_a_pass())))
        if len(shares) == 1:
            return self._share(function, shares[0], step)
        share = delayed(self._share, pure=False)
        parts = [share(function, part, step, dask_key_name=task_name("row_values")) for part in shares]
        return np.concatenate(compute(*parts))

    def _share(self, function: Callable[[HostArray], HostArray], part: slice, step: int) -> HostArray:
        rows = training_rows(self.source.open(self.dtype), self.validation)
        starts = range(part.start, part.stop, step)
        blocks = (rows.read(start, min(start + step, part.stop), Fields.X) for start in starts)
        return np.concatenate([function(present(block)) for block in blocks])
