"""Preparation for solvers with distributed rows, whose ranks compute all but the landmarks."""

import numpy as np

from daskkern.arrays import IntArray
from daskkern.basis import ColumnSet, KernelBasis
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import Rows
from daskkern.data.rows.sweep import SweepPlan
from daskkern.preconditioners.eigenpro import check_range
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Clock, Prepared
from daskkern.training.setup.shared import SUBSAMPLE, is_all, placement_of, some_rows

_PASS_BATCH = 4096


def prepare_rows(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    found: ColumnSet,
    validation: IntArray | None,
    clock: Clock,
) -> Prepared:
    """Preparation for solvers that pass over the rows in order: all but the landmarks is made by the ranks."""
    chosen = found.chosen
    p = chosen.points.shape[0] if chosen.indices is None or not is_all(settings) else len(chosen.indices)
    Z = some_rows(rows, settings) if is_all(settings) else chosen.points
    if not settings.basis.is_explicit:
        check_range(settings.kernel, Z[:SUBSAMPLE])
    plan: BatchPlan | SweepPlan = SweepPlan.for_rows(rows, settings.batch_size, p, settings.batch_elements)
    if settings.solver.parallelism == "columns":
        plan = BatchPlan.for_rows(rows, pass_batch(settings, rows.n_rows), settings.seed)
    none = np.zeros(0, np.int64)
    placement = placement_of(settings.kernel, Z, settings, clock)
    basis = KernelBasis(settings.kernel, p, none, is_all(settings), placement, settings.rounding, found.leaves)
    own = Z if chosen.indices is None else None
    stages, importance = tuple(clock.stages), chosen.weights
    return Prepared(
        basis, chosen.indices, own, Z[:0], None, targets, plan, 1, validation, stages, importance=importance
    )


def pass_batch(settings: FitSettings, n_rows: int) -> int:
    """Return the rows of a batch where no step size limits them."""
    automatic = settings.solver.auto_batch or _PASS_BATCH
    return min(n_rows, automatic if isinstance(settings.batch_size, str) else int(settings.batch_size))
