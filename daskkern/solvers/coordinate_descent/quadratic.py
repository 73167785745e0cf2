"""Coordinate descent on a quadratic function with an L1 penalty, whose matrix is in memory.

    minimise  v^T A v / 2 + b^T v + l1 |v|_1 :      v_j <- soft(v_j - r_j / A_jj, l1 / A_jj) ,   r = A v + b

The gradient r is kept up to date, at the cost of a row of A for each coordinate that moves (the "covariance updates" of
Friedman, Hastie and Tibshirani, 2010). Sweeps meet the coordinates that are not 0 or violate the conditions of the
optimum. After each sweep the coordinates that are not 0 are solved for at once, as long as their signs stay: many
sweeps over features that are nearly alike become one step.
"""

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray

_SWEEPS = 1000
_RAISED = 1e-8  # of the largest entry of a singular diagonal: a step with it is shorter, and still lowers the function
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


def violation(gradient: FloatArray, v: FloatArray, l1: float) -> FloatArray:
    """Return by how much each coordinate violates the conditions of the optimum: the least size of a subgradient.

    `gradient` is that of the smooth part at `v`, of the same shape.
    """
    at_zero = np.maximum(np.abs(gradient) - l1, 0)
    return np.where(v != 0, np.abs(gradient + l1 * np.sign(v)), at_zero)


def minimise(A: FloatArray, b: FloatArray, l1: float, v: FloatArray, tol: float) -> FloatArray:
    """Return the minimiser (k,) from the start `v`, to violations of at most `tol` or rounding, or after 1,000 sweeps.

    `A` (k, k) is symmetric and positive semi-definite. Coordinates whose A_jj is 0 stay as they are.
    """
    v = v.copy()
    r = A @ v + b
    diagonal = np.diagonal(A).copy()
    sizes = np.abs(A)
    moves = diagonal > np.finfo(np.float64).tiny
    for _ in range(_SWEEPS):
        wrong = violation(r, v, l1) * moves
        rounding = _ROUNDING * float((sizes @ np.abs(v) + np.abs(b)).max(initial=0.0))
        if wrong.max(initial=0.0) <= max(tol, rounding):
            break
        for j in np.flatnonzero(moves & ((v != 0) | (wrong > 0))).tolist():
            curvature, old = float(diagonal[j]), float(v[j])
            z = old - float(r[j]) / curvature
            threshold = l1 / curvature
            new = z - threshold if z > threshold else z + threshold if z < -threshold else 0.0
            if new != old:
                r += (new - old) * A[j]
                v[j] = new
        v = _solved(A, b, l1, v, r)
        r = A @ v + b  # without the rounding of the updates
    return v


def _solved(A: FloatArray, b: FloatArray, l1: float, v: FloatArray, r: FloatArray) -> FloatArray:
    """Return a point where the function is lower, on the way to its minimiser with the signs of `v`; `v` without one.

    Coordinates that would change their sign on the way become 0, if that lowers the function; else the way ends where
    the first of them is 0.
    """
    at = np.flatnonzero(v) if l1 else np.arange(len(v))
    factor = _factor(A[np.ix_(at, at)])
    if factor is None:
        return v
    down = -r[at] - l1 * np.sign(v[at])
    change = scipy.linalg.cho_solve(factor, down, check_finite=False)
    crossing = ((v[at] + change) * v[at] <= 0) & (l1 > 0)
    if not np.isfinite(change).all():
        return v
    moved = v.copy()
    moved[at] += np.where(crossing, -v[at], change)
    step = moved - v
    rise = float(r @ step + step @ A @ step / 2) + l1 * float(np.abs(moved).sum() - np.abs(v).sum())
    if rise < 0:
        return moved
    if not crossing.any():
        return v
    shares = -v[at[crossing]] / change[crossing]
    moved[at] = v[at] + shares.min() * change
    moved[at[crossing][shares == shares.min()]] = 0.0
    return moved


def _factor(part: FloatArray) -> tuple[FloatArray, bool] | None:
    """Return the Cholesky factor of a matrix, raised on its diagonal where it is singular; None for no columns."""
    if not len(part):
        return None
    for share in (0.0, _RAISED):
        part[np.diag_indices(len(part))] += share * float(np.diagonal(part).max())
        try:
            found: tuple[FloatArray, bool] = scipy.linalg.cho_factor(part, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            continue
        return found
    return None
