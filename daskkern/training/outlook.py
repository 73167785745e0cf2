"""The memory plan of a fit that has not begun: the same arithmetic, with upper bounds for what only data can tell."""

from daskkern.basis import AllRows, Landmarks
from daskkern.data.plan import BatchPlan
from daskkern.solvers import EigenPro, NystromSGD
from daskkern.training.fit import PreparedSummary, check, holds_out, plan_for
from daskkern.training.memory import MemoryPlan
from daskkern.training.prepare import default_subsample, most_validation_rows, projection_window
from daskkern.training.settings import FitSettings
from daskkern.training.sources import Source


def outlook(source: Source, settings: FitSettings, ranks: int, threads: int, budget: int) -> MemoryPlan:
    """Return an upper bound of the plan of one rank, without reading rows."""
    check(settings, source)
    n = source.info.n_rows
    held_out = most_validation_rows(n, settings) if holds_out(settings, None) else 0
    n -= held_out
    basis = settings.basis
    p = n if isinstance(basis, AllRows) else min(n, basis.n if basis.points is None else len(basis.points))
    s = default_subsample(settings.solver, p) if isinstance(settings.solver, EigenPro) else 0
    limit = settings.batch_limit(s if isinstance(basis, AllRows) else p)
    m = min(n, limit if isinstance(settings.batch_size, str) else int(settings.batch_size))
    rows = source.open(settings.dtype)
    plan = BatchPlan.for_rows(rows, m, settings.seed)
    solver = settings.solver
    # More centres in smaller batches: the window of a small batch bounds the temporary centres from above.
    window = projection_window(solver, p, rows.n_features, 1) if isinstance(solver, EigenPro) else 1
    classes = source.info.classes
    summary = PreparedSummary(
        p=p,
        s=s,
        q=s // 5 if isinstance(solver, EigenPro) and solver.n_directions == "auto" else s,
        m=m,
        window=-(-window // m) if isinstance(basis, Landmarks) else 1,
        n=n,
        n_outputs=len(classes) if classes else source.info.n_targets,
        window_rows=plan.window_rows if not isinstance(solver, NystromSGD) else plan.chunk_rows,
        validation=held_out,
    )
    return plan_for(summary, source, settings, ranks, threads, budget)
