"""The bytes and seconds of coordinate descent: a curvature matrix for each output, and products for it."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.solvers.costs.primitives import PIECES
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, MethodCosts, MethodMemory, Seconds

_SENT = 4  # the sum of a rank, its message, that of all ranks, and their mean
_SOLVED = 3  # of one output: with the penalty, its part that is not 0, and the factor of that


@dataclass(frozen=True)
class CurvatureCosts(MethodCosts):
    """The arithmetic of a solver that sums curvature matrices over the rows.

    Attributes
    ----------
    most : int
        Most columns of a matrix.
    shared : bool
        All outputs have the same one.
    """

    by_rows: ClassVar[bool] = True

    most: int
    shared: bool

    def memory(self, z: FitSizes) -> MethodMemory:
        k = min(self.most, z.p)
        own = -(-min(z.m, z.n) // z.ranks)
        piece = -(-own * z.ranks // PIECES)
        matrices = (_SENT * self._outputs(z) + _SOLVED) * k * k * 8
        return MethodMemory(device=(("curvature matrices", matrices),), batch=3 * piece * k * z.itemsize)

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        return [("reading", z.n * rates.row_s)]

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        entries = z.own_rows * z.p * 1e-9
        gram = 2 * z.own_rows * min(self.most, z.p) ** 2 / rates.flops64 * self._outputs(z)
        return [
            ("kernel blocks", entries * rates.block_ns * fresh),
            ("products", entries * rates.product_ns),
            ("curvature", gram),
        ]

    def epoch_seconds(self, z: FitSizes, rates: ComputeRates) -> Seconds:
        """Return the coordinate steps, as one factor of each matrix."""
        return [("coordinates", z.c * min(self.most, z.p) ** 3 / 3 / rates.flops64)]

    def _outputs(self, z: FitSizes) -> int:
        return 1 if self.shared else z.c
