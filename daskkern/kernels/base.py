"""What a kernel is: a statistic of two rows and a scalar profile applied to it in place.

The statistic (squared distance, inner product, cosine) is one matrix product per tile; the profile is one
formula. A new kernel is one class with one formula, in a file of its own, and one row in ``registry``.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import balanced, for_each, multiply, multiply_transposed, tile_shape, within
from daskkern.errors import DataError, SpecError
from daskkern.kernels.points import Left, Points, Statistic, left_operand, make_points, pick_shift, squared_norms

__all__ = ["Kernel", "Points", "Statistic"]

_GROUP = 4  # column tiles that one thread works through: enough units for small batches, few partial sums
_GROUPS = 32


@dataclass(frozen=True)
class Kernel(ABC):
    """A positive definite function of two rows.

    Subclasses give the class attributes and :meth:`profile`. Everything else - blocks in tiles, products
    that never hold more than a tile a thread - is here, once.
    """

    name: ClassVar[str]
    statistic: ClassVar[Statistic]
    norm_power: ClassVar[int] = 0
    """The block is multiplied by ``(|x| |z|) ** norm_power`` after the profile."""
    singular_at_zero: ClassVar[bool] = False
    """The profile has an infinite slope in the squared distance at 0, so that rounding there must be cut off."""

    @abstractmethod
    def profile(self, s: Array) -> None:
        """Replace the statistic in the tile `s` by the kernel's value, in place, in the tile's dtype."""

    @abstractmethod
    def spec(self) -> dict[str, str | float]:
        """Return name and parameters as JSON values; ``registry.from_spec`` is the inverse."""

    def resolve(self, sample: Array) -> "Kernel":
        """Return the kernel with every data-dependent parameter computed from the rows of `sample`."""
        del sample
        return self

    def shift_for(self, Z: Array) -> Array | None:
        """Return the point to subtract from all rows before products with `Z`, or None. See :func:`pick_shift`."""
        return pick_shift(Z) if self.statistic is Statistic.SQUARED_DISTANCE else None

    def points(self, Z: Array, shift: Array | None = None) -> Points:
        """Prepare rows `Z` (p, d) for repeated use as the right side of blocks. Copies `Z` once."""
        return make_points(Z, self.statistic, shift)

    def left(self, X: Array, shift: Array | None = None) -> Left:
        """Prepare rows `X` (m, d) for :meth:`block` and :meth:`matvec` with several sets of points of one `shift`."""
        operand, norms = left_operand(X, self.statistic, shift, self.singular_at_zero)
        return Left(operand, norms, X.shape, X.dtype)

    def block(self, X: Array, Z: Array | Points, out: Array | None = None) -> Array:
        """Return ``k(x_i, z_j)`` for all pairs.

        Parameters
        ----------
        X : array (m, d) or Left
            Rows, float32 or float64, on any device, or what :meth:`left` made of them.
        Z : array (p, d) or Points
            Rows of the same dtype and device, or what :meth:`points` made of them.
        out : array (m, p), optional
            Where to write.

        Returns
        -------
        array (m, p)
            Same dtype as `X`. When `Z` is `X` itself, the diagonal is exact.
        """
        right = self._right(X, Z)
        left, norms = self._left(X, right)
        xp = namespace_of(left)
        m, p = X.shape[0], right.size
        block = xp.empty((m, p), X.dtype) if out is None else out
        rows, columns = tile_shape(xp, m, p)

        def unit(work: tuple[slice, slice]) -> None:
            tile, group = work
            for cols in within(group, columns):
                self._tile(left, norms, tile, right, cols, block[tile, cols])

        for_each(list(itertools.product(balanced(m, rows), balanced(p, _GROUP * columns))), unit)
        if Z is X:
            index = xp.arange(m)
            block[index, index] = self.diagonal(X)
        return block

    def diagonal(self, X: Array) -> Array:
        """Return ``k(x_i, x_i)``, shape (m,), without the off-diagonal block."""
        xp = namespace_of(X)
        squared = squared_norms(X)
        if self.statistic is Statistic.SQUARED_DISTANCE:
            s = xp.zeros_like(squared)
        elif self.statistic is Statistic.COSINE:
            s = (squared > 0).astype(X.dtype)
        else:
            s = squared.copy()
        self.profile(s)
        if self.norm_power:
            s *= squared**self.norm_power
        return s

    def matvec(
        self,
        X: Array,
        Z: Array | Points,
        A: Array,
        head: Array | None = None,
        blocks: Sequence[slice] | None = None,
    ) -> Array:
        """Return ``K(X, Z) @ A``, shape (m, c), float64, holding one tile a thread and never the block.

        Parameters
        ----------
        head : (m, h) array, optional
            Receives the first h columns of the block on the way.
        blocks : sequence of slices, optional
            Column blocks whose products are taken in the working dtype before they are added in float64; see
            :func:`daskkern.backend.tiles.multiply_blocks`. By default tiles.
        """
        right = self._right(X, Z)
        left, norms = self._left(X, right)
        xp = namespace_of(left)
        m, p = X.shape[0], right.size
        rows, columns = tile_shape(xp, m, p)
        cuts = balanced(p, columns) if blocks is None or xp is not np else list(blocks)
        groups = [cuts[part] for part in balanced(len(cuts), max(_GROUP, -(-len(cuts) // _GROUPS)))]
        partial = xp.zeros((len(groups), m, A.shape[1]), np.float64)
        n_head = 0 if head is None else head.shape[1]
        widest = max((cut.stop - cut.start for cut in cuts), default=0)

        def unit(work: tuple[slice, int]) -> None:
            tile, group = work
            buffer = xp.empty((tile.stop - tile.start, widest), X.dtype)
            for cols in groups[group]:
                values = buffer[:, : cols.stop - cols.start]
                self._tile(left, norms, tile, right, cols, values)
                partial[group, tile] += multiply(values, A[cols], xp)
                if head is not None and cols.start < n_head:
                    width = min(cols.stop, n_head) - cols.start
                    head[tile, cols.start : cols.start + width] = values[:, :width]

        for_each(list(itertools.product(balanced(m, rows), range(len(groups)))), unit)
        return partial.sum(axis=0)  # in the order of the groups, whoever computed them

    def rmatvec(self, X: Array, Z: Array | Points, G: Array) -> Array:
        """Return ``K(X, Z).T @ G``, shape (p, c), holding one tile a thread and never the block."""
        right = self._right(X, Z)
        left, norms = self._left(X, right)
        xp = namespace_of(left)
        m, p = X.shape[0], right.size
        rows, columns = tile_shape(xp, m, p)
        out = xp.zeros((p, G.shape[1]), G.dtype)

        def strip(cols: slice) -> None:
            buffer = xp.empty((min(rows, m), cols.stop - cols.start), X.dtype)
            for tile in balanced(m, rows):
                work = buffer[: tile.stop - tile.start]
                self._tile(left, norms, tile, right, cols, work)
                out[cols] += multiply_transposed(work, G[tile], xp)

        for_each(balanced(p, columns), strip)
        return out

    def _left(self, X: Array, right: Points) -> tuple[Array, Array | None]:
        if isinstance(X, Left):
            return X.operand, X.norms
        return left_operand(X, self.statistic, right.shift, self.singular_at_zero)

    def _right(self, X: Array, Z: Array | Points) -> Points:
        right = Z if isinstance(Z, Points) else self.points(Z, self.shift_for(Z))
        if len(X.shape) != 2 or X.shape[1] != right.n_features:
            raise DataError(
                f"rows of {right.n_features} features were expected, but X has shape {tuple(X.shape)}; "
                "give the same features as in training"
            )
        return right

    def _tile(self, left: Array, norms: Array | None, tile: slice, right: Points, cols: slice, out: Array) -> None:
        xp = namespace_of(out)
        xp.matmul(left[tile], right.operand[cols].T, out=out)
        if self.statistic is Statistic.SQUARED_DISTANCE:
            xp.maximum(out, 0, out=out)
        elif self.statistic is Statistic.COSINE:
            xp.clip(out, -1, 1, out=out)
        self.profile(out)
        if self.norm_power and norms is not None and right.norms is not None:
            out *= norms[tile, None] ** self.norm_power
            out *= right.norms[None, cols] ** self.norm_power


def as_number(value: object) -> float:
    """Return `value` as a float, NaN when it is none."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def positive(kernel: str, parameter: str, value: float) -> float:
    """Return `value` as a float, or raise SpecError when it is not a positive finite number."""
    from_user = as_number(value)
    if not (np.isfinite(from_user) and from_user > 0):
        raise SpecError(f"{parameter}={value!r} was asked of the {kernel} kernel; give a positive finite number")
    return from_user
