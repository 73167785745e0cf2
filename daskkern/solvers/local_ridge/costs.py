"""The bytes and seconds of ridge regression in the leaves of a partition."""

from dataclasses import dataclass

from daskkern.solvers.costs.primitives import padded
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, MethodCosts, MethodMemory, Seconds

_MATRICES = 3  # of float64 for a leaf that is solved: its kernel, what is factored, and its half in the dtype
_UNEVEN = 2  # largest leaf as a multiple of the requested one, before centres are limited


@dataclass(frozen=True)
class LocalRidgeCosts(MethodCosts):
    """The arithmetic of the leaves of a rank; `max_centres` are the most centres of one."""

    max_centres: int

    def memory(self, z: FitSizes) -> MethodMemory:
        side = min(_UNEVEN * z.leaf_rows, self.max_centres, z.n)
        solving = z.threads * _MATRICES * side * side * 8
        targets = 3 * z.own * padded(z.c) * 8
        return MethodMemory(host=(("targets", targets), ("leaves in work", solving)))

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        return [("reading", 4 * z.n * rates.row_s)]

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        side = min(z.leaf_rows, self.max_centres, z.n)
        values = z.own * side * rates.block_ns * 1e-9
        return [("kernel blocks", values), ("factors", z.own * side**2 / 3 / rates.flops64)]
