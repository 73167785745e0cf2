"""The bytes and seconds of Landweber iteration on one rank."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.solvers.costs.primitives import block_bytes, padded
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, MethodCosts, MethodMemory, Seconds

_DOUBLE = 8
_SUMS = 11  # partial sums of a product with a batch, and its result
_NS = 1e-9


@dataclass(frozen=True)
class LandweberCosts(MethodCosts):
    """All landmarks and their factor on every rank, and a share of the rows."""

    by_rows: ClassVar[bool] = True

    def memory(self, z: FitSizes) -> MethodMemory:
        matrix = z.p * z.p * _DOUBLE
        made = 3 * matrix + block_bytes(z.p, z.p, z.d, _DOUBLE, z.threads)
        return MethodMemory(
            host=(("factor of the landmarks", matrix),),
            batch=_SUMS * z.p * padded(z.c) * _DOUBLE,
            before_device=made,
        )

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        return [("K_ZZ", z.p**2 * rates.block_ns * _NS), ("factor", z.p**3 / 3 / rates.flops64)]

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        entries = z.own_rows * z.p * _NS
        return [
            ("kernel blocks", entries * rates.block_ns * fresh),
            ("products", entries * rates.product_ns),
            ("solves", 2 * z.p**2 * rates.product_ns * _NS),
        ]
