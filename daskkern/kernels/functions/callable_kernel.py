"""Kernels computed by NumPy or CuPy functions instead of a formula: their base class, and user functions."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.tiles import slices
from daskkern.errors import SpecError
from daskkern.kernels.base import Spec
from daskkern.kernels.engines import tiled
from daskkern.kernels.engines.dispatch import Engine, Tiled
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype, rounded
from daskkern.kernels.rows import as_rows
from daskkern.kernels.unscaled_rows import UnscaledRows

_TRIED = 2, 3
_DIAGONAL_ROWS = 32


@dataclass(frozen=True)
class ValuesKernel(UnscaledRows):
    """A kernel of rows as they are, without a formula: :meth:`values` computes pieces of a block."""

    @property
    def title(self) -> str:
        """Its name in error messages."""
        return self.name

    @abstractmethod
    def values(self, X: Array, Z: Array) -> Array:
        """Return ``k(x_i, z_j)`` (m, p) of rows (m, d) and (p, d), NumPy or CuPy, dense or CSR."""

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        Z = rounded(as_rows(Z, agreed_dtype(precision, dtype)), precision)
        if Z.shape[0]:
            tried = tuple(min(n, Z.shape[0]) for n in _TRIED)
            values = self._call(Z[: tried[0]], Z[: tried[1]])
            if not np.isfinite(to_host(values)).all():
                raise SpecError(f"the kernel {self.title!r} gives values that are not finite for the first points")
        cuts = cut_blocks(Z.shape[0], blocks)
        side = Side(Z, None, None, None)
        return Points(Z.shape[0], Z.shape[1], Z.dtype, PLAIN, cuts, side, precision=precision)

    def left(self, X: Array, right: Points) -> Left:
        X = rows_like(X, right)
        return Left(X.shape, X.dtype, Side(rounded(X, right.precision), None, None, None))

    def diagonal(self, X: Array) -> Array:
        X = as_rows(X)
        parts = [self._call(X[rows], X[rows]).diagonal() for rows in slices(X.shape[0], _DIAGONAL_ROWS)]
        return namespace_of(*parts).concatenate(parts) if parts else np.zeros(0, X.dtype)

    def _engine(self, left: Left, right: Points, *, same: bool = False) -> Engine:
        del same
        return Tiled(self._fill(left, right), left.shape[0], right.blocks)

    def _fill(self, left: Left, right: Points) -> tiled.Fill:
        assert left.side is not None
        assert right.side is not None
        X, Z = left.side.rows, right.side.rows

        def fill(rows: slice, k: int, out: Array) -> None:
            out[...] = self._call(X[rows], Z[right.blocks[k]])

        return fill

    def _call(self, X: Array, Z: Array) -> Array:
        return self._checked(self.values(X, Z), (X.shape[0], Z.shape[0]))

    def _checked(self, values: Array, expected: tuple[int, ...]) -> Array:
        found = tuple(getattr(values, "shape", ()))
        if found != expected:
            raise SpecError(
                f"the kernel {self.title!r} must return an array of shape {expected}; it returned "
                f"{type(values).__name__} of shape {found}"
            )
        return values


@dataclass(frozen=True)
class CallableKernel(ValuesKernel):
    """``k(x_i, z_j) = function(X, Z)[i, j]``.

    Parameters
    ----------
    function : callable
        Takes rows (m, d) and (p, d), float32 or float64, unconverted: NumPy or CuPy, dense or CSR. Returns a dense
        array (m, p) on the same device. Called with pieces of a block, from several threads; it must be symmetric and
        positive definite, and must not change its arguments. A function that a module defines can be sent to workers.
    label : str
        Its name in error messages.
    diagonal_function : callable, optional
        Takes rows (m, d) and returns ``k(x_i, x_i)``, (m,). By default it is computed from blocks of 32 rows.

    Raises
    ------
    SpecError
        When, on preparing points, the function returns another shape or numbers that are not finite, and from
        :meth:`spec`: a function has no spec.
    """

    name: ClassVar[str] = "callable"

    function: Callable[[Array, Array], Array]
    label: str = "callable"
    diagonal_function: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        for given in (self.function, *([] if self.diagonal_function is None else [self.diagonal_function])):
            if not callable(given):
                raise SpecError(f"got {given!r:.60} for the kernel {self.label!r}, which is not a function")

    @property
    def title(self) -> str:
        return self.label

    def values(self, X: Array, Z: Array) -> Array:
        return self.function(X, Z)

    def formula(self, pair: Pair) -> Expression:
        raise SpecError(f"the kernel {self.label!r} is a Python function and has no formula and no derivative")

    def spec(self) -> Spec:
        raise SpecError(
            f"the kernel {self.label!r} is a Python function, which cannot be saved; pickle the estimator instead, or "
            "write the kernel as a class with a formula (docs/add-a-kernel.md)"
        )

    def diagonal(self, X: Array) -> Array:
        if self.diagonal_function is None:
            return super().diagonal(X)
        X = as_rows(X)
        return self._checked(self.diagonal_function(X), (X.shape[0],))
