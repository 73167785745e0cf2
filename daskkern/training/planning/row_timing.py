"""The time of a fit whose rows are dealt, in the terms of :mod:`.timing`."""

from daskkern.training.planning.calibration import Rates
from daskkern.training.planning.sizes import FitSizes

Seconds = list[tuple[str, float]]
_SOLVES = 2  # of each factor
_NS = 1e-9


def setup_parts(z: FitSizes, rates: Rates) -> Seconds:
    """Return what the factors take: T, and once for the squared loss the Gram matrix of T and A, p^3 / 3 each."""
    if z.dense:
        return [("reading", z.n * rates.row_s), ("factor", z.p**3 / 3 / rates.flops64)]
    fill = z.p * z.p / 2 / z.ranks * rates.block_ns * _NS
    return [("K_ZZ", fill), ("factors", _factors(z, rates, 2 * z.factors - 1)), ("reading", 3 * z.n * rates.row_s)]


def sweep_parts(z: FitSizes, rates: Rates, *, fresh: bool) -> Seconds:
    """Return one pass over the rank's rows, with kernel values computed (`fresh`) or kept."""
    entries = z.own_rows * z.p * _NS
    if z.dense:
        gram = 2 * z.n * z.p * z.p / rates.flops64 * (z.dense - 1)
        return [("kernel blocks", entries * rates.block_ns), ("normal equations", gram)]
    solves = z.factors * _SOLVES * z.p * z.p / 2 * rates.product_ns / 2 * _NS
    return [
        ("kernel blocks", entries * rates.block_ns * fresh),
        ("products", entries * rates.product_ns),
        ("preconditioner", solves),
    ]


def newton_parts(z: FitSizes, rates: Rates) -> Seconds:
    """Return what each epoch of another loss than the squared one adds: the inner factor, made anew."""
    return [("factors", _factors(z, rates, 2))] if z.newton else []


def _factors(z: FitSizes, rates: Rates, count: int) -> float:
    return count * 2 * z.p**3 / 3 / 2 / z.ranks / rates.factor_flops
