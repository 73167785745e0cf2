"""Coresets for density estimation: weighted landmarks in place of all rows.

The weights a >= 0, with the sum 1, of landmarks Z minimise the distance of the two densities in the kernel's norm,
``a^T K_ZZ a - 2 a^T b`` with ``b = sum_i w_i k(Z, x_i) / sum_i w_i``, from equal weights on: they are never worse than
a random sample of as many rows.
"""

from typing import Any

import numpy as np
import scipy.optimize

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.rows.rows import Fields, Rows
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.kernels import Kernel
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.explicit_columns import column_functions
from daskkern.unsupervised.log_sums import KernelSums
from daskkern.unsupervised.passes import RowPasses, Totals

_STEPS = 500


def coreset(passes: RowPasses, settings: FitSettings, total: float) -> ArraySource:
    """Return landmarks of the rows, scaled, with weights (p,), as a source. `total` is the weight of all rows."""
    Z = passes.once(_Chosen(settings))
    (sums,) = passes.totals(KernelSums(settings.kernel, Z, settings.device))
    weight = mean_weights(settings.kernel, Z, sums / total)
    info = SourceInfo(Z.shape[0], Z.shape[1], None, None, Scaling(), None, 0, True, getattr(Z, "nnz", None))
    return ArraySource(Z, None, weight, info)


def mean_weights(kernel: Kernel, Z: Any, b: FloatArray) -> FloatArray:
    """Return weights (p,) of 0 or more, with the sum 1, of landmarks Z (p, d) for the mean kernel values b (p,)."""
    K: FloatArray = kernel.block(Z, kernel.points(Z, kernel.placement_for(Z))).astype(np.float64)

    p = b.size
    start = np.ones(p)
    unit = float(start @ K @ start) / p  # of the objective, in units in which its weights are 1

    def gap(a: FloatArray) -> tuple[float, FloatArray]:
        product = K @ a
        return float(a @ product / p - 2 * a @ b) / unit, 2 * (product / p - b) / unit

    found = scipy.optimize.minimize(
        gap, start, jac=True, bounds=[(0.0, None)] * p, method="L-BFGS-B", options={"maxiter": _STEPS, "ftol": 1e-10}
    )
    weights: FloatArray = np.maximum(found.x, 0)
    weights = weights if weights.sum() > 0 else start
    return weights / weights.sum()


def total_weight(passes: RowPasses) -> float:
    """Return the weight of all rows: their number without weights. DataError where it is 0."""
    total = float(passes.totals(_weights)[0][0])
    if not total > 0:
        raise DataError("the sample weights add up to 0; give some rows a positive weight")
    return total


def _weights(rows: Rows, part: slice) -> Totals:
    weight = rows.read(part.start, part.stop, Fields.weight).weight
    return (np.array([float(part.stop - part.start) if weight is None else float(weight.sum())]),)


class _Chosen:
    """The landmarks (p, d) of a fit, as a function of its source."""

    def __init__(self, settings: FitSettings) -> None:
        self._settings = settings

    def __call__(self, source: RowSource) -> HostArray:
        return column_functions(source.open(self._settings.dtype), self._settings)[1]
