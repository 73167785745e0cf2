"""Solution of a dense positive definite system, factored in place by blocks.

OpenBLAS's threaded dpotrf, which SciPy ships, crashes the process with a segmentation fault for matrices of 16,000
columns (measured with 0.3.30 and two threads; 23,000 pass with one). So LAPACK only factors blocks of the diagonal,
and everything else is matrix products.
"""

import math
from collections.abc import Generator, Iterator

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray
from daskkern.backend.concurrency import library_threads
from daskkern.backend.tiles import slices
from daskkern.linalg.panels import NotPositiveDefiniteError

MOST_JITTER = 1e-8
_SAFE, _ITERATIONS = 0.5, 5
_BLOCK = 1024
PIECE = 1e10  # multiply-adds
_STRIP = 512  # rows of the rest that are updated at once: the product takes this times p numbers


def solve_positive_definite(
    A: FloatArray, b: FloatArray, shift: float, threads: int, most: float = MOST_JITTER
) -> tuple[FloatArray, float]:
    """Return ``(A + shift)^-1 b`` (p, c), and the shift that was used; A (p, p) is symmetric and is overwritten.

    Parameters and errors are those of :class:`DenseSolution`.
    """
    solution = DenseSolution(A, b, shift, threads, most)
    while solution.advance():
        pass
    return solution.found()


class DenseSolution:
    """The solution of ``(A + shift) x = b``, in pieces of about 10 thousand million multiply-adds: half a second.

    If A with `shift` is not numerically positive definite, or nearly singular in spite of the shift, a jitter is
    added to it, and 10 times as much each time that is not enough, up to `most` of the mean diagonal. The first one has
    the size of rounding, or a tenth of the shift, below which it would change nothing. A failed attempt overwrites only
    one half of the matrix, which is restored from the other. In addition to A, memory of 2048 p numbers is used.

    Parameters
    ----------
    A : (p, p) float64 array
        Symmetric. It is overwritten.
    b : (p, c) float64 array
    shift : float
    threads : int
        Of BLAS and LAPACK.
    most : float
        The largest jitter.
    """

    def __init__(self, A: FloatArray, b: FloatArray, shift: float, threads: int, most: float = MOST_JITTER) -> None:
        self._A, self._b, self._threads = A, b, threads
        self._diagonal, self._shift, self._most = A.diagonal().copy(), shift, most
        self._used, self._factored, self._x = shift, 0, b
        self._pieces = self._attempts()

    def advance(self) -> bool:
        """Do the next piece of the work; return False where there is none.

        Raises
        ------
        NotPositiveDefiniteError
            When the largest jitter is not enough.
        """
        with library_threads(self._threads):
            factored = next(self._pieces, None)
        if factored is None:
            return False
        self._factored = factored
        return True

    def found(self) -> tuple[FloatArray, float]:
        """Return x (p, c) and the shift that was used, once no piece is left."""
        return self._x, self._used

    @property
    def begun(self) -> bool:
        """Whether some columns are factored."""
        return self._factored > 0

    def leading(self) -> tuple[FloatArray, float]:
        """Return the solution of as many of the first equations, in as many unknowns, as are factored, and the shift.

        At least one piece must be left.
        """
        k = self._factored
        with library_threads(self._threads):
            return _solve(self._A[:k, :k], self._b[:k]), self._used

    def _attempts(self) -> Iterator[int]:
        """Yield, after each piece, the number of columns that are factored."""
        A, p, shift = self._A, len(self._A), self._shift
        mean = max(float(self._diagonal.mean()), np.finfo(np.float64).tiny)
        least = max(np.finfo(np.float64).eps * p**0.5, 0.1 * shift / mean)
        n_jitters = 1 + math.floor(math.log10(self._most / least)) if self._most > least else 0
        jitters = (0.0, *(least * 10.0**power for power in range(n_jitters)))
        for jitter in jitters:
            self._used = shift + mean * jitter
            A[np.arange(p), np.arange(p)] = self._diagonal + self._used
            exists = yield from _factoring(A)
            if exists and (jitter == jitters[-1] or shift == 0 or _is_safe(A, self._used)):
                self._x = _solve(A, self._b)
                return
            _restore(A)
        raise NotPositiveDefiniteError(f"the matrix with a jitter of {self._used:.1e} is not positive definite")


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
    pieces = _factoring(A)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return bool(end.value)


def _factoring(A: FloatArray) -> Generator[int, None, bool]:
    """Factor as :func:`factor_lower`, and yield the number of columns that are factored after each piece."""
    p, done = A.shape[0], 0.0
    for block in slices(p, _BLOCK):
        corner, failed = scipy.linalg.lapack.dpotrf(A[block, block], lower=1, clean=0)
        if failed:
            return False
        np.copyto(A[block, block], corner, where=np.tri(len(corner), dtype=bool))
        if block.stop == p:
            break
        for work in _eliminating(A, block, corner):
            done += work
            if done >= PIECE:
                done = 0.0
                yield block.stop
    return True


def _eliminating(A: FloatArray, block: slice, corner: FloatArray) -> Iterator[float]:
    """Compute the columns `block` of L, whose top is factored, and subtract their products from the later columns.

    Multiply-adds are yielded, a strip of rows after the other.
    """
    below = scipy.linalg.blas.dtrsm(1.0, corner, A[block.stop :, block].T, lower=1).T
    A[block.stop :, block] = below
    yield 0.5 * below.size * len(corner)
    for part in slices(len(below), _STRIP):
        rows = slice(block.stop + part.start, block.stop + part.stop)
        change = below[part] @ below[: part.stop].T
        change[:, part.start :] = np.tril(change[:, part.start :])
        A[rows, block.stop : rows.stop] -= change
        yield float(change.size) * len(corner)


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
