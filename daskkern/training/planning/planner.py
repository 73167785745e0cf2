"""From settings and sizes to the memory plan of a rank, for prepared fits and before preparation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskkern.backend.devices import gpus
from daskkern.cluster.connect.local import Pool
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.sweep import SweepPlan
from daskkern.solvers.sampling import draws_rows
from daskkern.training.feeding.batch_reshuffling import reshuffles_batches
from daskkern.training.feeding.block_cache_policy import without_blocks
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.stored_features import is_stored
from daskkern.training.planning.memory_by_columns import budget_of_shard
from daskkern.training.planning.memory_plan import LIMIT_SHARE, FitSizes, MemoryPlan, available_memory, plan_memory
from daskkern.training.planning.sizes_of_fits import PreparedSummary, sizes_of
from daskkern.training.run.held_out_sizes import rows_set_aside
from daskkern.training.run.job import check_settings
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import begin, finish
from daskkern.training.setup.prepared import Prepared
from daskkern.training.setup.projections import with_factor
from daskkern.training.setup.row_sharded import pass_batch

_LEAST_BATCH = 16
_POOL_MARGIN = 1.1  # arrays do not fill a pool without gaps
_SMALL_ROWS, _SMALL_NUMBERS = 2000, 4_000_000


@dataclass(frozen=True)
class ExpectedSetup:
    """What a plan knows of the set-up of a fit.

    Attributes
    ----------
    summary : PreparedSummary
        Its sizes: those of the fit where the set-up was made, else upper bounds.
    settings : FitSettings
        Of the fit, with the batch of the set-up where it was made.
    timed : FitSettings
        The same, with the kernel that the set-up chose.
    batch : int or None
        The batch that the fit says it takes, where the set-up was made; batches of one size have no more rows.
    """

    summary: PreparedSummary
    settings: FitSettings
    timed: FitSettings
    batch: int | None


def expected_setup(
    source: RowSource, settings: FitSettings, *, wide: bool = False, on_gpu: bool = False
) -> ExpectedSetup:
    """Return what the set-up of a fit is expected to find: for few rows it is made, as the fit makes it.

    Kernel and spectrum of few rows take about a second, and are no guide to those of a part of them.
    """
    if on_gpu or settings.learn_features is not None or not _is_small(source, settings):
        return ExpectedSetup(upper_bound_summary(source, settings, wide=wide), settings, settings, None)
    check_settings(settings, source)
    draft = begin(source, settings, rows_set_aside(source.info.n_rows, settings) > 0)
    prepared = finish(source, draft)
    summary, batch = summarise(prepared, settings), prepared.plan.batch_size
    known = replace(settings, batch_size=batch)
    return ExpectedSetup(summary, known, replace(known, kernel=draft.settings.kernel), batch)


def _is_small(source: RowSource, settings: FitSettings) -> bool:
    n = source.info.n_rows
    columns = _most_columns(source, settings, n) if n <= _SMALL_ROWS else 0
    return n <= _SMALL_ROWS and n * max(source.info.n_features, columns) <= _SMALL_NUMBERS


def upper_bound_plan(
    source: RowSource,
    settings: FitSettings,
    ranks: int,
    threads: int,
    budget: int,
    device_budget: int | None = None,
    *,
    wide: bool = False,
) -> MemoryPlan:
    """Return an upper bound of the plan of one rank, without reading rows. Not yet: where blocks are kept.

    `wide` says that products are made in float64 within.
    """
    summary = upper_bound_summary(source, settings, wide=wide)
    return plan_for(summary, source, settings, ranks, threads, budget, device_budget)


def upper_bound_summary(source: RowSource, settings: FitSettings, *, wide: bool = False) -> PreparedSummary:
    """Return upper bounds of the sizes that the set-up will find, without reading rows."""
    check_settings(settings, source)
    n = source.info.n_rows
    held_out = rows_set_aside(n, settings)
    n -= held_out
    basis = settings.basis
    p = _most_columns(source, settings, n)
    wanted = settings.solver.spectrum(p, n, basis.is_explicit)
    s = wanted.rows
    limit = settings.batch_limit(s if basis.all_rows else p)
    limit = min(limit, settings.solver.auto_batch or limit)
    m = min(n, limit if isinstance(settings.batch_size, str) else int(settings.batch_size))
    rows = source.open(settings.dtype)
    solver = settings.solver
    reshuffle = reshuffles_batches(settings, rows.n_rows, rows.row_bytes)
    plan: BatchPlan | SweepPlan = BatchPlan.for_rows(rows, m, settings.seed, reshuffle=reshuffle)
    if solver.preparation == "nothing":
        m = pass_batch(settings, n)
        plan = BatchPlan.for_rows(rows, m, settings.seed)
    if solver.parallelism != "columns":
        plan = SweepPlan.for_rows(rows, settings.batch_size, p, settings.batch_elements)
        m = min(n, plan.batch_size)
    # Smaller batches than this bound mean more of them between projections: the rows between two stay below `span`.
    window = solver.projection_window(p, rows.n_features, m)
    span = 0
    if basis.needs_projection and isinstance(settings.batch_size, str):
        span = solver.projection_span(p, rows.n_features, m)
    classes = source.info.classes
    return PreparedSummary(
        p=p,
        s=s,
        q=wanted.most,
        m=m,
        window=window if basis.needs_projection else 1,
        n=n,
        n_outputs=len(classes) if classes else source.info.n_targets * settings.loss.heads,
        window_rows=plan.chunk_rows if solver.preparation == "eigenbasis" else most_window_rows(plan),
        chunk_rows=plan.chunk_rows,
        validation=held_out if settings.early_stopping is not None else 0,
        stored=solver.storage == "always",
        span=span,
        wide=wide,
        reshuffle=isinstance(plan, BatchPlan) and plan.reshuffle,
    )


def device_pool(source: RowSource, settings: FitSettings, devices: Sequence[int | str]) -> Pool:
    """Return what the ranks of a worker on each of these GPUs of this machine will use of it, kept blocks included.

    An upper bound, and at most what ranks may plan with; the GPU with the least free memory counts. Nothing for a fit
    on the CPU, and where the driver does not tell.
    """
    there = gpus()
    chosen = [there[k] for k in devices if isinstance(k, int) and k < len(there)]
    free = min((gpu.free for gpu in (chosen if len(chosen) == len(devices) else there)), default=0)
    most, n = int(LIMIT_SHARE * free), len(devices)
    if settings.device == "cpu" or not most:
        return Pool(0, 0)
    each = settings.shards_each(n)
    budget = budget_of_shard(available_memory(n), each)
    plan = upper_bound_plan(source, settings, settings.shards(n), 1, budget, most // each)
    return Pool(min(most, int(_POOL_MARGIN * each * (plan.device_total + plan.kept))), most)


def _most_steps(source: RowSource, settings: FitSettings, n: int) -> int:
    """Return the steps of the run; a few more where the batch is automatic."""
    automatic = isinstance(settings.batch_size, str)
    m = settings.solver.auto_batch or _LEAST_BATCH if automatic else int(settings.batch_size)
    plan = BatchPlan.for_rows(source.open(settings.dtype), min(n, m), settings.seed)
    return plan.n_batches * settings.max_epochs


def _most_columns(source: RowSource, settings: FitSettings, n: int) -> int:
    return settings.basis.most_columns(n, source.info.n_features, lambda: _most_steps(source, settings, n))


def check_before(
    source: RowSource, settings: FitSettings, held_out: bool, ranks: int, threads: int, budget: int
) -> None:
    """Refuse, before any work, a fit that does not fit with the smallest batch either. Raises MemoryBudgetError."""
    upper_bound_plan(source, least_settings(settings, held_out), ranks, threads, budget).check()


def least_settings(settings: FitSettings, held_out: bool) -> FitSettings:
    """Return the settings with what takes the least memory: the smallest batch, and no blocks that are kept."""
    # Smaller batches are more steps, and with features that grow more columns.
    smaller = isinstance(settings.batch_size, str) and not settings.basis.drawn_per_step
    least = replace(settings, batch_size=_LEAST_BATCH) if smaller else settings
    early = settings.early_stopping if held_out else None
    return replace(least, early_stopping=early, calibrate=held_out and settings.calibrate, keep_blocks="never")


def summarise(prepared: Prepared, settings: FitSettings, machines: Iterable[str] = ()) -> PreparedSummary:
    """Return the sizes of `prepared`, for workers on these machines."""
    state = prepared.state
    plan = prepared.plan
    return PreparedSummary(
        p=prepared.basis.n_columns,
        s=settings.solver.spectrum(prepared.basis.n_columns, plan.n_rows, settings.basis.is_explicit).rows,
        q=0 if state is None else state.n_damped,
        m=int(np.max(plan.batch_sizes)),
        window=prepared.window,
        n=plan.n_rows,
        n_outputs=prepared.targets.n_outputs,
        window_rows=most_window_rows(plan),
        chunk_rows=plan.chunk_rows,
        validation=0 if prepared.validation is None else prepared.validation.size,
        stored=is_stored(prepared, settings, machines),
        wide=prepared.basis.placement.becomes_float64(settings.dtype, settings.rounding),
        reshuffle=isinstance(plan, BatchPlan) and plan.reshuffle,
    )


def _ways_to_keep(settings: FitSettings) -> str:
    """Return where kernel blocks may be kept: nowhere if they are used once."""
    return "never" if settings.keep_blocks == "auto" and settings.passes == 1 else settings.keep_blocks


def most_window_rows(plan: BatchPlan | SweepPlan) -> int:
    """Return the most rows of a window, in whole parts; of a batch where there are no windows."""
    if isinstance(plan, SweepPlan):
        return plan.batch_size
    return plan.most_window_rows


def plan_for(
    summary: PreparedSummary,
    source: RowSource,
    settings: FitSettings,
    ranks: int,
    threads: int,
    budget: int,
    device_budget: int | None = None,
    groups: int = 1,
) -> MemoryPlan:
    """Return the memory plan of one rank; `device_budget` is None where the fit runs on the CPU."""
    sizes = sizes_of(summary, source, settings, ranks, threads, on_device=device_budget is not None, groups=groups)
    sizes = with_factor(sizes, settings.solver, budget, device_budget or 0)
    return plan_of(sizes, settings, budget, device_budget, stored=summary.stored)


def plan_of(
    sizes: FitSizes, settings: FitSettings, budget: int, device_budget: int | None, *, stored: bool
) -> MemoryPlan:
    """Return the memory plan of a rank of these sizes; `stored` says that eigenfeatures are on disk."""
    plan = plan_memory(
        sizes,
        budget,
        device_budget or 0,
        _ways_to_keep(settings),
        same_batches=not draws_rows(settings.sampling),
        epochs=1 if stored else settings.passes,
    )
    return without_blocks(plan) if stored else plan
