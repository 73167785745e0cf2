"""The columns of locally linear models: products of a local code of a row and its features.

    phi_aj(x) = gamma_a(x) x_j ,    phi_a0(x) = gamma_a(x) ,
    f(x) = sum_a gamma_a(x) (w_a . x + b_a) ,

with fixed anchors v_a. The code gamma has weights in the proportions of ``1 / |x - v_a|`` for the nearest anchors of a
row, whose sum is 1, and 0 for all others.

References
----------
Ladicky and Torr, "Locally linear support vector machines", ICML 2011.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.csr import library_matrix
from daskkern.backend.namespace import is_sparse, namespace_of, to_host
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Spec
from daskkern.kernels.columns.two_products import TwoProducts
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.norms import squared_norms
from daskkern.kernels.parameters import as_number
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype, rounded
from daskkern.kernels.rows import as_rows, module_of, with_ones
from daskkern.kernels.unscaled_rows import UnscaledRows

_AT_ANCHOR = 1e-12  # of the squared norms: squared distances below have no correct digit in float64

Group = tuple[int, IntArray, IntArray]
"""An anchor, the numbers of its columns, and their features; d is the constant."""


@dataclass(frozen=True, eq=False)
class CodedPoints(Points):
    """Columns in groups of one anchor each, and the anchors where the columns live."""

    groups: tuple[Group, ...] = ()
    anchors: Array | None = None


@dataclass(frozen=True, eq=False)
class CodedLeft(Left):
    """Rows with a 1 appended, as `side`, and their local codes (m, A)."""

    code: Array | None = None


@dataclass(frozen=True, eq=False, repr=False)
class LocalFeatures(UnscaledRows, TwoProducts):
    """Columns ``gamma_a(x) x_j`` and ``gamma_a(x)``; not a kernel. Their points are (p, 2): numbers of a and j.

    The number j of the constant is d. Products take one anchor after the other, with the rows that are near it: m rows
    with all columns take ``m nearest d`` multiply-adds an output and not ``m A d``. Sparse rows stay sparse.

    Parameters
    ----------
    anchors : (A, d) array
        v above; kept in float64.
    nearest : int
        Anchors with a weight, from 1 to A.

    Raises
    ------
    SpecError
        For anchors that are not a finite table, and numbers that are not possible.
    """

    name: ClassVar[str] = "locally_linear"

    anchors: FloatArray
    nearest: int

    def __post_init__(self) -> None:
        anchors = np.asarray(self.anchors, np.float64)
        if anchors.ndim != 2 or anchors.size == 0 or not np.isfinite(anchors).all():
            raise SpecError(f"got anchors of shape {anchors.shape}; expected a finite table (A, d)")
        nearest = as_number(self.nearest)
        if not (1 <= nearest <= len(anchors) and nearest.is_integer()):
            raise SpecError(f"got nearest={self.nearest!r} of {len(anchors)} anchors; give a whole number from 1 on")
        object.__setattr__(self, "anchors", anchors)
        object.__setattr__(self, "nearest", int(nearest))

    def __repr__(self) -> str:
        n, d = self.anchors.shape
        return f"LocalFeatures({n} anchors of {d} features, nearest={self.nearest})"

    def formula(self, pair: Pair) -> Expression:
        raise SpecError("locally linear columns are not a formula of two rows and have no gradients")

    def spec(self) -> Spec:
        return {"name": self.name, "anchors": self.anchors.tolist(), "nearest": self.nearest}

    def features_of(self, points: Array) -> int:
        del points
        return self.anchors.shape[1]

    @cached_property
    def numbers(self) -> IntArray:
        """The numbers of all columns, (A (d + 1), 2), one anchor after the other."""
        n, d = self.anchors.shape
        return np.column_stack([np.repeat(np.arange(n), d + 1), np.tile(np.arange(d + 1), n)])

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
        n, d = self.anchors.shape
        numbers = to_host(Z)
        if Z.shape[1] != 2 or (numbers.size and not ((numbers >= 0) & (numbers < (n, d + 1))).all()):
            raise DataError(f"got columns {Z.shape} of {n} anchors; expected an anchor and a feature for each")
        cuts, side = cut_blocks(Z.shape[0], blocks), Side(Z[:0], None, None, None)  # says where the points live
        groups, anchors = tuple(_grouped(numbers.astype(np.int64))), module_of(Z).asarray(self.anchors)
        return CodedPoints(
            Z.shape[0], d, Z.dtype, PLAIN, cuts, side, precision=precision, groups=groups, anchors=anchors
        )

    def left(self, X: Array, right: Points) -> Left:
        assert isinstance(right, CodedPoints)
        X = rows_like(X, right)
        used, d = library_matrix(rounded(X, right.precision)), self.anchors.shape[1]
        ones = with_ones(used, d, d + 1) if is_sparse(used) else _with_one(used)
        return CodedLeft(X.shape, X.dtype, Side(ones, None, None, None), code=self.code(X, right.anchors))

    def code(self, X: Array, anchors: Array | None = None) -> Array:
        """Return gamma of rows (m, d), dense or CSR, as (m, A) in their dtype.

        A row that is an anchor, up to the rounding of its distance, has the weight 1 there.

        Parameters
        ----------
        X : (m, d) array or CSR rows
            Rows.
        anchors : (A, d) float64 array, optional
            The anchors in the memory of the rows, where that is a GPU's.
        """
        xp = module_of(X)
        rows = library_matrix(X).astype(np.float64)
        anchors = self.anchors if anchors is None else anchors
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # rows that are too large: NaN
            lengths = squared_norms(rows)[:, None] + squared_norms(anchors)[None, :]
            squared = lengths - 2 * (rows @ anchors.T)
            squared[squared <= _AT_ANCHOR * lengths] = 0
            chosen = xp.argsort(squared, axis=1, kind="stable")[:, : self.nearest]
            distances = xp.sqrt(xp.take_along_axis(squared, chosen, axis=1))
            weights = xp.where(distances == 0, 1.0, distances[:, :1] / distances)  # of the nearest anchor 1
            weights /= weights.sum(axis=1, keepdims=True)
        code = xp.zeros(squared.shape, X.dtype)
        code[xp.arange(X.shape[0])[:, None], chosen] = weights
        return code

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        xp = self._namespace(left)
        result = xp.empty((left.shape[0], right.size), right.dtype) if out is None else out
        result[...] = 0
        for at, columns, values, gamma in self._met(left, right):
            dense = values.toarray() if is_sparse(values) else values
            result[at[:, None], columns[None, :]] = gamma * dense
        return result

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        self._write_head(head, left, right)
        total = namespace_of(A).zeros((left.shape[0], A.shape[1]))
        for at, columns, values, gamma in self._met(left, right):
            total[at] += gamma * (values @ A[columns])
        return total

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        out = namespace_of(G).zeros((right.size, G.shape[1]), right.dtype)
        for at, columns, values, gamma in self._met(left, right):
            out[columns] = values.T @ (gamma * G[at])
        return out

    def _met(self, left: Left, right: Points) -> "Iterator[_Met]":
        """Yield for each anchor the numbers of its rows, its columns, the rows' features there, and their weights."""
        assert isinstance(left, CodedLeft)
        assert isinstance(right, CodedPoints)
        assert left.side is not None
        assert left.code is not None
        ones, xp = left.side.rows, self._namespace(left)
        for anchor, columns, features in right.groups:
            at = xp.flatnonzero(left.code[:, anchor])
            if at.size:
                rows = ones[at]
                whole = features.size == ones.shape[1] and bool((np.diff(features) == 1).all())
                values = rows if whole else rows[:, xp.asarray(features)]
                yield at, xp.asarray(columns), values, left.code[at, anchor][:, None]


_Met = tuple[Array, Array, Any, Array]


def _grouped(numbers: IntArray) -> Iterator[Group]:
    """Yield the anchors that occur, ascending, each with its columns and their features."""
    if not numbers.size:  # a rank without columns
        return
    order = np.argsort(numbers[:, 0], kind="stable")
    found, starts = np.unique(numbers[order, 0], return_index=True)
    for anchor, columns in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        yield anchor, columns, numbers[columns, 1]


def _with_one(rows: Array) -> Array:
    xp = namespace_of(rows)
    return xp.concatenate([rows, xp.ones((rows.shape[0], 1), rows.dtype)], axis=1)
