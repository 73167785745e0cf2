"""Kernel ridge regression on the rows of one leaf.

With the weights W of the rows, their number n in all leaves and the penalty alpha, the part of the objective
``(1/n) sum_i w_i (f(x_i) - y_i)^2 / 2 + (alpha/2) |f|^2`` that belongs to a leaf has the minimiser

    a = W^(1/2) (W^(1/2) K W^(1/2) + n alpha)^-1 W^(1/2) y

With fewer centres Z than rows it is ``a = (K_ZX W K_XZ + n alpha K_ZZ)^-1 K_ZX W y``.
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.namespace import to_host
from daskkern.backend.tiles import slices
from daskkern.kernels import Kernel
from daskkern.linalg import solve_positive_definite

_ROWS = 2048


@dataclass(frozen=True, eq=False)
class LeafRows:
    """The rows of a leaf.

    Attributes
    ----------
    X : (s, d) array or CSR rows
        Where kernel values are to be computed; they are factored on the host, in float64.
    y : (s, c) float64 array
    root : (s, 1) float64 array
        Square roots of the weights.
    """

    X: Array
    y: FloatArray
    root: FloatArray


def solve_leaf(
    kernel: Kernel, rows: LeafRows, shift: float, centres: IntArray | None = None
) -> tuple[FloatArray, float]:
    """Return the coefficients (s, c) of the rows of a leaf, and the sum of ``w (f - y)^2 / 2`` over them.

    Parameters
    ----------
    kernel : Kernel
    rows : LeafRows
    shift : float
        ``n alpha``.
    centres : (z,) int64 or None
        The rows whose coefficients are not 0, ascending; None for all.

    Raises
    ------
    NotPositiveDefiniteError
        When the kernel matrix has no factor, with more than rounding added to its diagonal.
    """
    if centres is not None:
        return _by_centres(kernel, rows, shift, centres)
    K = _host(kernel.block(rows.X, rows.X))
    K = (K + K.T) * (rows.root * (rows.root.T / 2))
    z, used = solve_positive_definite(K, rows.root * rows.y, shift, 1)
    return rows.root * z, 0.5 * used**2 * float((z * z).sum())


def _by_centres(kernel: Kernel, rows: LeafRows, shift: float, centres: IntArray) -> tuple[FloatArray, float]:
    Z = rows.X[centres]
    points = kernel.points(Z, kernel.placement_for(Z))
    A, b = np.zeros((len(centres), len(centres))), np.zeros((len(centres), rows.y.shape[1]))
    target = rows.root * rows.y
    for part in slices(len(target), _ROWS):
        C = rows.root[part] * _host(kernel.block(rows.X[part], points))
        A += C.T @ C
        b += C.T @ target[part]
    gram = _host(kernel.block(Z, Z))
    gram = (gram + gram.T) / 2
    found, _ = solve_positive_definite(A + shift * gram, b.copy(), 0.0, 1)
    coef = np.zeros_like(rows.y)
    coef[centres] = found
    square = float((target * target).sum()) - 2 * float((found * b).sum()) + float((found * (A @ found)).sum())
    return coef, 0.5 * max(0.0, square)


def _host(values: Array) -> FloatArray:
    return np.asarray(to_host(values), np.float64)
