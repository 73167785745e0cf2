"""The base class of kernels: one formula of a pair of rows; blocks and products for every kernel and device.

A new kernel is one class with one formula, in a file of its own, and one row in ``registry``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.concurrency import product_threads
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import DataError
from daskkern.kernels.engines import cuda, native, tiled
from daskkern.kernels.engines.dispatch import (
    Engine,
    Widened,
    engine_for,
    fill_for,
    is_compiled,
    is_plain,
    plain_products,
    widened_fill,
)
from daskkern.kernels.formula import PAIR, Expression, Pair, Program, evaluate, program
from daskkern.kernels.points import (
    PLAIN,
    Left,
    Placement,
    Points,
    cut_blocks,
    make_side,
    native_rows,
    pick_shift,
    product_size,
    squared_norms,
)
from daskkern.kernels.precision import Precision, agreed_dtype, rounded
from daskkern.kernels.rounding import Rounding, rounding_of
from daskkern.kernels.rows import as_rows, module_of, rows_dtype

__all__ = ["Kernel", "Points", "plain_products"]

Spec = Mapping[str, object]


@dataclass(frozen=True)
class Kernel(ABC):
    """A positive definite function of two rows.

    Subclasses are frozen dataclasses that give :attr:`name`, :meth:`formula` and :meth:`spec`. Rows are float32 or
    float64, NumPy or CuPy, dense or CSR (``scipy.sparse`` or ``cupyx.scipy.sparse``); other real dtypes are
    converted (:func:`daskkern.kernels.rows.as_rows`). Neither side of a product is ever made dense as a whole.
    """

    name: ClassVar[str]
    algebra: ClassVar[dict[str, Callable[[Any, Any], "Kernel"]]] = {}
    """The classes that "+" and "*" construct; filled by ``algebra``, which imports this file."""
    __array_ufunc__ = None  # NumPy scalars defer to the kernel in ``np.float64(2) * kernel``

    def __add__(self, other: "Kernel") -> "Kernel":
        return self.algebra["sum"](self, other)

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        return self.algebra["product"](self, other)

    def __rmul__(self, other: float) -> "Kernel":
        return self.algebra["product"](self, other)

    @abstractmethod
    def formula(self, pair: Pair) -> Expression:
        """Return the kernel's value in terms of `pair`; SpecError while a parameter still depends on data."""

    @abstractmethod
    def spec(self) -> Spec:
        """Return name and parameters as JSON values; ``registry.from_spec`` is the inverse."""

    def features_of(self, points: Array) -> int:
        """Return the number of features d of the rows that are combined with `points` (p, d)."""
        return int(points.shape[1])

    def resolve(self, sample: Array) -> "Kernel":
        """Return the kernel with every data-dependent parameter computed from the rows of `sample`."""
        del sample
        return self

    def transform(self, rows: Array) -> Array:
        """Return the input of the formula for `rows` (m, d): the rows themselves, or a linear map of them (m, k)."""
        return rows

    @property
    def coordinates(self) -> Hashable:
        """A key that determines :meth:`transform`; None when no single formula gives the kernel."""
        return ()

    @property
    def has_units(self) -> bool:
        """Whether a parameter is in the units of the features, so that rows in other units need another value."""
        return False

    @property
    def is_shift_invariant(self) -> bool:
        """Whether the kernel depends on ``x - z`` only."""
        return self.program.symbols <= {"squared_distance", "distance"}

    @cached_property
    def program(self) -> Program:
        """The formula as instructions."""
        return program(self.formula(PAIR))

    def shift_for(self, Z: Array) -> Array | None:
        """Return the point to subtract from all rows before products with `Z`, or None. See :func:`pick_shift`."""
        return pick_shift(as_rows(Z), self.transform) if self.is_shift_invariant else None

    def placement_for(self, Z: Array) -> Placement:
        """Return how rows are prepared for points like `Z`: decided once for a whole fit, or a model."""
        Z = as_rows(Z)
        return Placement(self.shift_for(Z), Z.dtype == np.float32 and not self.rounding(Z).is_passable)

    def rounding(self, Z: Array, dtype: object = np.float32) -> Rounding:
        """Return the error that values of rows like `Z` (p, d) have when distances are computed in `dtype`."""
        Z = as_rows(Z)
        return rounding_of(self.program, Z, self.shift_for(Z), self.transform, dtype)

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        """Prepare rows `Z` (p, d) for repeated use as the right side of blocks. Copies `Z` once.

        Parameters
        ----------
        placement : Placement, optional
            From :meth:`placement_for`; the same for all points for the same rows. None by default.
        blocks : sequence of slices, optional
            Pieces of the columns: products are summed in the working dtype within a piece and in float64 over
            the pieces. Pieces that do not depend on how columns are distributed over ranks make sums
            over ranks the same for every number of ranks.
        dtype : numpy dtype, optional
            Type of the products; that of `Z` by default.
        precision : "float64", "float32", "tf32" or "float16", optional
            Exact in the dtype by default. The last two round the features of both sides, which a GPU's tensor
            cores multiply faster; sums and products with coefficients stay float32. See docs/precision-gpu.md.
        """
        Z = as_rows(Z, agreed_dtype(precision, dtype))
        made = partial(Points, Z.shape[0], Z.shape[1], Z.dtype, placement, precision=precision)
        if placement.widens(Z.dtype, precision):
            wider = self.points(Z.astype(np.float64), Placement(placement.shift), blocks)
            return made(wider.blocks, wider=wider)
        cuts = cut_blocks(Z.shape[0], blocks)
        side = make_side(rounded(self._placed(Z, placement.shift), precision), self.program, left=False)
        if is_compiled(self.program, Z):
            return made(cuts, packed=native.prepare(side.rows, side.stats, cuts))
        xp = module_of(Z)
        table = None if xp is np or is_plain() else cuda.block_table(cuda.device_of(xp), cuts)
        return made(cuts, side=side, table=table)

    def left(self, X: Array, right: Points) -> Left:
        """Prepare rows `X` (m, d) for products with `right` and points of the same placement, dtype and precision."""
        if right.wider is not None:
            wider = self.left(X, right.wider)
            return Left(wider.shape, right.dtype, wider=wider)
        X = as_rows(X, right.dtype)
        if X.shape[1] != right.n_features:
            raise DataError(
                f"got X of shape {tuple(X.shape)}; expected rows of {right.n_features} features; "
                "give the same features as in training"
            )
        side = make_side(rounded(self._placed(X, right.placement.shift), right.precision), self.program, left=True)
        rows = native_rows(side) if right.packed is not None else None
        return Left(X.shape, X.dtype, None if rows is not None else side, rows)

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        """Return ``k(x_i, z_j)`` for all pairs.

        Parameters
        ----------
        X : array (m, d), CSR matrix or Left
            Rows on any device, or the result of :meth:`left`.
        Z : array (p, d), CSR matrix or Points
            Rows on the same device, or the result of :meth:`points`.
        out : array (m, p), optional
            Where to write.

        Returns
        -------
        array (m, p)
            In the dtype of `Z` (of both, when both are rows). When `Z` is `X` itself, the diagonal is exact.
        """
        left, right = self._sides(X, Z)
        xp = self._namespace(left)
        result = xp.empty((left.shape[0], right.size), right.dtype) if out is None else out
        self._engine(left, right, same=Z is X).block(result)
        if Z is X:
            index = xp.arange(left.shape[0])
            result[index, index] = self.diagonal(X)
        return result

    def diagonal(self, X: Array) -> Array:
        """Return ``k(x_i, x_i)``, shape (m,), without the off-diagonal block."""
        X = as_rows(X)
        squared = squared_norms(self.transform(X))
        xp = namespace_of(squared)
        zero = xp.zeros_like(squared)
        values = {
            "squared_distance": zero,
            "distance": zero.copy(),
            "cosine": (squared > 0).astype(X.dtype),
            "inner": squared,
            "norms": squared.copy(),
        }
        result = xp.empty_like(squared)
        result[...] = evaluate(self.program, values, xp)
        return result

    def matvec(
        self,
        X: Array | Left,
        Z: Array | Points,
        A: Array,
        head: Array | None = None,
        *,
        threads: int | None = None,
    ) -> Array:
        """Return ``K(X, Z) @ A``, shape (m, c), float64, holding one tile a thread and never the block.

        When `Z` is `X` itself, each tile of wide rows is computed once and used on both sides of the diagonal.

        Parameters
        ----------
        A : (p, c) array
            Coefficients; cast to the dtype of the points.
        head : (m, h) array, optional
            Receives the first h columns of the block.
        threads : int, optional
            See :func:`daskkern.backend.concurrency.product_threads`: None takes all processors. The results are the
            same for any number of threads.
        """
        with product_threads(threads, product_size(X, Z, A)):
            return self._matvec(X, Z, A, head)

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        return self._engine(left, right, same=Z is X).matvec(A, head)

    def rmatvec(self, X: Array | Left, Z: Array | Points, G: Array, *, threads: int | None = None) -> Array:
        """Return ``K(X, Z).T @ G``, shape (p, c), in the dtype of the points, holding one tile a thread.

        See :meth:`matvec` for `threads`.
        """
        with product_threads(threads, product_size(X, Z, G)):
            return self._rmatvec(X, Z, G)

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        return self._engine(left, right).rmatvec(G)

    def double_product(
        self,
        X: Array | Left,
        Z: Array | Points,
        V: Array,
        between: Callable[[Array, slice], Array] | None = None,
    ) -> Array:
        """Return ``K(X, Z).T @ op(K(X, Z) @ V)``, shape (p, c), float64, in one pass over the block.

        Parameters
        ----------
        V : (p, c) array
        between : callable, optional
            `op`: takes the scores (rows, c), float64, and the slice of rows that they belong to, and returns an
            array of the same shape; called from several threads. The identity by default, as Falkon needs it.
        """
        left, right = self._sides(X, Z)
        V = self._factor("V", V, right.size, right)
        return self._engine(left, right).double_product(V, between)

    def _sides(self, X: Array | Left, Z: Array | Points) -> tuple[Left, Points]:
        if isinstance(Z, Points):
            right = Z
        else:
            common = None if isinstance(X, Left) else np.promote_types(rows_dtype(X), rows_dtype(Z))
            right = self.points(Z, self.placement_for(Z), dtype=common)
        return X if isinstance(X, Left) else self.left(X, right), right

    def _placed(self, rows: Array, shift: Array | None) -> Array:
        if shift is None:
            return self.transform(rows)
        if is_sparse(rows):
            raise DataError("got sparse rows and dense points far from the origin; give both dense or both sparse")
        return self.transform(rows - shift)  # in this order: rows far from the origin lose digits when they are scaled

    def _namespace(self, left: Left) -> ModuleType:
        if left.wider is not None:
            return self._namespace(left.wider)
        if left.side is None:
            return np
        return module_of(left.side.rows)

    def _engine(self, left: Left, right: Points, *, same: bool = False) -> Engine:
        """Return the engine for products of two prepared sides; `same`: they are the same rows."""
        if left.wider is not None and right.wider is not None:
            inner = self._engine(left.wider, right.wider, same=same)
            return Widened(inner, self._fill(left, right), left.shape[0], right.blocks, right.dtype)
        return engine_for(self.program, left, right, same=same)

    def _fill(self, left: Left, right: Points) -> tiled.Fill:
        """Return the function that writes one tile of the block."""
        if left.wider is not None and right.wider is not None:
            return widened_fill(self._fill(left.wider, right.wider))
        return fill_for(self.program, left, right)

    def _factor(self, name: str, given: Array, length: int, right: Points) -> Array:
        if len(given.shape) != 2 or given.shape[0] != length:
            raise DataError(f"{name} must have shape ({length}, c) to match the block; found {tuple(given.shape)}")
        return given if given.dtype == right.dtype else given.astype(right.dtype)
