"""The bytes and seconds of an exact support vector machine: kernel rows that are kept, and passes over values."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.solvers.costs.primitives import points_bytes, workspace_bytes
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, MethodCosts, MethodMemory, Seconds
from daskkern.solvers.support_vectors.decomposition import WORKING_SET
from daskkern.solvers.support_vectors.kernel_rows import BLOCK_ROWS

_VECTORS = 24  # of n numbers in float64: variables, boxes, gradients, orders, for losses of two boxes
_TIMES = 48  # that columns are left out, with n coefficients each, as four fifths of them remain at most


@dataclass(frozen=True)
class SVMCosts(MethodCosts):
    """The arithmetic of a support vector machine, on its one rank.

    Attributes
    ----------
    cache_bytes : int
        Of kernel rows that are kept.
    """

    by_rows: ClassVar[bool] = True

    cache_bytes: int

    def memory(self, z: FitSizes) -> MethodMemory:
        least = min(WORKING_SET, z.n) * z.n * z.itemsize
        kept = min(z.n * z.n * z.itemsize, max(self.cache_bytes, least))
        block = min(BLOCK_ROWS, z.n) * z.n * z.itemsize
        work = 5 * WORKING_SET**2 * 8 + (_VECTORS + _TIMES) * z.n * 8 + block
        columns = points_bytes(z.n, z.d, z.within) + z.n * z.d * z.itemsize + workspace_bytes(z.threads, z.d, z.within)
        items = (("kernel rows", kept), ("working set", work), ("columns that are left", columns))
        return MethodMemory(host=items)

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        return [("reading", z.n * rates.row_s)]

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        return [("kernel rows", z.c * z.n * z.p * 1e-9 * rates.block_ns)]
