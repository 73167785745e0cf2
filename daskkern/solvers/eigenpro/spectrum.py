"""The size of EigenPro's preconditioner spectrum, the interval between projections, and the spectrum found."""

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.events import SpectrumFound
from daskkern.preconditioners import MOST_DIRECTIONS, CovarianceState, EigenProState

SUBSAMPLE = 2000
_COVARIANCE_ROWS = 4800
_FLOPS_PER_PROJECTION = 80.0
_MOST = 1000
"""Eigenvalues of an event: Nystrom-SGD knows one for each landmark."""


def subsample_rows(wanted: int | str, p: int) -> int:
    """Return the rows s of the preconditioner's subsample for p columns."""
    return min(SUBSAMPLE, max(1, 4 * p // 5)) if wanted == "auto" else min(int(wanted), p)


def covariance_rows(wanted: int | str, n: int) -> int:
    """Return the rows of the subsample that the covariance of explicit features is taken of, for n training rows."""
    most = max(1, 4 * n // 5)
    return min(_COVARIANCE_ROWS if wanted == "auto" else int(wanted), most)


def most_directions(wanted: int | str, p: int, s: int, explicit: bool) -> int:
    """Return the most damped directions q with p columns and s rows of the subsample."""
    most = min(s, p) if explicit else s
    if wanted != "auto":
        return min(most, int(wanted))
    return min(most, s // 5, MOST_DIRECTIONS) if explicit else s // 5


def window_batches(p: int, d: int, batch_size: int, *, exact: bool) -> int:
    """Return T for projections by a factor (`exact`) or by iteration. More than p temporary centres are never held.

    A row meets x / 2 temporary centres on average in a window of x rows, which takes x d / 2 multiply-adds. A
    projection with a factor costs about 80 p^2 at the same rate: it reads p^2 / 2 numbers twice, and moving a byte
    costs about 20 flops of a matrix product. The sum of both costs an epoch is least at x = p (80 / d)^(1/2). One of I
    iterations multiplies with K_ZZ as often, which is I p^2 d: least at x = p (2 I)^(1/2), which is more than p.
    """
    rows = p * min(1.0, (_FLOPS_PER_PROJECTION / max(d, 1)) ** 0.5) if exact else p
    return max(1, int(np.ceil(rows / batch_size)))


def found(state: EigenProState | CovarianceState, s: int, batch: int, step: float) -> SpectrumFound:
    """Return the spectrum of a subsample of `s` rows before and after damping, as an event."""
    shares = 1 - state.damping
    if isinstance(state, EigenProState):
        shares = 1 - state.damping * s * state.eigenvalues[: state.damping.size]
    return flattened(state.eigenvalues, shares, s, batch, state.critical_batch, step)


def flattened(
    values: FloatArray, shares: FloatArray, s: int, batch: int, critical_batch: float, step: float
) -> SpectrumFound:
    """Return eigenvalues, and the same with the first of them multiplied by `shares`, as an event."""
    after = values.copy()
    after[: shares.size] *= shares
    return SpectrumFound(s, _numbers(values), _numbers(after), batch, float(critical_batch), float(step))


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(np.asarray(values[:_MOST], float).tolist())
