"""Gradients of ``sum_j k(x_i, z_j) A_jc`` by the rows x_i, for every kernel whose formula has a derivative.

With F the formula of a pair, and ``inner``, ``norms``, ``cosine`` and ``squared_distance`` what it reads,

    dF/dx = U z + V x ,
    U = F_inner - 2 F_squared_distance + F_cosine / (|x| |z|) ,
    V = 2 F_squared_distance - F_cosine cosine / |x|^2 + F_norms |z| / |x| ,

so that a tile of gradients takes the derivatives of the formula once, and two matrix products for each output.
Everything is float64: the difference of U z and V x loses the digits that equal rows have in common.
"""

from types import ModuleType

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import slices
from daskkern.errors import SpecError
from daskkern.kernels.derivative import differentiate
from daskkern.kernels.formula import DIFFERENCES, Expression, Program, evaluate, program
from daskkern.kernels.rows import as_rows, module_of

_TILE = 1 << 21
"""Numbers of a tile of pairs, or of dense rows: 16 MiB."""
_SAME = 1e-13  # of |x|^2 + |z|^2: a squared distance below is 0 but for rounding
_PARALLEL = 1e-14  # from 1: the gradient of the cosine of parallel rows is 0, whatever slope the formula has there
_DERIVED = ("inner", "squared_distance", "cosine", "norms")


def formula_gradients(formula: Expression, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
    """Return the gradients (m, c, d), float64, of ``sum_j w_ij F(x_i, z_j) A_jc`` by the rows x_i.

    Parameters
    ----------
    formula : Expression
        F, of the rows as they are.
    X, Z : (m, d) and (p, d) arrays or CSR rows
        Made dense and float64 a tile at a time.
    A : (p, c) array
    weights : (m, p) array, optional
        w; ones by default.

    Raises
    ------
    SpecError
        For a formula of sums of differences, or with an operation that has no derivative.
    """
    slopes = {name: program(differentiate(formula, name)) for name in _DERIVED}
    if program(formula).symbols & set(DIFFERENCES):
        raise SpecError("a formula of sums of differences has no gradients by inner products; give gradient_matvec")
    X, Z = as_rows(X), as_rows(Z)
    xp = module_of(X)
    A = xp.asarray(A, np.float64)
    (m, d), p = X.shape, Z.shape[0]
    out = xp.zeros((m, A.shape[1], d))
    width = max(1, min(p, 2048, _TILE // max(1, d)))
    for cols in slices(p, width):
        right = _wide(Z[cols])
        for rows in slices(m, max(1, min(_TILE // width, _TILE // max(1, d)))):
            left = _wide(X[rows])
            with np.errstate(all="ignore"):  # checked by the caller: what is not finite is not hidden
                U, V = _factors(slopes, left, right, xp)
            if weights is not None:
                U, V = U * weights[rows, cols], V * weights[rows, cols]
            own = V @ A[cols]
            for c in range(A.shape[1]):
                out[rows, c] += (U * A[cols, c]) @ right + own[:, c, None] * left
    return out


def _factors(slopes: dict[str, Program], left: Array, right: Array, xp: ModuleType) -> tuple[Array, Array]:
    """Return U and V (m, p) for dense rows (m, d) and (p, d)."""
    inner = left @ right.T
    squares, others = (left * left).sum(axis=1)[:, None], (right * right).sum(axis=1)[None]
    norms = xp.sqrt(squares * others)
    cosine = xp.clip(xp.where(norms > 0, inner / xp.where(norms > 0, norms, 1), 0), -1, 1)
    apart = squares + others - 2 * inner
    apart = xp.where(apart > _SAME * (squares + others), apart, 0)
    values = {
        "inner": inner, "squared_distance": apart, "distance": xp.sqrt(apart), "cosine": cosine, "norms": norms,
    }  # fmt: skip

    def slope(name: str) -> Array | float:
        what = slopes[name]
        return evaluate(what, {key: values[key].copy() for key in what.symbols}, xp)

    by_cosine = xp.where(xp.abs(cosine) < 1 - _PARALLEL, slope("cosine"), 0)
    present = xp.where(squares > 0, squares, 1)
    by_distance, by_norms = slope("squared_distance"), slope("norms")
    U = slope("inner") - 2 * by_distance + xp.where(norms > 0, by_cosine / xp.where(norms > 0, norms, 1), 0)
    V = 2 * by_distance + xp.where(squares > 0, (by_norms * norms - by_cosine * cosine) / present, 0)
    return U, V


def _wide(rows: Array) -> Array:
    return (rows.toarray() if is_sparse(rows) else rows).astype(np.float64)
