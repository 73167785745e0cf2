"""Statistics for the step sizes of methods without a preconditioner, measured on sampled rows."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from daskkern.arrays import HostArray
from daskkern.errors import DataError
from daskkern.preconditioners.stable_steps import StableSteps


@dataclass(frozen=True)
class StepStatistics(StableSteps):
    """Sizes of sampled rows phi(x) in the columns' coordinates, sample weights in.

    Steps for the mean gradient of m rows are the largest that are stable in the mean (Ma, Bassily and Belkin, ICML
    2018, theorem 4, halved).

    Attributes
    ----------
    beta : float
        Largest ``w |phi(x)|^2``.
    mean_square : float
        Mean of ``w |phi(x)|^2``.
    top : float
        Largest eigenvalue of ``mean w phi phi^T``.
    """

    beta: float
    mean_square: float
    top: float


def column_statistics(gram: HostArray, weight: HostArray | None) -> StepStatistics:
    """Return the statistics of s sampled rows from their inner products `gram` (s, s) and weights (s,).

    Raises
    ------
    DataError
        When all columns are 0 on all of them, or not finite on one.
    """
    gram = np.asarray(gram, np.float64)
    if weight is not None:
        root = np.sqrt(weight)
        gram = gram * root[:, None] * root
    if not np.isfinite(gram).all():
        raise DataError("the columns of the model are not finite on the rows; scale the features")
    squares, s = np.diag(gram), gram.shape[0]
    if not squares.max() > 0:
        raise DataError("the columns of the model are 0 on all sampled rows; check the features")
    top = _largest(gram) / s
    return StepStatistics(float(squares.max()), float(squares.mean()), max(top, float(squares.mean()) / s))


def _largest(gram: HostArray) -> float:
    """Return the largest eigenvalue."""
    last = len(gram) - 1
    try:
        return float(scipy.linalg.eigh(gram, eigvals_only=True, subset_by_index=(last, last), driver="evx")[0])
    except np.linalg.LinAlgError:  # LAPACK's drivers for one eigenvalue can fail where all are nearly the same
        return float(np.linalg.eigvalsh(gram)[-1])
