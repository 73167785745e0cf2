"""The features themselves as columns: the columns of linear models."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.csr import library_matrix
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.backend.tiles import multiply_blocks, multiply_transposed
from daskkern.errors import DataError
from daskkern.kernels.base import Spec
from daskkern.kernels.columns.two_products import TwoProducts
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype
from daskkern.kernels.rows import as_rows, module_of, with_ones


@dataclass(frozen=True)
class Coordinate(TwoProducts):
    """``phi(x; e) = x . e`` for unit vectors e, and 1 for ``e = 0``: a column of a basis, not a kernel.

    Points are CSR rows of one entry 1 each, or of none. Products select columns of the rows: nothing is
    multiplied by unit vectors, and sparse rows stay sparse except in :meth:`block`.
    """

    name: ClassVar[str] = "coordinate"

    def formula(self, pair: Pair) -> Expression:
        return pair.inner

    def spec(self) -> Spec:
        return {"name": self.name}

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        del placement
        Z = as_rows(Z, agreed_dtype(precision, dtype))
        if not is_sparse(Z) or Z.nnz > Z.shape[0] or int(Z.indptr.max(initial=0)) != Z.nnz:
            raise DataError("the columns of a linear model are unit vectors, as CSR rows of at most one entry")
        return Points(Z.shape[0], Z.shape[1], Z.dtype, PLAIN, cut_blocks(Z.shape[0], blocks), Side(Z, None, None, None))

    def left(self, X: Array, right: Points) -> Left:
        X = rows_like(X, right)
        return Left(X.shape, X.dtype, Side(X, None, None, None), None)

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        values = _columns(left, right)
        if is_sparse(values):
            values = values.toarray()
        if out is None:
            return values
        out[...] = values
        return out

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the coefficients of the features, which are the gradients of a linear model at every row."""
        if weights is not None:
            return super().gradient_matvec(X, Z, A, weights)
        slopes: Array = (library_matrix(Z).T @ A).T.astype(np.float64)
        return namespace_of(slopes).tile(slopes, (X.shape[0], 1, 1))

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        self._write_head(head, left, right)
        values, xp = _columns(left, right), namespace_of(A)
        if not is_sparse(values):
            return multiply_blocks(values, A, right.blocks, xp)
        by_column = values.tocsc()
        total = xp.zeros((left.shape[0], A.shape[1]))
        for block in right.blocks:
            total += by_column[:, block] @ A[block]
        return total

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        values = _columns(left, right)
        return values.T @ G if is_sparse(values) else multiply_transposed(values, G, namespace_of(G))

    def columns(self, X: Array | Left, Z: Points) -> Array:
        """Return the block, dense or CSR as the rows are: a view where the columns are adjacent."""
        return _columns(*self._sides(X, Z))


def _columns(left: Left, right: Points) -> Array:
    """Return the rows' entries at the columns, (m, p), with ones for the constant."""
    assert left.side is not None
    assert right.side is not None
    X, units = library_matrix(left.side.rows), library_matrix(right.side.rows)
    filled = units.indptr[1:] > units.indptr[:-1]
    values = X[:, _span(units.indices)]
    if bool(filled.all()):
        return values
    return _with_constant(values, filled, module_of(X))


def _span(numbers: Array) -> slice | Array:
    first = int(numbers[0]) if numbers.size else 0
    adjacent = bool((numbers == first + namespace_of(numbers).arange(numbers.size)).all())
    return slice(first, first + int(numbers.size)) if adjacent else numbers


def _with_constant(values: Array, filled: Array, xp: ModuleType) -> Array:
    """Put columns of ones where `filled` is false."""
    size = int(filled.size)
    if not is_sparse(values):
        result = xp.ones((values.shape[0], size), values.dtype)
        result[:, filled] = values
        return result
    columns = xp.flatnonzero(filled).astype(values.indices.dtype)
    result = type(values)((values.data, columns[values.indices], values.indptr), shape=(values.shape[0], size))
    for column in xp.flatnonzero(~filled).tolist():
        result = with_ones(result, column, size)
    return result
