"""The bytes and seconds of methods with all columns on each rank, distributed rows, and triangular factors."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.linalg import block_width
from daskkern.solvers.costs.primitives import block_bytes, padded, triangle_bytes
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, MethodCosts, MethodMemory, Seconds

_UNITS = 8  # partial sums of a double product
_DOUBLE = 8
_SOLVES = 2  # of each factor
_NS = 1e-9


@dataclass(frozen=True)
class FactorCosts(MethodCosts):
    """The arithmetic of Falkon and NYTRO.

    Attributes
    ----------
    factors : int
        Triangular factors that each rank has whole: T, and A.
    newton : bool
        A is made in each epoch, and scores of the rank's rows are kept.
    """

    by_rows: ClassVar[bool] = True

    factors: int = 2
    newton: bool = False

    def memory(self, z: FitSizes) -> MethodMemory:
        scores = (("scores of its rows", z.own_rows * z.c * z.itemsize),) if self.newton else ()
        return MethodMemory(
            device=(("triangular factors", self._factors(z)),),
            batch=(_UNITS + 3) * z.p * padded(z.c) * 8,
            steps=scores,
            before_device=_setup(z),
        )

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        """Return T, and once for the squared loss the Gram matrix of T and A: p^3 / 3 each."""
        fill = z.p * z.p / 2 / z.ranks * rates.block_ns * _NS
        made = _factor_seconds(z, rates, 2 * self.factors - 1)
        return [("K_ZZ", fill), ("factors", made), ("reading", 3 * z.n * rates.row_s)]

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        entries = z.own_rows * z.p * _NS
        solves = self.factors * _SOLVES * z.p * z.p / 2 * rates.product_ns / 2 * _NS
        return [
            ("kernel blocks", entries * rates.block_ns * fresh),
            ("products", entries * rates.product_ns),
            ("preconditioner", solves),
        ]

    def epoch_seconds(self, z: FitSizes, rates: ComputeRates) -> Seconds:
        """Return the inner factor of another loss than the squared one, which is made in each epoch."""
        return [("factors", _factor_seconds(z, rates, 2))] if self.newton else []

    def _factors(self, z: FitSizes) -> int:
        """Return the bytes of T in float64 and of A in the dtype of the fit, with the copy of T that A is made of."""
        outer, inner = (triangle_bytes(z.p, z.ranks, itemsize) for itemsize in (_DOUBLE, z.itemsize))
        return outer + (self.factors - 1) * inner * (1 + (z.itemsize < _DOUBLE))


def _factor_seconds(z: FitSizes, rates: ComputeRates, count: int) -> float:
    return count * 2 * z.p**3 / 3 / 2 / z.ranks / rates.factor_flops


def _setup(z: FitSizes) -> int:
    """Return what the factors take while they are made: own panels, one in the making, copies, one in transit."""
    width = block_width(z.p, z.ranks)
    own = (z.p * z.p // 2 // z.ranks + z.p * width) * _DOUBLE * (z.ranks > 1)
    panel = z.p * width * _DOUBLE
    filled = block_bytes(z.p, width, z.d, _DOUBLE, z.threads) + z.p * z.d * _DOUBLE
    return own + (3 + (z.ranks > 1)) * panel + max(0, filled - panel) + 8 * width * width * 8
