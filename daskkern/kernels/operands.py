"""The function of two rows that defines a kernel, and the preparation of rows as operands of its products."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import is_sparse
from daskkern.errors import DataError
from daskkern.kernels.engines import native
from daskkern.kernels.engines.block_products import block_table
from daskkern.kernels.engines.cuda import tensor_operand
from daskkern.kernels.engines.dispatch import is_compiled, is_plain
from daskkern.kernels.formula import DIFFERENCES, PAIR, Expression, Pair, Program, program
from daskkern.kernels.norms import Difference
from daskkern.kernels.points import (
    PLAIN,
    Left,
    Placement,
    Points,
    Side,
    cut_blocks,
    make_side,
    native_rows,
    pick_shift,
    rows_like,
)
from daskkern.kernels.precision import Precision, agreed_dtype, rounded
from daskkern.kernels.rounding import Rounding, rounding_of
from daskkern.kernels.rows import as_rows, is_unchecked, module_of

Spec = Mapping[str, object]


@dataclass(frozen=True)
class PairFunction(ABC):
    """A function of two rows, given by a formula, and the preparation of its two operands for an engine.

    The base of :class:`daskkern.kernels.Kernel`, which has the products.
    """

    name: ClassVar[str]

    @abstractmethod
    def formula(self, pair: Pair) -> Expression:
        """Return the kernel's value in terms of `pair`; SpecError while a parameter still depends on data."""

    @abstractmethod
    def spec(self) -> Spec:
        """Return name and parameters as JSON values; ``registry.from_spec`` is the inverse."""

    def features_of(self, points: Array) -> int:
        """Return the number of features d of the rows that are combined with `points` (p, d)."""
        return int(points.shape[1])

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
        return self.program.symbols <= {"squared_distance", "distance", *DIFFERENCES}

    def caps(self, n_features: int) -> FloatArray | None:
        """Return the largest differences (k,) that count of each feature after :meth:`transform`.

        They are for a formula of capped sums of differences (:meth:`Pair.capped`), of rows of `n_features` features.
        None for other formulas.
        """
        del n_features
        return None

    def difference(self, n_features: int) -> Difference | None:
        """Return the terms of the sum of differences that the formula reads, with their caps; None for other ones."""
        found = self.program.difference
        return found if found is None else replace(found, caps=self.caps(n_features))

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
        return Placement(self.shift_for(Z), Z.dtype == np.float32 and not self.rounding(Z).is_within_tolerance)

    def rounding(self, Z: Array, dtype: object = np.float32) -> Rounding:
        """Return the error that values of rows like `Z` (p, d) have when distances are computed in `dtype`."""
        Z = as_rows(Z)
        difference = self.difference(Z.shape[1])
        return rounding_of(self.program, Z, self.shift_for(Z), self.transform, dtype, difference)

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
        if placement.becomes_float64(Z.dtype, precision):
            wider = self.points(Z.astype(np.float64), Placement(placement.shift), blocks)
            return made(wider.blocks, wider=wider)
        cuts = cut_blocks(Z.shape[0], blocks)
        side = self._side(Z, placement.shift, precision, left=False)
        if is_compiled(self.program, Z):
            return made(cuts, packed=native.prepare(side.rows, side.stats, cuts, side.caps))
        xp = module_of(Z)
        table = None if xp is np or is_plain() else block_table(xp, cuts)
        return made(cuts, side=side, table=table)

    def left(self, X: Array, right: Points) -> Left:
        """Prepare rows `X` (m, d) for products with `right` and points of the same placement, dtype and precision."""
        if right.wider is not None:
            wider = self.left(X, right.wider)
            return Left(wider.shape, right.dtype, wider=wider)
        X = rows_like(X, right)
        side = self._side(X, right.placement.shift, right.precision, left=True)
        rows = native_rows(side) if right.packed is not None else None
        return Left(X.shape, X.dtype, None if rows is not None else side, rows)

    def _side(self, rows: Array, shift: Array | None, precision: Precision | None, *, left: bool) -> Side:
        caps = self.caps(rows.shape[1])
        placed = self._placed(rows, shift)
        if caps is not None:  # categories would become equal where codes are rounded, and no matrix product needs it
            return make_side(placed, self.program, left=left, caps=caps)
        on_host = module_of(placed) is np
        # To look at rows is to wait for a GPU: features that are too large there make values that are not numbers.
        placed = rounded(placed, precision, checked=on_host or not (left or is_unchecked()))
        side = make_side(placed, self.program, left=left)
        if on_host or is_plain() or self.program.difference is not None:
            return side
        return replace(side, operand=tensor_operand(placed, precision))

    def _placed(self, rows: Array, shift: Array | None) -> Array:
        if shift is None:
            return self.transform(rows)
        if is_sparse(rows):
            raise DataError("got sparse rows and dense points far from the origin; give both dense or both sparse")
        return self.transform(rows - shift)  # in this order: rows far from the origin lose digits when they are scaled
