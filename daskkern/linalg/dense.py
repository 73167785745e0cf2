"""Solution of a dense positive definite system, factored in place by blocks.

OpenBLAS's threaded dpotrf, which SciPy ships, crashes the process with a segmentation fault for matrices of 16,000
columns (measured with 0.3.30 and two threads; 23,000 pass with one). So LAPACK only factors blocks of the diagonal,
and everything else is matrix products.
"""

import math

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray
from daskkern.backend.concurrency import library_threads
from daskkern.backend.tiles import slices
from daskkern.linalg.panels import NotPositiveDefiniteError

MOST_JITTER = 1e-8
_SAFE, _ITERATIONS = 0.5, 5
_BLOCK = 1024
_STRIP = 512  # rows of the rest that are updated at once: the product takes this times p numbers


def solve_positive_definite(
    A: FloatArray, b: FloatArray, shift: float, threads: int, most: float = MOST_JITTER
) -> tuple[FloatArray, float]:
    """Return ``(A + shift)^-1 b`` (p, c), and the shift that was used; A (p, p) is symmetric and is overwritten.

    If `A` with `shift` is not numerically positive definite, or nearly singular in spite of the shift, a jitter is
    added to it, and 10 times as much each time that is not enough, up to `most` of the mean diagonal. The first one has
    the size of rounding, or a tenth of the shift, below which it would change nothing. A failed attempt overwrites only
    one half of the matrix, which is restored from the other. In addition to A, memory of 2048 p numbers is used.

    Raises
    ------
    NotPositiveDefiniteError
        When the largest jitter is not enough.
    """
    p = A.shape[0]
    diagonal = A.diagonal().copy()
    mean = max(float(diagonal.mean()), np.finfo(np.float64).tiny)
    least = max(np.finfo(np.float64).eps * p**0.5, 0.1 * shift / mean)
    n_jitters = 1 + math.floor(math.log10(most / least)) if most > least else 0
    jitters = (0.0, *(least * 10.0**power for power in range(n_jitters)))
    for jitter in jitters:
        used = shift + mean * jitter
        A[np.arange(p), np.arange(p)] = diagonal + used
        with library_threads(threads):
            exists = factor_lower(A)
            if exists and (jitter == jitters[-1] or shift == 0 or _is_safe(A, used)):
                return _solve(A, b), used
        _restore(A)
    raise NotPositiveDefiniteError(f"the matrix with a jitter of {used:.1e} is not positive definite")


def _is_safe(L: FloatArray, shift: float) -> bool:
    """Return whether the least eigenvalue of the factored matrix is at least half of the shift, by inverse iteration.

    Those of a positive semidefinite matrix with a shift are at least the shift. Rounding makes some negative; where the
    shift nearly cancels one, solutions are arbitrarily large. The factor tells neither by failing nor by its pivots.
    """
    v: FloatArray = np.random.default_rng(0).standard_normal((len(L), 1))
    for _ in range(_ITERATIONS):
        v = _solve(L, v / float(np.linalg.norm(v)))
    return 1 / float(np.linalg.norm(v)) >= _SAFE * shift


def factor_lower(A: FloatArray) -> bool:
    """Write L of ``A = L L^T`` over the lower half of A (p, p); return whether it exists. The upper half stays."""
    p = A.shape[0]
    for block in slices(p, _BLOCK):
        corner, failed = scipy.linalg.lapack.dpotrf(A[block, block], lower=1, clean=0)
        if failed:
            return False
        np.copyto(A[block, block], corner, where=np.tri(len(corner), dtype=bool))
        if block.stop == p:
            return True
        _eliminate(A, block, corner)
    return True


def _eliminate(A: FloatArray, block: slice, corner: FloatArray) -> None:
    """Compute the columns `block` of L, whose top is factored, and subtract their products from the later columns."""
    below = scipy.linalg.blas.dtrsm(1.0, corner, A[block.stop :, block].T, lower=1).T
    A[block.stop :, block] = below
    for part in slices(len(below), _STRIP):
        rows = slice(block.stop + part.start, block.stop + part.stop)
        change = below[part] @ below[: part.stop].T
        change[:, part.start :] = np.tril(change[:, part.start :])
        A[rows, block.stop : rows.stop] -= change


def solve_lower(L: FloatArray, b: FloatArray) -> FloatArray:
    """Return ``L^-1 b`` (p, c) from the lower half of L (p, p)."""
    x = np.array(b, np.float64)
    for block in slices(L.shape[0], _BLOCK):
        x[block] -= L[block, : block.start] @ x[: block.start]
        x[block] = scipy.linalg.solve_triangular(L[block, block], x[block], lower=True, check_finite=False)
    return x


def _solve(L: FloatArray, b: FloatArray) -> FloatArray:
    """Return ``(L L^T)^-1 b`` from the lower half of L."""
    x = solve_lower(L, b)
    for block in reversed(slices(L.shape[0], _BLOCK)):
        x[block] -= L[block.stop :, block].T @ x[block.stop :]
        x[block] = scipy.linalg.solve_triangular(L[block, block], x[block], trans=1, lower=True, check_finite=False)
    return x


def _restore(A: FloatArray) -> None:
    """Copy the upper half of `A` over the lower one, in strips."""
    for part in slices(A.shape[0], _BLOCK):
        A[part, : part.start] = A[: part.start, part].T
        square = A[part, part]
        np.copyto(square, square.T.copy(), where=np.tri(len(square), k=-1, dtype=bool))
