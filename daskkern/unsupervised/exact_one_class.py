"""The exact one-class SVM for many rows, with cached kernel rows.

References
----------
See :mod:`daskkern.solvers.support_vectors.machines`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import namespace_with, to_device
from daskkern.data.rows.rows import Fields
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.solvers.support_vectors.decomposition import WORKING_SET
from daskkern.solvers.support_vectors.kernel_rows import KernelRows
from daskkern.solvers.support_vectors.machines import Limits, one_class
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.scaling import with_scaling
from daskkern.unsupervised.feature_map import scaled_settings
from daskkern.unsupervised.passes import leave_if_cancelled
from daskkern.unsupervised.working_sets import sorted_quantile

CACHE_BYTES = 1 << 30
"""Memory for kernel rows; the rows themselves come in addition."""
_MOST_ROUNDS = 100_000


@dataclass(frozen=True, eq=False)
class SupportVectors:
    """The support vectors (s, d), scaled, their coefficients (s,), which add up to 1, and what the fit found.

    `gap` is the duality gap of the objective of :mod:`daskkern.unsupervised.margin`, `n_rounds` the working sets.
    """

    points: Any
    coef: FloatArray
    rho: float
    gap: float
    n_rounds: int
    scaling: Scaling
    settings: FitSettings


def exact_one_class(source: RowSource, settings: FitSettings, nu: float, tol: float) -> SupportVectors:
    """Return the support vectors of all rows of `source`, at which a score violates the optimum by at most `tol`.

    Scores are in LIBSVM's units, ``nu n`` times those of the result.
    A task that was cancelled ends after a working set.

    Raises
    ------
    DataError
        For weights that add up to 0, and kernels that are not finite.
    """
    scaling, settings = scaled_settings(source, settings)
    block = with_scaling(source, scaling).open(settings.dtype).read(0, source.info.n_rows, Fields.X | Fields.weight)
    X, kernel = block.X, settings.kernel
    assert X is not None
    xp = namespace_with(settings.device, 16.0 * X.shape[0] * (X.shape[1] + WORKING_SET))
    placement = kernel.placement_for(X).on(xp)
    placed = to_device(X, xp)
    rows = KernelRows(kernel, placed, lambda Z: kernel.points(Z, placement), settings.dtype, CACHE_BYTES, WORKING_SET)
    if not np.isfinite(rows.diagonal).all():
        raise DataError(f"the {kernel.name} kernel is not finite on the rows; scale the features")
    weight: HostArray = np.ones(rows.n_rows) if block.weight is None else np.asarray(block.weight, np.float64)
    total = float(weight.sum())
    weight = weight * (rows.n_rows / total) if total > 0 else weight
    found = one_class(rows, weight, nu, Limits(tol, _MOST_ROUNDS, leave_if_cancelled))
    support = np.flatnonzero(found.coef)
    # At the quantile, so that free support vectors, which score rho up to the tolerance, are not outliers by chance.
    rho = sorted_quantile(rows.scores(support, found.coef[support]), weight, nu)
    return SupportVectors(X[support], found.coef[support], rho, found.gap, found.n_rounds, scaling, settings)
