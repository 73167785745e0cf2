"""Logarithms of weighted kernel sums over rows in memory or in a store, without underflow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import namespace_with, to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Fields, Rows
from daskkern.kernels import Kernel
from daskkern.kernels.base import Spec
from daskkern.kernels.formula import PAIR, Expression, Pair
from daskkern.kernels.functions.matern import Matern
from daskkern.unsupervised.passes import RowPasses, Totals

QUERIES = 8192
"""Rows whose sums are taken in one pass over the points."""
_POINTS = 8192
_TILE = 512
_SMALLEST = 1e-280  # of a sum in float64 with most of its digits
_SMALLEST_SINGLE = 1e-30


@dataclass(frozen=True)
class Exponent(Kernel):
    """The logarithm of a kernel that falls exponentially, as a function of two rows: not a kernel, for blocks only."""

    kernel: Kernel

    def formula(self, pair: Pair) -> Expression:
        return self.kernel.logarithm(pair) if isinstance(self.kernel, Matern) else self.kernel.formula(pair).args[0]

    def spec(self) -> Spec:
        return {}

    def transform(self, rows: Any) -> Any:
        return self.kernel.transform(rows)

    @classmethod
    def of(cls, kernel: Kernel) -> "Exponent | None":
        """Return the logarithm of `kernel`; None for others, which do not fall below the smallest numbers."""
        return cls(kernel) if isinstance(kernel, Matern) or kernel.formula(PAIR).op == "exp" else None


@dataclass(frozen=True, eq=False)
class KernelSums:
    """``sum_i w_i k(x_j, z_i)`` over points z_i, for queries x_j (m,)."""

    kernel: Kernel
    queries: FeatureRows
    device: str
    threads: int | None = None

    def __call__(self, rows: Rows, part: slice) -> Totals:
        total = np.zeros(self.queries.shape[0])
        for cut in slices(part.stop - part.start, _POINTS):
            Z, weight = _points(rows, part, cut)
            xp = namespace_with(self.device, 32.0 * (Z.shape[0] + self.queries.shape[0]) * Z.shape[1])
            placed = to_device(Z, xp)
            points = self.kernel.points(placed, self.kernel.placement_for(placed))
            X, w = to_device(self.queries, xp), xp.asarray(weight)[:, None]
            total += to_host(self.kernel.matvec(X, points, w, threads=self.threads))[:, 0]
        return (total,)


@dataclass(frozen=True, eq=False)
class _LogSums:
    """The logarithm of the same, kept as a table with one row a share: its entries are not added."""

    exponent: Exponent
    queries: FeatureRows

    def __call__(self, rows: Rows, part: slice) -> HostArray:
        total = np.full(self.queries.shape[0], -np.inf)
        for cut in slices(part.stop - part.start, _POINTS):
            Z, weight = _points(rows, part, cut)
            points = self.exponent.points(Z, self.exponent.placement_for(Z))
            with np.errstate(divide="ignore"):
                logs = np.log(weight)
            for tile in slices(self.queries.shape[0], _TILE):
                values = self.exponent.block(self.queries[tile], points).astype(np.float64) + logs
                total[tile] = np.logaddexp(total[tile], logsumexp(values, axis=1))
        return total[None]


def log_kernel_sums(
    passes: RowPasses, kernel: Kernel, queries: FeatureRows, device: str, threads: int | None = None
) -> FloatArray:
    """Return ``log sum_i w_i k(x_j, z_i)`` (m,) of scaled queries over all rows z_i with weights w_i.

    `threads` is that of :meth:`daskkern.kernels.Kernel.matvec`. One pass; a second one for queries where the sum of an
    exponential kernel is close to the smallest numbers.
    """
    (sums,) = passes.totals(KernelSums(kernel, queries, device, threads))
    least = _SMALLEST if passes.dtype == "float64" else _SMALLEST_SINGLE
    with np.errstate(divide="ignore"):
        found: FloatArray = np.log(np.maximum(sums, 0))
    far, exponent = np.flatnonzero(sums < least), Exponent.of(kernel)
    if far.size and exponent is not None:
        found[far] = logsumexp(passes.values(_LogSums(exponent, queries[far])), axis=0)
    return found


def _points(rows: Rows, part: slice, cut: slice) -> tuple[FeatureRows, HostArray]:
    block = rows.read(part.start + cut.start, part.start + cut.stop, Fields.X | Fields.weight)
    assert block.X is not None
    return block.X, np.ones(block.X.shape[0]) if block.weight is None else block.weight
