"""Preparation of a fit: targets, columns and the solver's set-up, computed once, where Dask runs."""

from dataclasses import replace

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.namespace import free_unused_memory, namespace_with
from daskkern.backend.random import generator
from daskkern.basis import ColumnSet
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import Rows
from daskkern.data.rows.samples import counted, features_at, some_positions
from daskkern.data.schema.column_scaling import Scaling
from daskkern.errors import DataError
from daskkern.training.checkpoints.partial_fit import prepare_next
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sampling import learn_sampling
from daskkern.training.feeding.targets import Targets, learn_targets
from daskkern.training.run.held_out_sizes import MOST_CALIBRATION_ROWS, check_share, rows_set_aside
from daskkern.training.run.held_sample import HeldSample
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import ChoiceRows
from daskkern.training.setup.eigenpro import prepare_eigenpro
from daskkern.training.setup.explicit_columns import prepare_columns, request_of
from daskkern.training.setup.kernel_choice import with_kernel
from daskkern.training.setup.learned_metric import FoundMetric, metric_here, with_found_metric, with_learned_metric
from daskkern.training.setup.nystrom_sgd import prepare_nystrom
from daskkern.training.setup.penalty import with_penalty
from daskkern.training.setup.prepared import Clock, Draft, Prepared, training_rows
from daskkern.training.setup.row_sharded import prepare_rows
from daskkern.training.setup.scaling import learn_scaling, scaled_points, with_scaling
from daskkern.training.setup.shared import RowValues, fewer_columns, is_all

_VALID, _CALIBRATION = 53, 93


def prepare(source: RowSource, settings: FitSettings, held_out: bool, earlier: Prepared | None = None) -> Prepared:
    """Compute what the ranks need. With `held_out`, some rows are set aside first.

    All but the batches is that of `earlier`, where there is one. Dask arrays inside are computed by the active client,
    or by Dask's threads in this process. A pass over all rows for the metric of the kernel is made in this process.
    """
    if earlier is not None:
        settings = replace(settings, basis=scaled_points(settings.basis, source, earlier.scaling))
        rows = with_scaling(source, earlier.scaling).open(settings.dtype)
        return replace(prepare_next(earlier, rows, settings, Clock()), scaling=earlier.scaling)
    draft = begin(source, settings, held_out)
    found = None if draft.pending is None else metric_here(source, draft)
    return finish(source, draft, found)


def begin(source: RowSource, settings: FitSettings, held_out: bool) -> Draft:
    """Compute what comes before the columns: scaling, targets and the kernel, as far as sampled rows know it."""
    try:
        scaling = learn_scaling(source, settings)
        settings = replace(settings, basis=scaled_points(settings.basis, source, scaling))
        return _drafted(with_scaling(source, scaling), settings, held_out, scaling)
    finally:
        free_unused_memory(namespace_with(settings.device, 0))


def _drafted(source: RowSource, settings: FitSettings, held_out: bool, scaling: Scaling) -> Draft:
    clock = Clock()
    rows: Rows = source.open(settings.dtype)
    _check_size(rows)
    validation = validation_rows(rows.n_rows, settings) if held_out else None
    everything, rows = rows, training_rows(rows, validation)
    targets = learn_targets(rows, settings)
    positions = some_positions(rows.n_rows, settings.seed)
    held = HeldSample.of(rows, features_at(rows, positions), positions, targets)
    sample = counted(held.X, held.weight)
    said = f"{rows.n_rows:,} rows, {targets.n_outputs} output{'s' * (targets.n_outputs != 1)}"
    clock.stage("targets", f"{said}; {source.note}" if source.note else said)
    choice = ChoiceRows(rows, targets, settings.seed)
    requested = settings.kernel
    settings = with_kernel(settings, source.info, choice, sample, clock)
    settings, pending = with_learned_metric(settings, requested, choice, clock)
    aside = None if validation is None or not settings.calibrate else _aside(everything, validation, settings, targets)
    return Draft(settings, scaling, targets, validation, held, aside, tuple(clock.stages), pending)


