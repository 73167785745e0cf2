"""The bytes and seconds of Nystrom-SGD: two p x p eigenproblems, a pass for the Gram sums, and M in every step."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.solvers.costs.columns import correction_seconds, products_seconds
from daskkern.solvers.costs.primitives import nystrom_bytes
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, MethodCosts, MethodMemory, Seconds

_NS = 1e-9


@dataclass(frozen=True)
class EigenbasisCosts(MethodCosts):
    """The arithmetic of Nystrom-SGD."""

    has_subsample: ClassVar[bool] = False

    def memory(self, z: FitSizes) -> MethodMemory:
        b = z.itemsize
        return MethodMemory(
            host=(("spectrum", z.p * z.p * b),),
            device=(("preconditioner", 0),),
            steps=(("eigenfeatures M", z.own * z.p * b),),
            before_host=nystrom_bytes(z.p, z.d, b, z.threads, z.within) + z.p * z.d * b,
        )

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        b = rates.block_ns * _NS
        eigen = 2 * (1.33 * z.p**3 / rates.memory + 4 * z.p**3 / rates.flops64)
        gram = z.n * z.p * (b + 4 * z.p / rates.factor_flops) / z.ranks
        parts = [("eigenproblems", eigen + z.p**2 * b), ("Gram sums", gram), ("reading", 4 * z.n * rates.row_s)]
        if stored:
            parts.append(("eigenfeatures", z.n * z.p * (b + 2 * z.p / rates.factor_flops) / z.ranks))
        return parts

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        correction = 0.0 if stored else 2.0 * z.own * z.p
        return [*products_seconds(z, rates, fresh=fresh and not stored), correction_seconds(z, rates, correction)]
