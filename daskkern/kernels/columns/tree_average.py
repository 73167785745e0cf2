"""The mean of the partitioned kernels of several trees, whose columns give the mean of their models."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.namespace import is_sparse, namespace_of, to_host
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.partition_tree import PartitionTree
from daskkern.kernels.columns.partitioned import Partitioned
from daskkern.kernels.columns.two_products import TwoProducts
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype
from daskkern.kernels.rounding import Rounding
from daskkern.kernels.rows import as_rows, module_of
from daskkern.kernels.unscaled_rows import UnscaledRows


@dataclass(frozen=True, eq=False)
class TreeAveragePoints(Points):
    """For each tree that has some: its kernel, the numbers of its columns, and its points."""

    members: tuple[tuple[Partitioned, IntArray, Points], ...] = ()


@dataclass(frozen=True, eq=False)
class TreeAverage(UnscaledRows, TwoProducts):
    """``k(x, z) [leaf_t(x) = leaf_t(z)] / T`` with tree t of T that the point z belongs to.

    A point is a row with the number of its tree as one more feature, (p, d + 1), so that a model of T trees has each
    training row T times. Its scores are the mean of those of T models, whose coefficients are those of the points of a
    tree. Points without a number, (p, d), belong to all trees: this is the mean of the T kernels, positive definite as
    each of them is. The number of a left row counts for nothing.

    Parameters
    ----------
    kernel : Kernel
        The kernel that is applied.
    trees : tuple of PartitionTree
        The trees, whose models in leaves are averaged.
    n_features : int
        d above.
    """

    name: ClassVar[str] = "tree_average"

    kernel: Kernel
    trees: tuple[PartitionTree, ...]
    n_features: int

    def __post_init__(self) -> None:
        if not self.trees:
            raise SpecError("got no tree for the mean of kernels that trees partition; give one or more")
        d = self.n_features
        if isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 1:
            raise SpecError(f"got n_features={d!r} for a mean over trees; give a whole number from 1 on")
        object.__setattr__(self, "trees", tuple(self.trees))

    @cached_property
    def members(self) -> tuple[Partitioned, ...]:
        """The kernels of the trees."""
        return tuple(Partitioned(self.kernel, tree) for tree in self.trees)

    @property
    def n_trees(self) -> int:
        """The number of trees T."""
        return len(self.trees)

    def formula(self, pair: Pair) -> Expression:
        return self.kernel.formula(pair)

    def spec(self) -> Spec:
        trees = [dict(tree.spec()) for tree in self.trees]
        return {
            "name": self.name,
            "kernel": dict(self.kernel.spec()),
            "trees": trees,
            "n_features": int(self.n_features),
        }

    def features_of(self, points: Array) -> int:
        del points
        return int(self.n_features)

    def rows_of(self, points: Array) -> Array:
        """Return rows (p, d) without the numbers of trees, where they have them."""
        return points[:, : self.n_features] if points.shape[1] == self.n_features + 1 else points

    def centres(self, points: Array) -> Array:
        """Return the rows (n, d) that are points of the first tree: each training row of a model once."""
        numbers = self._numbers(points)
        if numbers is None:
            return points
        return self.rows_of(points[module_of(points).asarray(np.flatnonzero(numbers == 0))])

    def transform(self, rows: Array) -> Array:
        return self.kernel.transform(self.rows_of(rows))

    def shift_for(self, Z: Array) -> Array | None:
        return self.kernel.shift_for(self.rows_of(Z))

    def rounding(self, Z: Array, dtype: object = np.float32) -> Rounding:
        return self.kernel.rounding(self.rows_of(Z), dtype)

    def leaves(self, rows: Array) -> IntArray:
        """Return the leaves of each row in all trees, (m, T); those of a tree are numbered after those before it."""
        ends = np.cumsum([0] + [tree.n_leaves for tree in self.trees])
        own = self.transform(rows)
        return np.stack([tree.leaves(own) + end for tree, end in zip(self.trees, ends, strict=False)], axis=1)

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
        rows, numbers = self.rows_of(Z), self._numbers(Z)
        members = []
        for number, kernel in enumerate(self.members):
            at = np.arange(Z.shape[0]) if numbers is None else np.flatnonzero(numbers == number)
            if at.size:
                own = rows[module_of(Z).asarray(at)]
                members.append((kernel, at, kernel.points(own, placement, precision=precision)))
        side = Side(rows[:0], None, None, None)  # says where the points live
        return TreeAveragePoints(
            Z.shape[0], int(self.n_features), Z.dtype, placement, cut_blocks(Z.shape[0], blocks), side,
            precision=precision, members=tuple(members),
        )  # fmt: skip

    def left(self, X: Array, right: Points) -> Left:
        X = rows_like(self.rows_of(X), right)
        return Left(X.shape, X.dtype, Side(X, None, None, None))

    def check_rows(self, rows: Array) -> None:
        self.kernel.check_rows(rows)

    def diagonal(self, X: Array) -> Array:
        return self.kernel.diagonal(self.rows_of(X))

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        xp = self._namespace(left)
        result = xp.empty((left.shape[0], right.size), right.dtype) if out is None else out
        result[...] = 0
        for kernel, at, points in _members(right):
            result[:, xp.asarray(at)] += kernel.block(left, points) / self.n_trees
        if Z is X and not isinstance(Z, Points) and Z.shape[1] == self.n_features:
            index = xp.arange(left.shape[0])
            result[index, index] = self.diagonal(X)
        return result

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        self._write_head(head, left, right)
        xp = namespace_of(A)
        total = xp.zeros((left.shape[0], A.shape[1]))
        for kernel, at, points in _members(right):
            total += kernel.matvec(left, points, A[xp.asarray(at)])
        return total / self.n_trees

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        xp = namespace_of(G)
        out = xp.zeros((right.size, G.shape[1]), right.dtype)
        for kernel, at, points in _members(right):
            out[xp.asarray(at)] += kernel.rmatvec(left, points, G)
        return out / self.n_trees

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients within the leaves of all trees; see :meth:`Partitioned.gradient_matvec`."""
        X, Z = as_rows(self.rows_of(X)), as_rows(Z)
        xp, numbers = module_of(X), self._numbers(Z)
        Z = self.rows_of(Z)
        total = xp.zeros((X.shape[0], A.shape[1], int(self.n_features)))
        for number, kernel in enumerate(self.members):
            at = xp.asarray(np.arange(Z.shape[0]) if numbers is None else np.flatnonzero(numbers == number))
            total += kernel.gradient_matvec(X, Z[at], A[at], None if weights is None else weights[:, at])
        return total / self.n_trees

    def _numbers(self, points: Array) -> IntArray | None:
        """Return the numbers (p,) of the trees of points, or None where they belong to all."""
        if points.shape[1] != self.n_features + 1:
            return None
        last: Any = points[:, self.n_features :]
        values = to_host(last.toarray() if is_sparse(last) else last)[:, 0]
        if not np.isin(values, np.arange(self.n_trees)).all():
            raise DataError(f"got points of a mean over {self.n_trees} trees whose last number is none of a tree")
        return np.asarray(values, np.int64)


def _members(right: Points) -> tuple[tuple[Partitioned, IntArray, Points], ...]:
    assert isinstance(right, TreeAveragePoints)
    return right.members
