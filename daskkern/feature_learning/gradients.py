"""The average gradient outer product of a function ``f(x) = sum_j k(x, z_j) a_j`` over rows.

``M = sum_i w_i J(x_i)^T J(x_i) / sum_i w_i`` with J (c, d) the Jacobian of f. Its large entries belong to features, and
its leading eigenvectors to directions, that f changes with (Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism
for feature learning in neural networks and backpropagation-free machine learning models", Science 2024, eq. 2).
A pair of equal rows contributes nothing where the kernel has a kink: its derivative counts as 0 there.
"""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.tiles import TILE_ROWS, for_each, slices, within
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.rows import module_of

TILE_ELEMENTS = 1 << 24
"""Numbers of the gradients that are held at once: 128 MiB."""
TILES = 4
"""Tiles of rows whose gradients are held at once: as many threads compute them."""
_COLUMNS = 512  # of a product of gradients that one thread computes


@dataclass(frozen=True, eq=False)
class FittedFunction:
    """``f(x) = sum_j k(x, z_j) a_j``.

    Attributes
    ----------
    kernel : ScaledDistanceKernel
    points : (p, d) array or CSR rows
    coef : (p, c) array
    """

    kernel: ScaledDistanceKernel
    points: Array
    coef: Array

    def on(self, xp: ModuleType, dtype: str) -> "FittedFunction":
        """Return the function with arrays of a dtype, on the host or a device."""
        points, coef = self.points.astype(dtype), self.coef.astype(dtype)
        return FittedFunction(self.kernel, to_device(points, xp), xp.asarray(coef))


@dataclass(frozen=True, eq=False)
class OuterProduct:
    """What is summed of the outer products ``J^T J`` (d, d).

    Attributes
    ----------
    diagonal : bool
        The diagonal (d,); nothing of d times d is then made.
    directions : (d, r) array or None
        The product with these directions, and the diagonal as one more column: (d, r + 1), and nothing of d times d.
        None for all of it.
    """

    diagonal: bool = False
    directions: Array | None = None

    def zeros(self, d: int, xp: ModuleType) -> Array:
        """Return the sum over no rows, float64."""
        if self.diagonal:
            return xp.zeros(d)
        return xp.zeros((d, d if self.directions is None else self.directions.shape[1] + 1))

    def add(self, total: Array, J: Array) -> None:
        """Add the outer products of the gradients J (k, d) to `total`, in place."""
        xp = module_of(J)
        if self.diagonal:
            total += xp.einsum("kd,kd->d", J, J)
        elif self.directions is not None:
            total[:, :-1] += J.T @ (J @ self.directions)
            total[:, -1] += xp.einsum("kd,kd->d", J, J)
        else:

            def one(cols: slice) -> None:
                total[:, cols] += J.T @ J[:, cols]

            for_each(slices(J.shape[1], _COLUMNS), one, float(J.shape[0]) * J.shape[1] ** 2)


def add_outer_products(
    total: Array, function: FittedFunction, X: Array, counts: Array | None, product: OuterProduct
) -> None:
    """Add ``w_i J(x_i)^T J(x_i)`` of all rows to `total`, in place, a tile of gradients at a time.

    Parameters
    ----------
    total : float64 array
        As :meth:`OuterProduct.zeros` gives it.
    function : FittedFunction
    X : (m, d) array or CSR rows
    counts : (m,) array or None
        Weights w of the rows; None counts each once.
    product : OuterProduct
    """
    xp = module_of(X)
    c, d = function.coef.shape[1], X.shape[1]
    step = max(1, min(TILE_ROWS if xp is np else TILE_ELEMENTS, TILE_ELEMENTS // (TILES * c * d)))
    root = None if counts is None else xp.sqrt(xp.asarray(counts, np.float64))
    for group in slices(X.shape[0], TILES * step):
        J = xp.empty((group.stop - group.start, c, d))

        def one(part: slice, J: Array = J, start: int = group.start) -> None:
            found = function.kernel.gradient_matvec(X[part], function.points, function.coef)
            J[part.start - start : part.stop - start] = found if root is None else found * root[part, None, None]

        for_each(within(group, step), one, float(J.size) * function.points.shape[0])
        product.add(total, J.reshape(-1, d))


def gradient_outer_product(
    kernel: ScaledDistanceKernel,
    X: Array,
    Z: Array,
    A: Array,
    weight: FloatArray | None,
    *,
    diagonal: bool,
    directions: Array | None = None,
) -> FloatArray:
    """Return the average gradient outer product M (d, d) of a function, or its diagonal (d,), or M's product.

    Parameters
    ----------
    kernel : ScaledDistanceKernel
    X : (m, d) array or CSR rows
        Rows that gradients are taken at, a tile at a time.
    Z : (p, d) array or CSR rows
    A : (p, c) array
    weight : (m,) array or None
        Weights of the rows.
    diagonal : bool
        Return only the diagonal; nothing of d times d is then made.
    directions : (d, r) array, optional
        Return ``M @ directions`` with the diagonal of M as one more column, (d, r + 1).

    Returns
    -------
    float64 NumPy array
    """
    xp = module_of(X)
    product = OuterProduct(diagonal, None if directions is None else xp.asarray(directions))
    total = product.zeros(X.shape[1], xp)
    counts = None if weight is None else xp.asarray(weight)
    add_outer_products(total, FittedFunction(kernel, Z, A), X, counts, product)
    found: FloatArray = to_host(total / (X.shape[0] if counts is None else counts.sum()))
    return found
