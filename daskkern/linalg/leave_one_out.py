"""Kernel ridge regression and its leave-one-out errors: for one penalty, or many by one eigendecomposition.

With K the kernel of s rows, W their weights and ``B = W^(1/2) K W^(1/2) = U diag(l) U^T``, the residuals of rows that
are left out are ``w_i^(1/2) (y_i - f_without_i(x_i)) = z_i / D_ii``, ``D = (B + shift)^-1``, ``z = D W^(1/2) y``
(Allen, Technometrics 1974; Wahba, Spline Models for Observational Data, 1990).
"""

from contextlib import nullcontext

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray
from daskkern.backend.concurrency import decomposition_threads, library_threads
from daskkern.backend.namespace import namespace_of
from daskkern.linalg.symmetric import symmetric_eigen


def weighted_spectrum(gram: Array, weight: FloatArray | None) -> tuple[Array, Array, Array]:
    """Return l (s,), 0 or more and ascending, U (s, s), and W^(1/2) (s,) of a kernel matrix (s, s) float64."""
    xp = namespace_of(gram)
    root = xp.asarray(np.ones(len(gram)) if weight is None else np.sqrt(weight))
    # Larger ones keep the threads of the context: searches decompose several at once.
    with library_threads(1) if decomposition_threads(len(gram)) == 1 else nullcontext():
        values, U = symmetric_eigen((gram + gram.T) * (root[:, None] * (root / 2)))
    return xp.maximum(values, 0.0), U, root


def leave_one_out_errors(values: Array, U: Array, y: Array, shifts: FloatArray) -> FloatArray:
    """Return the sums of squared residuals of weighted targets ``W^(1/2) y`` (s, c) for each of the shifts."""
    xp = namespace_of(U)
    inverse = 1 / (values[:, None] + xp.asarray(shifts))
    diagonal = (U * U) @ inverse
    pulled = U.T @ y
    sums = []
    for k in range(len(shifts)):  # a row whose weight is 0 leaves 0 / shift, and counts nothing
        left = U @ (pulled * inverse[:, k : k + 1]) / diagonal[:, k : k + 1]
        sums.append(float((left * left).sum()))
    return np.array(sums)


def lowest(at: FloatArray, errors: FloatArray) -> float:
    """Return where the parabola through the least of `errors` and its neighbours has its vertex.

    Of equal errors the one of the largest penalty counts; at an end of the grid, the end.
    """
    k = len(errors) - 1 - int(np.argmin(errors[::-1]))
    if k in (0, len(errors) - 1):
        return float(at[k])
    left, middle, right = np.log(np.maximum(errors[k - 1 : k + 2], np.finfo(float).tiny))
    bend = left - 2 * middle + right
    step = float(at[1] - at[0])
    return float(at[k]) + (step * float(left - right) / (2 * float(bend)) if bend > 0 else 0.0)


def ridge_coefficients(gram: FloatArray, weight: FloatArray, y: FloatArray, alpha: float) -> FloatArray:
    """Return the coefficients (n, c) of weighted kernel ridge regression on targets (n, c); 0 if it has no solution."""
    root = np.sqrt(weight)[:, None]
    factor = _factor(gram, root, alpha)
    if factor is None:
        return np.zeros_like(y)
    a: FloatArray = root * scipy.linalg.cho_solve((factor, True), root * y, check_finite=False)
    return a


def left_out_scores(gram: FloatArray, weight: FloatArray, y: FloatArray, alpha: float) -> FloatArray:
    """Return the scores (n, c) that weighted kernel ridge regression on all other rows gives each row."""
    root = np.sqrt(weight)[:, None]
    factor = _factor(gram, root, alpha)
    if factor is None:
        return np.zeros_like(y)
    z = scipy.linalg.cho_solve((factor, True), root * y, check_finite=False)
    scores: FloatArray = gram @ (root * z)
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=True, overwrite_c=True)
    counts = root > 0  # the others are left out as they are
    gaps = z / np.diag(inverse)[:, None] / np.where(counts, root, 1.0)
    return np.where(counts, y - gaps, scores)


def _factor(gram: FloatArray, root: FloatArray, alpha: float) -> FloatArray | None:
    """Return the lower Cholesky factor of ``W^(1/2) K W^(1/2) + alpha``; None where it has none."""
    matrix = gram * root * root.T
    matrix[np.diag_indices_from(matrix)] += alpha
    try:
        factor: FloatArray = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)[0]
    except scipy.linalg.LinAlgError:
        return None
    return factor
