"""The bytes and seconds of the direct solution: one matrix of all columns, or two, and its factor."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.solvers.costs.primitives import PIECES
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, MethodCosts, MethodMemory, Seconds

_PANEL = 2048  # columns of a dense matrix that its factorization copies


@dataclass(frozen=True)
class DirectCosts(MethodCosts):
    """The arithmetic of the direct solution, on its one rank."""

    by_rows: ClassVar[bool] = True

    def memory(self, z: FitSizes) -> MethodMemory:
        dense = _matrices(z)
        matrix = z.p * z.p * (8 * dense + z.itemsize * (dense - 1)) + 8 * _PANEL * z.p
        own = -(-min(z.m, z.n) // z.ranks)
        piece = -(-own * z.ranks // PIECES)
        return MethodMemory(host=(("matrix", matrix),), batch=piece * z.p * (z.itemsize + 16))  # in three forms

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        return [("reading", z.n * rates.row_s), ("factor", z.p**3 / 3 / rates.flops64)]

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        gram = 2 * z.n * z.p * z.p / rates.flops64 * (_matrices(z) - 1)
        return [("kernel blocks", z.own_rows * z.p * 1e-9 * rates.block_ns), ("normal equations", gram)]


def _matrices(z: FitSizes) -> int:
    """Return the square matrices in float64: K, or K_ZZ and the sum over the rows."""
    return 1 if z.all_rows else 2
