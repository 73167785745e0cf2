"""Linear maps of kernel columns: ``phi(x) = M^T k(Z, x)``, an orthonormal basis of the span of landmarks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.namespace import failures_raised, namespace_of, to_device, to_host
from daskkern.backend.tiles import multiply, multiply_transposed
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks
from daskkern.kernels.precision import Precision, agreed_dtype
from daskkern.kernels.rounding import Rounding
from daskkern.kernels.rows import as_rows, module_of


@dataclass(frozen=True, eq=False)
class Mapped(Kernel):
    """Columns ``phi_j(x) = sum_i M_ij k(z_i, x)``, not a kernel; its points are the rows of M^T, (r, p).

    Every product passes over all of Z, whichever columns it is for: ranks share the columns, not the kernel values.
    A trained model needs none of it, because ``phi(x)^T w = k(x, Z) (M w)``.

    Parameters
    ----------
    kernel : Kernel
        The kernel that is applied.
    centres : (p, d) array or CSR matrix
        Z.
    """

    name: ClassVar[str] = "mapped"

    kernel: Kernel
    centres: Any = field(repr=False)

    def formula(self, pair: Pair) -> Expression:
        return self.kernel.formula(pair)

    def spec(self) -> Spec:
        raise SpecError("mapped columns have no spec; their model is one of the kernel's own columns")

    def check_rows(self, rows: Array) -> None:
        self.kernel.check_rows(rows)

    def features_of(self, points: Array) -> int:
        del points
        return int(self.centres.shape[1])

    def shift_for(self, Z: Array) -> Array | None:
        del Z
        return self.kernel.shift_for(self.centres)

    def rounding(self, Z: Array, dtype: object = np.float32) -> Rounding:
        del Z
        return self.kernel.rounding(self.centres, dtype)

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        rows = as_rows(Z, agreed_dtype(precision, dtype))
        xp = module_of(rows)
        centres = self.kernel.points(to_device(self.centres, xp), placement, dtype=rows.dtype, precision=precision)
        side = Side(xp.ascontiguousarray(rows.T), None, None, None)  # M
        (p, d), cuts = (rows.shape[0], int(self.centres.shape[1])), cut_blocks(rows.shape[0], blocks)
        return Points(p, d, rows.dtype, placement, cuts, side, parts=(centres,))

    def left(self, X: Array, right: Points) -> Left:
        return self.kernel.left(X, right.parts[0])

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        values, M = self.kernel.block(left, right.parts[0]), _map(right)
        return namespace_of(M).matmul(values, M, out=out)

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        M, A = _map(right), self._factor("A", A, right.size, right)
        self._write_head(head, left, right)
        return self.kernel.matvec(left, right.parts[0], multiply(M, A, namespace_of(M)))

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        if weights is not None:
            raise SpecError("mapped columns have no weighted gradients; take those of the kernel's own columns")
        return self.kernel.gradient_matvec(X, self.centres, Z.T @ A)

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        M, G = _map(right), self._factor("G", G, left.shape[0], right)
        return multiply_transposed(M, self.kernel.rmatvec(left, right.parts[0], G), namespace_of(M))

    def double_product(
        self,
        X: Array | Left,
        Z: Array | Points,
        V: Array,
        between: Callable[[Array, slice], Array] | None = None,
    ) -> Array:
        left, right = self._sides(X, Z)
        M = _map(right)
        inner = multiply(M, self._factor("V", V, right.size, right), namespace_of(M))
        pulled = self.kernel.double_product(left, right.parts[0], inner, between)
        return multiply_transposed(M.astype(np.float64), pulled, namespace_of(M))


def nystrom_map(K: Array, tolerance: float) -> HostArray:
    """Return ``Sigma^(-1/2) V^T`` (r, p) float64, in host memory, of ``K_ZZ = V Sigma V^T`` (p, p) on host or GPU.

    Eigenvalues below `tolerance` times the largest are left out. The largest number of each row is positive: libraries
    differ in the signs of eigenvectors, and a checkpoint's weights belong to those of the rows. ``phi(x)^T phi(z)`` is
    the kernel of the projection on the span of the landmarks (Williams and Seeger, "Using the Nystrom method to speed
    up kernel machines", NIPS 2000).
    """
    xp = namespace_of(K)
    with failures_raised(xp):
        values, vectors = xp.linalg.eigh(K)
    dropped = int((to_host(values) <= tolerance * float(values[-1])).sum())
    rows = to_host(vectors[:, dropped:] / xp.sqrt(values[dropped:])).T[::-1]
    largest = np.abs(rows).argmax(axis=1)[:, None]
    signed: HostArray = rows * np.sign(np.take_along_axis(rows, largest, axis=1))
    return signed


def _map(points: Points) -> Array:
    assert points.side is not None
    return points.side.rows
