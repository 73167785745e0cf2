"""Before the first step of methods without a preconditioner: the columns, and what step sizes follow from."""

import numpy as np
import scipy.sparse

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis import AllRows, KernelBasis, Linear, NystromFeatures, RandomFeatures
from daskkern.data.rows import Rows, take
from daskkern.errors import DataError
from daskkern.features import random_columns
from daskkern.kernels import Coordinate, Kernel, Mapped, nystrom_map
from daskkern.kernels.points import squared_norms
from daskkern.landmarks import LandmarkSet, parse_selector
from daskkern.preconditioners import ColumnStatistics, column_statistics
from daskkern.training.prepare_parts import SUBSAMPLE, TARGETS, batch_plan, features_at, flat, is_all, some_rows
from daskkern.training.prepared import Clock, Prepared
from daskkern.training.sampling import Sampling
from daskkern.training.settings import FitSettings
from daskkern.training.targets import Targets

_SAMPLED = 55
_BLOCK = 512


def prepare_columns(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    sampling: Sampling | None,
    validation: IntArray | None,
    clock: Clock,
) -> Prepared:
    """Return what first-order methods need, over any function space but that of landmarks."""
    kernel, points = column_functions(rows, settings)
    everything = is_all(settings)
    p = rows.n_rows if everything else points.shape[0]
    clock.stage("basis", f"all {p} rows" if everything else f"{p} {settings.basis.name}")
    sample = np.sort(generator(settings.seed, _SAMPLED).permutation(rows.n_rows)[:SUBSAMPLE])
    statistics = sampled_statistics(rows, targets, kernel, points, sample, everything)
    clock.stage(
        "sizes",
        f"largest square {statistics.beta:.3g}, largest eigenvalue {statistics.top:.3g}, "
        f"critical batch {statistics.critical_batch:.0f}",
    )
    plan = batch_plan(rows, settings, 2 * (settings.solver.auto_batch or statistics.critical_batch / 2), p)
    shift = kernel.shift_for(some_rows(rows, settings)) if everything else kernel.shift_for(points)
    basis = KernelBasis(kernel, p, np.zeros(0, np.int64), everything, shift, settings.rounding)
    indices = np.arange(p) if everything else None
    own = None if everything else points
    none = np.empty((0, rows.n_features), settings.dtype)
    return Prepared(basis, indices, own, none, statistics, targets, plan, 1, validation, tuple(clock.stages), sampling)


def column_functions(rows: Rows, settings: FitSettings) -> tuple[Kernel, HostArray]:
    """Return the function of the columns, and their points (p, ...); none where all rows are the columns."""
    basis, d = settings.basis, rows.n_features
    if isinstance(basis, AllRows):
        return settings.kernel, np.empty((0, d), settings.dtype)
    if isinstance(basis, Linear):
        units = scipy.sparse.identity(d, settings.dtype, "csr")
        if basis.intercept:
            units = scipy.sparse.vstack([units, scipy.sparse.csr_matrix((1, d), dtype=settings.dtype)], format="csr")
        return Coordinate(), units
    if isinstance(basis, RandomFeatures):
        scale = float(np.sqrt(np.mean(squared_norms(some_rows(rows, settings)))))
        return random_columns(settings.kernel, basis.kind, basis.n, d, settings.seed, settings.dtype, scale)
    assert isinstance(basis, NystromFeatures)
    chosen = parse_selector(basis.selector).select(rows, settings.kernel, basis.n, settings.seed)
    return _nystrom_columns(chosen, settings)


def _nystrom_columns(chosen: LandmarkSet, settings: FitSettings) -> tuple[Kernel, HostArray]:
    Z = chosen.points
    K = settings.kernel.block(Z, Z).astype(np.float64)
    if not np.isfinite(K).all():
        raise DataError(f"the {settings.kernel.name} kernel is not finite on the landmarks; scale the features")
    M = nystrom_map(K, 10 * float(np.finfo(settings.dtype).eps))
    return Mapped(settings.kernel, Z), np.ascontiguousarray(M.astype(settings.dtype))


def sampled_statistics(
    rows: Rows, targets: Targets, kernel: Kernel, points: HostArray, sample: IntArray, everything: bool
) -> ColumnStatistics:
    """Return the sizes of the rows numbered `sample` in the columns' coordinates."""
    X = features_at(rows, sample)
    weight = flat(targets.weight(take(rows, sample, TARGETS)))
    if everything:
        return column_statistics(kernel.block(X, X), weight)
    gram = np.zeros((len(sample), len(sample)))
    shift = kernel.shift_for(points)
    if isinstance(kernel, Coordinate):
        values = kernel.columns(X, kernel.points(points))
        gram += (values @ values.T).toarray() if scipy.sparse.issparse(values) else values @ values.T
        return column_statistics(gram, weight)
    for part in slices(points.shape[0], _BLOCK):
        phi = kernel.block(X, kernel.points(points[part], shift))
        gram += phi @ phi.T
    return column_statistics(gram, weight)
