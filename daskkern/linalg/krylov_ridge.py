"""Errors of kernel ridge regression for many penalties by Lanczos steps, for matrices too large to decompose.

t steps from the targets y give orthonormal Q and a tridiagonal T with ``B Q = Q T`` up to the last column, for every
shift at once: ``Q (T + shift)^-1 Q^T y`` is what t steps of conjugate gradient for ``(B + shift) c = y`` give (Paige
and Saunders, SIAM J. Numer. Anal. 1975). Their error falls by ``1 - 2 (shift / |B|)^(1/2)`` a step, and faster where
few eigenvalues are large, as those of kernels: large penalties need few steps, and for smaller ones the steps left out
are a penalty themselves.
"""

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of, to_host

LANCZOS_STEPS = 60
"""Steps from each output's targets."""
_BROKEN_DOWN = 1e-6  # of the norm of a new direction to that of the first product: Q spans all that y has


def halves_errors(
    grams: tuple[Array, Array, Array], y: FloatArray, weight: FloatArray | None, shifts: FloatArray
) -> FloatArray:
    """Return the weighted sums of squared errors of each half of some rows, predicted from the other, for each shift.

    Parameters
    ----------
    grams : three float32 arrays
        The kernels of the first h rows (h, h), of the others (s - h, s - h), and of others and first (s - h, h).
    y : (s, c) float64 array
    weight : (s,) float64 array or None
    shifts : (k,) float64 array
        Positive; ``n alpha`` of the penalty.

    Returns
    -------
    (k,) float64 array
    """
    first, second, cross = grams
    half, counts = len(first), np.ones(len(y)) if weight is None else weight
    errors = np.zeros(len(shifts))
    for own, gram, fitted, held in (
        (first, cross, slice(0, half), slice(half, None)),
        (second, cross.T, slice(half, None), slice(0, half)),
    ):
        mean = counts[fitted] @ y[fitted] / max(float(counts[fitted].sum()), np.finfo(float).tiny)
        root = np.sqrt(counts[fitted])
        for j in range(y.shape[1]):
            left = (y[held, j] - mean[j])[:, None] - _scores(own, gram, root, y[fitted, j] - mean[j], shifts)
            errors += counts[held] @ left**2
    return errors


def krylov_bytes(s: int, c: int) -> int:
    """Return the bytes of :func:`halves_errors` for s rows and c outputs, with its matrices."""
    return 3 * s * s + 4 * s * (3 * LANCZOS_STEPS + 4 * c)


def _scores(own: Array, gram: Array, root: FloatArray, y: FloatArray, shifts: FloatArray) -> FloatArray:
    """Return predictions (m, k) with each shift from n rows, whose kernel is `own` (n, n), by the kernel (m, n)."""
    xp = namespace_of(own)
    scale, start = xp.asarray(root.astype(np.float32)), root * y
    size = float(np.linalg.norm(start))
    if not size > 0:
        return np.zeros((len(gram), len(shifts)))
    Q, diagonal, beside = _lanczos(own, scale, xp.asarray((start / size).astype(np.float32)))
    values, U = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    coefficients = size * U @ (U[0][:, None] / (np.maximum(values, 0.0)[:, None] + shifts))
    found = gram @ (scale[:, None] * (Q @ xp.asarray(coefficients.astype(np.float32))))
    return to_host(found).astype(np.float64)


def _lanczos(gram: Array, root: Array, q: Array) -> tuple[Array, FloatArray, FloatArray]:
    """Return Q (n, t), and T as its diagonal (t,) and the one beside it (t - 1,), of ``root K root``."""
    xp, steps = namespace_of(gram), min(LANCZOS_STEPS, len(gram))
    Q = xp.zeros((len(gram), steps), np.float32)
    diagonal, beside, size = np.zeros(steps), np.zeros(steps), 0.0
    for t in range(steps):
        Q[:, t] = q
        product = root * (gram @ (root * q))
        size = size or float(xp.linalg.norm(product))
        diagonal[t] = float(q @ product)
        for _ in range(2):  # once leaves rounding errors that grow
            product = product - Q[:, : t + 1] @ (Q[:, : t + 1].T @ product)
        beside[t] = float(xp.linalg.norm(product))
        if not beside[t] > _BROKEN_DOWN * size:
            return Q[:, : t + 1], diagonal[: t + 1], beside[:t]
        q = product / beside[t]
    return Q, diagonal, beside[: steps - 1]
