"""The correlation of the rows within a window of batches, compared with random rows of the store.

Steps and the critical batch follow from the largest eigenvalue l_P of random rows' covariance. Where rows are in the
order of a file, a day or a drift, and a window holds few stretches of them, the rows of a batch have more of one
direction in common: its covariance has a larger eigenvalue, and steps for random rows diverge.
"""

from collections.abc import Callable

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.random import generator
from daskkern.data.rows.batch_plan import BatchPlan, window_positions
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Rows, take
from daskkern.preconditioners.eigenpro import top_eigenvalue
from daskkern.training.feeding.sampling import Sampling
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.row_sizes import RowSizes
from daskkern.training.setup.shared import batch_plan, flat, present

Gram = Callable[[FeatureRows], HostArray]
"""From rows (m, d) to their preconditioned inner products (m, m), float64, without weights."""

_ROWS, _WINDOWS = 500, 2
_CHANCE = 1.25
"""Times the eigenvalue of as many random rows up to which that of a window's rows is no more than chance."""
_STREAM = 60


def window_eigenvalue_ratio(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    sampling: Sampling | None,
    sizes: RowSizes,
    gram: Gram,
    held: int,
    width: int = 0,
) -> float:
    """Return how many times l_P of the whole store that of a batch's rows is; 1 where one window holds all rows.

    The largest over two windows of the first epoch. Equal numbers of rows are compared, because eigenvalues of few rows
    are too large. `held` and `width` are as for the plan of the batches.
    """
    plan = batch_plan(rows, settings, 2.0, held, width)
    if plan.n_windows == 1 or sampling is not None:
        return 1.0
    drawn = generator(settings.seed, _STREAM).choice(rows.n_rows, min(_WINDOWS * _ROWS, rows.n_rows), replace=False)
    usual = max(_top(rows, targets, sizes, gram, part, settings.seed) for part in np.array_split(drawn, _WINDOWS))
    found = [_top(rows, targets, sizes, gram, at, settings.seed) for at in _windows(plan)]
    ratio = max(found) / usual if usual > 0 else 1.0
    return ratio if ratio > _CHANCE else 1.0


def _windows(plan: BatchPlan) -> list[HostArray]:
    """Return the numbers of rows of the first windows of the first epoch, as they come to be batches."""
    return [window_positions(plan, int(window), 1)[:_ROWS] for window in plan.windows(1)[:_WINDOWS]]


def _top(rows: Rows, targets: Targets, sizes: RowSizes, gram: Gram, at: HostArray, seed: int) -> float:
    """Return the largest eigenvalue of the covariance of the rows `at`, without those that are beyond the usual."""
    block = take(rows, np.sort(at))
    weight = targets.weight(block)
    beyond = sizes.excess(present(block), weight)
    kept = np.ones(len(at), bool) if beyond is None or not beyond.size else beyond == 0
    if not kept.any():
        return 0.0
    G: FloatArray = np.asarray(gram(present(block)[kept]), np.float64)
    counted = flat(weight)
    if counted is not None:
        root = np.sqrt(counted[kept])
        G = G * root[:, None] * root
    return top_eigenvalue(G, seed) / len(G)
