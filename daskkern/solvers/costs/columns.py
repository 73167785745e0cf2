"""The bytes and seconds of methods whose columns are distributed over the ranks.

With a subsample of s rows, q damped directions and a window of batches these are EigenPro's; with none, what is left
are those of first-order methods.
"""

import math
from dataclasses import dataclass

from daskkern.kernels.engines.cuda.recording import WORKSPACE_BYTES
from daskkern.linalg import group_count
from daskkern.linalg.eigen import eigen_method, krylov_space
from daskkern.linalg.joined_factor import JOINED_COLUMNS
from daskkern.solvers.costs.primitives import (
    BLOCK_COLUMNS,
    HELD_OUT,
    covariance_bytes,
    factor_bytes,
    factor_setup_bytes,
    mapped_bytes,
    matvec_bytes,
    padded,
    points_bytes,
    spectrum_bytes,
    workspace_bytes,
)
from daskkern.solvers.costs.sizes import ComputeRates, FitSizes, Items, MethodCosts, MethodMemory, Seconds

_VECTORS = 9  # (p_r, c) arrays of conjugate gradient in float64
_ITERATIONS_OF_PROJECTOR = 10
_EIGSH_PRODUCTS = 60
_NS = 1e-9


@dataclass(frozen=True)
class ColumnCosts(MethodCosts):
    """The arithmetic of a method whose columns are distributed.

    Attributes
    ----------
    state_per_row : int
        Numbers of each output that are kept for every row.
    row_products : bool
        Inner products of a batch's rows are held.
    block_covariance : bool
        A batch's features of one step, and their covariance, are held in float64.
    """

    state_per_row: int = 0
    row_products: bool = False
    block_covariance: bool = False

    def memory(self, z: FitSizes) -> MethodMemory:
        host, device = _spectrum(z)
        before_host, before_device = _before_steps(z)
        return MethodMemory(
            host=(("spectrum", host),),
            device=(("preconditioner", device),),
            coefficients=4 * _stored_rows(z) * self.state_per_row * padded(z.c) * 8,
            batch=6 * 8 * z.m * z.m * self.row_products + _covariance_of_block(z) * self.block_covariance,
            passing=_temporary_centres(z),
            steps=_steps(z),
            before_host=before_host,
            before_device=before_device,
        )

    def setup_seconds(self, z: FitSizes, rates: ComputeRates, stored: bool) -> Seconds:
        b, h = rates.block_ns * _NS, min(HELD_OUT, z.n)
        if z.explicit:
            entries = (z.s + h) * z.p * b + 2 * z.p * (z.s * min(z.s, z.p) + h * h + 2 * z.s * z.q) / rates.flops64
            eigen = _eigen_seconds(min(z.s, z.p), z.q, rates)
            outside, damped = 2 * h * z.q * (z.p + h) / rates.flops64, z.own * z.q * b
        else:
            entries = (z.s**2 + h * z.s + h**2) * b
            eigen = _eigen_seconds(z.s, z.q, rates)
            outside = 2 * h * z.q * (z.s + h) / rates.flops64
            damped = (z.own_s if z.all_rows else z.own) * z.s * (b + 2 * z.q / rates.factor_flops)
        outside += _EIGSH_PRODUCTS * 8 * h * h / rates.memory
        parts = [("spectrum", entries + eigen + outside), ("damped directions", damped)]
        if z.exact:
            width = z.block_columns
            corners = 4 * z.own * width**2 / rates.flops64
            flops = z.p**3 / 3 * (1 + 1 / group_count(z.p) ** 2)
            parts.append(("factor", z.p * z.own / 2 * b + flops * z.fraction / rates.factor_flops + corners))
        sample = z.n if z.all_rows else min(z.n, max(z.p, HELD_OUT))
        parts.append(("reading", (4 + z.exact) * rates.sample_s(z, sample)))
        return parts

    def sweep_seconds(self, z: FitSizes, rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        parts = products_seconds(z, rates, fresh=fresh and not stored)
        correction = 2.0 * z.own_s * z.q + (0 if z.all_rows else z.own * z.q)
        parts.append(correction_seconds(z, rates, correction))
        if z.window > 1:
            met = z.n / z.groups * (z.window - 1) / 2 * z.m * z.fraction
            parts.append(("temporary centres", met * rates.matvec_ns * _NS))
        projections = self.projections(z)
        if projections:
            once = z.p * z.own / 2 * rates.product_ns
            if not z.exact:
                once = _ITERATIONS_OF_PROJECTOR * z.p * z.own * rates.matvec_ns
            parts.append(("projection", projections * once * _NS))
        return parts

    def projections(self, z: FitSizes) -> float:
        return 0.0 if z.all_rows else max(1.0, z.n / z.m / z.window)


def _eigen_seconds(s: int, q: int, rates: ComputeRates) -> float:
    """Return the time of the `q` largest eigenpairs of a matrix of `s` rows, dense or by the Krylov method."""
    if eigen_method(s, q, is_lazy=False) == "dense":
        return 1.33 * s**3 / rates.memory + (2 / 3 * s**3 + 2 * s**2 * q) / rates.flops64
    space = krylov_space(s, q)
    return (2 * s**2 * space + 6 * s * space**2 + 2 * s * space * q) / rates.flops64


def entry_ns(z: FitSizes, rates: ComputeRates) -> float:
    """Return what a kept entry saves in each epoch."""
    return max(0.0, rates.matvec_ns - rates.product_ns / 2) if z.all_rows else rates.block_ns


def products_seconds(z: FitSizes, rates: ComputeRates, *, fresh: bool) -> Seconds:
    """Return the values of the columns at all rows, where they are computed, and the products with them."""
    entries, passes = z.n / z.groups * z.own, 1.0 if not z.all_rows else 0.5
    products = entries * rates.product_ns * _NS * passes
    return [("kernel blocks", entries * entry_ns(z, rates) * _NS * fresh), ("products", products)]


def correction_seconds(z: FitSizes, rates: ComputeRates, numbers: float) -> tuple[str, float]:
    """Return what a preconditioner takes of which `numbers` meet c columns in one step."""
    return "preconditioner", z.n / z.m * numbers * rates.product_ns / 2 * _NS


def _covariance_of_block(z: FitSizes) -> int:
    """Return the bytes of a batch's features of one step, of their scaled copy, and of equations in the fewer."""
    return 8 * (3 * z.m * z.drawn + 4 * min(z.m, z.drawn) ** 2)


def _stored_rows(z: FitSizes) -> int:
    """Return the most rows whose per-row values a rank stores: with all rows as centres those of its columns."""
    return z.own if z.all_rows and z.share is not None else -(-z.n // z.ranks)


def _temporary_centres(z: FitSizes) -> int:
    rows = z.span or (z.window - 1) * z.m
    if z.all_rows or z.drawn or not rows:
        return 0
    # Joined ones are copied before the old ones go; a rank has at most a batch more than its share.
    own = rows // z.ranks + z.m if z.share is None else math.ceil(z.share * rows) + 2 * z.m
    return 2 * min(rows, own) * ((z.d + 2) * z.within + z.c * z.itemsize)


def _steps(z: FitSizes) -> Items:
    """Return what projections keep."""
    b, own = z.itemsize, z.own
    if z.all_rows or z.drawn or z.explicit:
        return ()
    damped = ("damped directions", own * z.q * b)
    if z.exact:
        few = min(z.p, JOINED_COLUMNS)  # more centres need no less
        joined = few**2 * b if z.ranks == 1 else 2 * factor_bytes(few, z.ranks, b, z.share)
        joined *= z.device == "gpu"
        factor = ("projection factor", max(joined, factor_bytes(z.p, z.ranks, b, z.share)))
        return damped, factor, *_recorded(z)
    if z.s:
        iterated = _VECTORS * own * padded(z.c) * 8 + 4 * z.q * z.q * 8 + z.m * z.d * b
        return damped, ("projection by iteration", iterated)
    return (damped,)


def _recorded(z: FitSizes) -> Items:
    """Return where recorded steps read and write: the batch, the run, and what cuBLAS works in."""
    if z.device != "gpu" or z.all_ranks > 1 or z.entries or z.p > JOINED_COLUMNS:
        return ()
    numbers = z.m * (z.d + z.c + 1) + 4 * z.own * z.c + z.own_s * z.c
    return (("recorded steps", WORKSPACE_BYTES + numbers * z.itemsize),)


def _spectrum(z: FitSizes) -> tuple[int, int]:
    """Return what is kept of the spectrum in host memory, and a rank's part of it on the device."""
    if z.explicit:
        return z.p * z.q * z.itemsize, z.own * z.q * z.itemsize
    return z.s * z.q * 8 + z.s * z.d * z.itemsize, z.own_s * z.q * z.itemsize


def _before_steps(z: FitSizes) -> tuple[int, int]:
    """Return the most that the spectrum needs in host memory, and the set-up of the columns where they live."""
    b, w = z.itemsize, z.within
    chosen = 0 if z.all_rows else z.p * z.d * b
    if z.explicit:
        width = z.p if z.mapped else BLOCK_COLUMNS
        made = covariance_bytes(z.p, z.s, z.q, min(HELD_OUT, z.n), z.d, b, width)
        made = max(made, mapped_bytes(z.p, b) * z.mapped)
        return made + workspace_bytes(z.threads, z.d, b) + (chosen + z.p * z.p * b * z.mapped) * (not z.units), 0
    rows = min(z.own_s if z.all_rows else z.own, z.block_columns)  # a block of them at a time
    damped = matvec_bytes(rows, z.s, z.d, z.q, w, z.threads) + 2 * z.s * z.q * 8 + points_bytes(z.s, z.d, w)
    factor = factor_setup_bytes(z.p, z.d, z.ranks, b, z.threads, w) if z.exact else 0
    return spectrum_bytes(z.s, z.q, min(HELD_OUT, z.n), z.d, b, z.threads, w) + chosen, max(damped, factor)
