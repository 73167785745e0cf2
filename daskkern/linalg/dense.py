"""A dense positive definite system, factored in place by LAPACK."""

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray
from daskkern.backend.concurrency import library_threads
from daskkern.linalg.projection import NotPositiveDefiniteError

_ATTEMPTS = 8


def solve_positive_definite(A: FloatArray, b: FloatArray, shift: float, threads: int) -> tuple[FloatArray, float]:
    """Return ``(A + shift)^-1 b`` (p, c), and the shift that was used; A (p, p) is symmetric and is overwritten.

    Where `A` with `shift` is not numerically positive definite, a jitter of the size of rounding is added to it, and
    10 times as much each time that is not enough. A failed attempt writes only one half of the matrix: the other
    gives it back.

    Raises
    ------
    NotPositiveDefiniteError
        When a jitter of 1e-8 of the mean diagonal is not enough.
    """
    p = A.shape[0]
    diagonal = A.diagonal().copy()
    unit = np.finfo(np.float64).eps * p**0.5 * max(float(diagonal.mean()), np.finfo(np.float64).tiny)
    columns = A.T  # column-major, as LAPACK wants it, without a copy
    for attempt in range(_ATTEMPTS):
        used = shift + (unit * 10.0 ** (attempt - 1) if attempt else 0.0)
        A[np.arange(p), np.arange(p)] = diagonal + used
        with library_threads(threads):
            factor, failed = scipy.linalg.lapack.dpotrf(columns, lower=1, clean=0, overwrite_a=1)
            if not failed:
                x, _ = scipy.linalg.lapack.dpotrs(factor, b, lower=1)
                return np.asarray(x, np.float64), used
        _restore(A)
    raise NotPositiveDefiniteError(f"the matrix with a jitter of {used:.1e} is not positive definite")


def _restore(A: FloatArray, step: int = 1024) -> None:
    """Copy the half of `A` that LAPACK has not written over the other one, by strips."""
    for start in range(0, A.shape[0], step):
        part = slice(start, start + step)
        A[:start, part] = A[part, :start].T
        square = A[part, part]
        square[np.triu_indices(square.shape[0], 1)] = square.T[np.triu_indices(square.shape[0], 1)]