def finish(source: RowSource, draft: Draft, found: FoundMetric | None = None) -> Prepared:
    """Compute the rest, with the metric that was `found` in a pass over all rows, where one was made."""
    source, clock = with_scaling(source, draft.scaling), Clock(draft.stages)
    settings = draft.settings if found is None else with_found_metric(draft, found, clock)
    try:
        rows = training_rows(source.open(settings.dtype), draft.validation)
        choice = ChoiceRows(rows, draft.targets, settings.seed)
        prepared = _set_up(source, rows, settings, draft.targets, draft.validation, clock)
        prepared = replace(prepared, held=draft.held, calibration=draft.calibration, scaling=draft.scaling)
        prepared = _with_reads(prepared, rows, clock)
        return with_penalty(prepared, source, choice, settings, clock)
    finally:
        free_unused_memory(namespace_with(settings.device, 0))


def _set_up(
    source: RowSource, rows: Rows, settings: FitSettings, targets: Targets, validation: IntArray | None, clock: Clock
) -> Prepared:
    """Return the columns, and what the solver declares that it needs once for all ranks."""
    needed = settings.solver.preparation
    if needed == "statistics" or (needed == "spectrum" and settings.basis.is_explicit):
        return prepare_columns(rows, settings, targets, learn_sampling(rows, settings, targets), validation, clock)
    request = replace(request_of(settings), map_features=RowValues(source, settings.dtype, validation))
    found = settings.basis.columns(rows, request)
    settings, chosen = replace(settings, kernel=found.kernel), found.chosen
    p = chosen.points.shape[0]
    few = fewer_columns(settings.basis, rows.n_rows, p)
    clock.stage("landmarks", _centres(found, rows.n_rows) if is_all(settings) else f"{p:,} points{few}")
    if needed == "nothing":
        return prepare_rows(rows, settings, targets, found, validation, clock)
    sampling = learn_sampling(rows, settings, targets)
    if needed == "eigenbasis":
        return prepare_nystrom(source, rows, settings, targets, chosen, sampling, validation, clock)
    return prepare_eigenpro(rows, settings, targets, chosen, sampling, validation, clock)


def _with_reads(prepared: Prepared, rows: Rows, clock: Clock) -> Prepared:
    """Return the set-up with a line on how often chunks are decoded, if that is more than once per epoch."""
    plan = prepared.plan
    if not isinstance(plan, BatchPlan) or not rows.decodes_chunks or plan.chunk_reads == 1:
        return prepared
    clock.stage(
        "batches",
        f"the compressed chunks of {rows.chunk_rows:,} rows are decoded {plan.chunk_reads} times per epoch; chunks of "
        f"{plan.part_rows:,} rows are decoded once, and stores that daskkern writes are not compressed",
    )
    return replace(prepared, stages=tuple(clock.stages))


def _centres(found: ColumnSet, n_rows: int) -> str:
    if found.leaves is None:
        return f"all {n_rows:,} rows"
    sizes = np.bincount(found.leaves)
    trees = f" of {len(found.leaves) // n_rows} trees" if len(found.leaves) > n_rows else ""
    return f"all {n_rows} rows in {len(sizes)} leaves{trees}, of {sizes.min()} to {sizes.max()}"


def _check_size(rows: Rows) -> None:
    if rows.n_rows < 2 or rows.n_features < 1:
        raise DataError(
            f"a fit needs at least 2 rows and 1 feature, but the data has n_samples={rows.n_rows} rows and "
            f"{rows.n_features} features"
        )


def _aside(rows: Rows, validation: IntArray, settings: FitSettings, targets: Targets) -> HeldSample:
    """Return the rows, of those that were set aside, that the model is calibrated on."""
    some = generator(settings.seed, _CALIBRATION).permutation(validation)[:MOST_CALIBRATION_ROWS]
    chosen = np.sort(some).astype(np.int64)
    return HeldSample.of(rows, features_at(rows, chosen), chosen, targets)


def validation_rows(n_rows: int, settings: FitSettings) -> IntArray:
    """Return the numbers of the rows that the fit sets aside, ascending."""
    k = rows_set_aside(n_rows, settings)
    check_share(n_rows, k, settings)
    chosen = generator(settings.seed, _VALID).choice(n_rows, size=k, replace=False)
    return np.sort(chosen).astype(np.int64)
