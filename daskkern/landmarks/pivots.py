"""A partial Cholesky factor that grows by pivot rows, without the kernel matrix of all rows.

With S the rows chosen so far, the residual of row i is ``r_i = k(x_i, x_i) - k(x_i, S) K_SS^-1 k(S, x_i)``. Residuals
only fall as S grows, so that an old one is a bound; those that a rule needs are computed again, block by block. A
block of b rows costs b (k d + k^2) multiplications with k rows chosen. Of all rows, only the bounds are held.

References
----------
Epperly, Tropp and Webber, "Embrace rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky",
2024, algorithms 2.2 and 4.1 (a block's submatrix of residuals, and pivots accepted within it).
"""

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.errors import DataError
from daskkern.kernels import Kernel
from daskkern.linalg import solve_lower


def factor_bytes(M: int, n: int, block: int, d: int) -> int:
    """Return the most bytes of a factor of `n` among `M` rows of `d` numbers, and of blocks of `block` rows."""
    points = 4 * (n + block) * d  # as float64, shifted, and as operands of a product
    return 8 * (n * n + points + 4 * n * block + 6 * block * block + 8 * M)


class PivotedFactor:
    """The rows chosen so far and their factor.

    Parameters
    ----------
    kernel : Kernel
    X : (M, d) array or CSR rows
        What rows are chosen from.
    n : int
        Most rows that will be chosen. Memory: n^2 float64 numbers.

    Attributes
    ----------
    bounds : (M,) float64
        Of the residuals; 0 where rounding leaves nothing.
    chosen : (k,) int64
        Row numbers in `X`, in the order of their choice.
    """

    def __init__(self, kernel: Kernel, X: HostArray, n: int) -> None:
        self._kernel, self._X, self._n = kernel, X, n
        self._factor = np.empty((n, n))
        self.bounds: HostArray = np.maximum(kernel.diagonal(X).astype(np.float64), 0)
        if not np.isfinite(self.bounds).all():
            raise DataError(
                f"the {kernel.name} kernel overflows on the rows; scale the features (ingest with --scale standard)"
            )
        self._least = max(10 * float(np.finfo(X.dtype).eps), 1e-12) * self.bounds
        self.chosen: IntArray = np.zeros(0, np.int64)

    @property
    def is_full(self) -> bool:
        """Whether n rows were chosen."""
        return self.chosen.size == self._n

    def open(self, numbers: IntArray) -> "PivotBlock":
        """Return the rows `numbers` of X, all different, with their residuals computed again."""
        points = self._points(numbers)
        H = self._kernel.block(points, points)
        known = self.chosen.size
        coordinates: HostArray = np.zeros((0, numbers.size))
        if known:
            K = self._kernel.block(self._points(self.chosen), points)
            coordinates = solve_lower(self._factor[:known, :known], K)
            H = H - coordinates.T @ coordinates
        return PivotBlock(numbers, H, coordinates, self._least[numbers], self._n - known)

    def close(self, block: "PivotBlock") -> None:
        """Add the rows that were accepted in `block`, and store the new bounds of the others."""
        known, own = self.chosen.size, np.array(block.accepted, np.int64)
        end = known + own.size
        self._factor[known:end, :known] = block.coordinates[:, own].T
        self._factor[known:end, known:end] = np.tril(block.columns[: own.size, own].T)
        self.chosen = np.concatenate([self.chosen, block.numbers[own]])
        self.bounds[block.numbers] = block.residuals

    def _points(self, numbers: IntArray) -> HostArray:
        return self._X[numbers].astype(np.float64)


class PivotBlock:
    """Rows under consideration. Accepting one lowers the residuals of the others."""

    def __init__(self, numbers: IntArray, H: HostArray, coordinates: HostArray, least: HostArray, room: int) -> None:
        self.numbers, self.coordinates = numbers, coordinates
        self.accepted: list[int] = []
        self.columns = np.empty((min(room, numbers.size), numbers.size))
        self._H, self._least, self._room = H, least, room
        self.residuals = self._above_rounding(H.diagonal().copy())

    @property
    def is_full(self) -> bool:
        """Whether no more rows may be accepted."""
        return len(self.accepted) == self._room

    def accept(self, i: int) -> None:
        """Choose the row at place `i` of the block, whose residual must not be 0."""
        done = len(self.accepted)
        column = self._H[:, i] - self.columns[:done].T @ self.columns[:done, i]
        column /= np.sqrt(self.residuals[i])
        self.columns[done] = column
        self.accepted.append(i)
        self.residuals = self._above_rounding(self.residuals - column**2)
        self.residuals[i] = 0

    def _above_rounding(self, residuals: HostArray) -> HostArray:
        return np.where(residuals > self._least, residuals, 0)


def fill(factor: PivotedFactor, n: int, rng: np.random.Generator) -> IntArray:
    """Return n different rows: the chosen ones, then others drawn in proportion to their bounds, then any."""
    left = factor.bounds.copy()
    left[factor.chosen] = 0
    missing = n - factor.chosen.size
    more = np.zeros(0, np.int64)
    if missing and left.any():
        likely = min(missing, int(np.count_nonzero(left)))
        more = rng.choice(left.size, size=likely, replace=False, p=left / left.sum())
    found = np.concatenate([factor.chosen, more])
    rest = np.setdiff1d(np.arange(left.size), found)
    return np.concatenate([found, rng.choice(rest, size=n - found.size, replace=False)])
