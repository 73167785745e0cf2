"""A kernel times the indicator of a partition: 0 for two rows in different leaves of a tree."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import for_each
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.partition_tree import PartitionTree
from daskkern.kernels.columns.two_products import TwoProducts
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype
from daskkern.kernels.rounding import Rounding
from daskkern.kernels.rows import as_rows, module_of
from daskkern.kernels.unscaled_rows import UnscaledRows


@dataclass(frozen=True, eq=False)
class PartitionedPoints(Points):
    """Points in groups: number of the leaf, numbers of its columns, and its points for the kernel."""

    groups: tuple[tuple[int, IntArray, Points], ...] = ()


@dataclass(frozen=True, eq=False)
class Partitioned(UnscaledRows, TwoProducts):
    """``k(x, z)`` where x and z lie in the same leaf of a tree, else 0: positive definite, as products of kernels are.

    Products take one leaf after the other, so that n rows with p points take n p / l values for l leaves of equal size.

    Parameters
    ----------
    kernel : Kernel
        The kernel that is applied.
    tree : PartitionTree
        Of the rows as the kernel's formula has them (:meth:`Kernel.transform`): in the coordinates of its metric.
    """

    name: ClassVar[str] = "partitioned"

    kernel: Kernel
    tree: PartitionTree

    def __post_init__(self) -> None:
        if isinstance(self.kernel, Partitioned):
            raise SpecError("got a partitioned kernel of a partitioned one; give the kernel itself")

    def formula(self, pair: Pair) -> Expression:
        return self.kernel.formula(pair)

    def spec(self) -> Spec:
        return {"name": self.name, "kernel": dict(self.kernel.spec()), "tree": dict(self.tree.spec())}

    def transform(self, rows: Array) -> Array:
        return self.kernel.transform(rows)

    def shift_for(self, Z: Array) -> Array | None:
        return self.kernel.shift_for(Z)

    def rounding(self, Z: Array, dtype: object = np.float32) -> Rounding:
        return self.kernel.rounding(Z, dtype)

    def leaves(self, rows: Array) -> IntArray:
        """Return the number of the leaf of each row, (m,)."""
        return self.tree.leaves(self.kernel.transform(rows))

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        Z = as_rows(Z, agreed_dtype(precision, dtype))
        groups = tuple(
            (leaf, at, self.kernel.points(Z[module_of(Z).asarray(at)], placement, precision=precision))
            for leaf, at in _grouped(self.leaves(Z))
        )
        cuts = cut_blocks(Z.shape[0], blocks)
        side = Side(Z[:0], None, None, None)  # says where the points live
        return PartitionedPoints(
            Z.shape[0], Z.shape[1], Z.dtype, placement, cuts, side, precision=precision, groups=groups
        )

    def left(self, X: Array, right: Points) -> Left:
        X = rows_like(X, right)
        return Left(X.shape, X.dtype, Side(X, None, None, None))

    def check_rows(self, rows: Array) -> None:
        self.kernel.check_rows(rows)

    def diagonal(self, X: Array) -> Array:
        return self.kernel.diagonal(X)

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        xp = self._namespace(left)
        result = xp.empty((left.shape[0], right.size), right.dtype) if out is None else out
        result[...] = 0
        for rows, at, columns, points in self._met(left, right):
            result[xp.asarray(at)[:, None], xp.asarray(columns)[None, :]] = self.kernel.block(rows, points)
        if Z is X:
            index = xp.arange(left.shape[0])
            result[index, index] = self.kernel.diagonal(X)
        return result

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        self._write_head(head, left, right)
        xp = namespace_of(A)
        total = xp.zeros((left.shape[0], A.shape[1]))

        def add(group: "_Group") -> None:
            rows, at, columns, points = group
            total[xp.asarray(at)] = self.kernel.matvec(rows, points, A[xp.asarray(columns)])

        self._each(left, right, add, A.shape[1])
        return total

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        xp = namespace_of(G)
        out = xp.zeros((right.size, G.shape[1]), right.dtype)

        def add(group: "_Group") -> None:
            rows, at, columns, points = group
            out[xp.asarray(columns)] = self.kernel.rmatvec(rows, points, G[xp.asarray(at)])

        self._each(left, right, add, G.shape[1])
        return out

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients of a model within its leaves: what it jumps by at their borders has none."""
        X, Z = as_rows(X), as_rows(Z)
        xp, there = module_of(X), dict(_grouped(self.leaves(X)))
        out = xp.zeros((X.shape[0], A.shape[1], X.shape[1]))
        for leaf, columns in _grouped(self.leaves(Z)):
            if leaf not in there:
                continue
            at, columns = xp.asarray(there[leaf]), xp.asarray(columns)
            own = None if weights is None else weights[at[:, None], columns[None, :]]
            out[at] = self.kernel.gradient_matvec(X[at], Z[columns], A[columns], own)
        return out

    def _met(self, left: Left, right: Points) -> "Iterator[_Group]":
        """Yield the rows of each leaf that has points, their numbers, its columns, and its points."""
        assert isinstance(right, PartitionedPoints)
        assert left.side is not None
        X = left.side.rows
        xp, there = module_of(X), dict(_grouped(self.leaves(X)))
        for leaf, columns, points in right.groups:
            at = there.get(leaf)
            if at is not None:
                yield X[xp.asarray(at)], at, columns, points

    def _each(self, left: Left, right: Points, work: "Callable[[_Group], None]", width: int) -> None:
        """Call `work` for every leaf with rows and points, in several threads."""
        groups = list(self._met(left, right))
        size = sum(float(at.size) * columns.size for _, at, columns, _ in groups) * (right.n_features + width)
        for_each(groups, work, size)


_Group = tuple[Array, IntArray, IntArray, Points]


def _grouped(leaves: IntArray) -> list[tuple[int, IntArray]]:
    """Return the leaves that occur, ascending, each with the numbers of its rows."""
    order = np.argsort(leaves, kind="stable")
    found, starts = np.unique(leaves[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if leaves.size else []
