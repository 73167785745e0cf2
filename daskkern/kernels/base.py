"""The base class of kernels: blocks and products of a formula of two rows, on every device.

A new kernel is one class with one formula, in a file of its own, and one row in ``registry``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.concurrency import product_threads
from daskkern.backend.namespace import namespace_of
from daskkern.backend.nested_parameters import NestedParameters
from daskkern.display import html_facts
from daskkern.errors import DataError, SpecError
from daskkern.kernels.engines import tiled
from daskkern.kernels.engines.dispatch import (
    Engine,
    Widened,
    engine_for,
    fill_for,
    plain_products,
    widened_fill,
)
from daskkern.kernels.formula import DIFFERENCES, PAIR, evaluate
from daskkern.kernels.formula_gradients import formula_gradients
from daskkern.kernels.norms import squared_norms
from daskkern.kernels.operands import PairFunction, Spec
from daskkern.kernels.points import Left, Points, product_size
from daskkern.kernels.rows import as_rows, module_of, rows_dtype

__all__ = ["Kernel", "Points", "Spec", "plain_products"]


@dataclass(frozen=True)
class Kernel(NestedParameters, PairFunction):
    """A positive definite function of two rows.

    Subclasses are frozen dataclasses that give :attr:`name`, :meth:`formula` and :meth:`spec`. Rows are float32 or
    float64, NumPy or CuPy, dense or CSR (``scipy.sparse`` or ``cupyx.scipy.sparse``); other real dtypes are
    converted (:func:`daskkern.kernels.rows.as_rows`). Neither side of a product is ever made dense as a whole.
    """

    algebra: ClassVar[dict[str, Callable[[Any, Any], "Kernel"]]] = {}
    """The classes that "+" and "*" construct; filled by ``algebra``, which imports this file."""
    __array_ufunc__ = None  # NumPy scalars defer to the kernel in ``np.float64(2) * kernel``

    def _repr_html_(self) -> str:
        parameters = [(item.name, getattr(self, item.name)) for item in fields(self)]
        what = (type(self).__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()
        return html_facts(f"kernel {self.name}", [("what", what.replace("``", "")), *parameters])

    def __add__(self, other: "Kernel") -> "Kernel":
        return self.algebra["sum"](self, other)

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        return self.algebra["product"](self, other)

    def __rmul__(self, other: float) -> "Kernel":
        return self.algebra["product"](self, other)

    def check_rows(self, rows: Array) -> None:
        """Raise DataError for `rows` in host memory that the kernel has no values for.

        For rows on their way to a GPU, where a look at them would wait: there, such rows have values that are no
        numbers. Rows in host memory are also checked by :meth:`left` and :meth:`points`.
        """

    def resolve(self, sample: Array) -> "Kernel":
        """Return the kernel with every data-dependent parameter computed from the rows of `sample`."""
        del sample
        return self

    @property
    def categories(self) -> tuple[int, ...]:
        """Columns of rows that hold codes of categories."""
        return ()

    def with_categories(self, columns: Sequence[int]) -> "Kernel":
        """Return the kernel of rows of which `columns` hold codes of categories: whole numbers without an order.

        Raises
        ------
        SpecError
            For columns, and a kernel that has no categories.
        """
        if not columns:
            return self
        raise SpecError(
            f"the {self.name} kernel has no categories: ingest with --categorical onehot, or give data frames with "
            "texts, or choose laplacian_l1, laplacian_pq or additive_laplacian"
        )

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
            **{name: zero.copy() for name in DIFFERENCES},
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
            Coefficients.
        between : callable, optional
            `op`: takes the scores (rows, c), float64, and the slice of rows that they belong to, and returns an
            array of the same shape; called from several threads. The identity by default, as Falkon needs it.
        """
        left, right = self._sides(X, Z)
        V = self._factor("V", V, right.size, right)
        return self._engine(left, right).double_product(V, between)

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients (m, c, d), float64, of ``sum_j w_ij k(x_i, z_j) A_jc`` by the rows x_i of X (m, d).

        Z is (p, d), A is (p, c), and w is `weights` (m, p), or ones. CSR rows become dense a tile at a time. A pair of
        equal rows contributes 0 where the kernel has a kink.

        Raises
        ------
        SpecError
            For a kernel without derivatives.
        """
        if type(self).transform is not PairFunction.transform:
            raise SpecError(f"the {self.name} kernel maps rows and has no gradients of its own; give gradient_matvec")
        return formula_gradients(self.formula(PAIR), X, Z, A, weights)

    def _sides(self, X: Array | Left, Z: Array | Points) -> tuple[Left, Points]:
        if isinstance(Z, Points):
            right = Z
        else:
            common = None if isinstance(X, Left) else np.promote_types(rows_dtype(X), rows_dtype(Z))
            right = self.points(Z, self.placement_for(Z), dtype=common)
        return X if isinstance(X, Left) else self.left(X, right), right

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

    def _write_head(self, head: Array | None, left: Left, right: Points) -> None:
        """Write the first columns of the block to `head`, if it is given."""
        if head is not None:
            head[...] = self.block(left, right)[:, : head.shape[1]]

    def _factor(self, name: str, given: Array, length: int, right: Points) -> Array:
        if len(given.shape) != 2 or given.shape[0] != length:
            raise DataError(f"{name} must have shape ({length}, c) to match the block; found {tuple(given.shape)}")
        return given if given.dtype == right.dtype else given.astype(right.dtype)
