"""Rows prepared for kernel products: shifted so that distances are exact, with the statistics of the formula."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import is_sparse, namespace_of, to_host
from daskkern.backend.reductions import all_within, row_squares, takes_rows
from daskkern.backend.tiles import slices, within
from daskkern.errors import DataError, SpecError
from daskkern.kernels.engines.native import CSRParts, Packed, join_packed
from daskkern.kernels.engines.native import LeftRows as NativeRows
from daskkern.kernels.formula import Program
from daskkern.kernels.norms import difference_norms, squared_norms
from daskkern.kernels.precision import Precision
from daskkern.kernels.rows import as_rows, is_unchecked, module_of, stack_rows

BLOCK_COLUMNS = 512
"""Columns of a block of points, unless the caller gives the blocks."""
_LARGEST_BLOCK = 1024
_SHIFT_SAMPLE = 512
_SHIFT_RATIO = 100.0
_DISTANCES, _ANGLES = {"squared_distance", "distance"}, {"cosine", "norms"}  # of the symbols of a formula


@dataclass(frozen=True, eq=False)
class Side:
    """The rows of one side of a block, with ``|x|^2``, ``|x|`` and ``1 / |x|`` (0 for zero rows) where needed.

    For formulas of differences, `squared` of the right side is ``sum_j |z_j|^p``, what sparse rows leave out, and
    `caps` (d,) are the largest differences that count, for formulas of capped ones. `operand` (., d') are the rows as a
    GPU's tensor cores take them, where these are not the rows themselves.
    """

    rows: Array
    squared: Array | None
    norm: Array | None
    inverse: Array | None
    caps: Array | None = None
    operand: Array | None = None

    @property
    def stats(self) -> tuple[Array | None, Array | None, Array | None]:
        """The three statistics."""
        return self.squared, self.norm, self.inverse

    def join(self, later: "Side") -> "Side":
        """Return these rows followed by those of `later`."""
        xp = module_of(self.rows)
        squared, norm, inverse, operand = (
            None if a is None or b is None else xp.concatenate([a, b])
            for a, b in zip((*self.stats, self.operand), (*later.stats, later.operand), strict=True)
        )
        rows = stack_rows(self.rows, later.rows) if is_sparse(self.rows) else xp.concatenate([self.rows, later.rows])
        return Side(rows, squared, norm, inverse, self.caps, operand)


@dataclass(frozen=True, eq=False)
class Placement:
    """The preparation of rows that makes their distances exact, decided once for all points used with the same rows.

    Attributes
    ----------
    shift : (d,) array or None
        Subtracted from all rows. See :func:`pick_shift`.
    wide : bool
        Whether products of float32 rows are computed in float64, because distances in float32 would be wrong. Inputs
        and outputs stay float32.
    """

    shift: Array | None = None
    wide: bool = False

    def on(self, xp: ModuleType) -> "Placement":
        """Return the placement with the shift in host memory, for ``numpy``, or on the GPU."""
        if self.shift is None:
            return self
        return Placement(to_host(self.shift) if xp is np else xp.asarray(self.shift), self.wide)

    def becomes_float64(self, dtype: Any, precision: Precision | None) -> bool:
        """Return whether rows of this dtype become float64; features rounded by `precision` do not."""
        return self.wide and np.dtype(dtype) == np.float32 and precision in (None, "float32")


PLAIN = Placement()
"""No shift, and products in the dtype of the rows."""


@dataclass(frozen=True, eq=False)
class Points:
    """The right side of kernel blocks, prepared once for all batches.

    Attributes
    ----------
    size, n_features : int
        Number of points p, and of features of their rows.
    dtype : numpy dtype
        Data type of products with the points.
    placement : Placement
        The shift of the rows, and whether products are computed in float64.
    blocks : tuple of slices
        Blocks of columns: products are summed in the working dtype within a block, and in float64 over blocks.
    side : Side or None
        The points for the plain engines. None when `packed` has them.
    packed : Packed or None
        The points for the compiled engine.
    parts : tuple of Points
        The same rows, prepared for each member of a composite kernel.
    precision : str or None
        What these rows, and the rows of the left side, are rounded to; None for no rounding.
    table : (blocks, 2) int64 or None
        Starts and stops of `blocks` on the GPU, for the CUDA engine.
    wider : Points or None
        The same rows in float64, where products are computed in it.
    """

    size: int
    n_features: int
    dtype: Any
    placement: Placement
    blocks: tuple[slice, ...]
    side: Side | None = None
    packed: Packed | None = None
    parts: tuple["Points", ...] = ()
    precision: Precision | None = None
    table: Array | None = None
    wider: "Points | None" = None

    def join(self, later: "Points") -> "Points":
        """Return these points followed by dense points of the same kernel, placement and dtype; both are copied."""
        blocks = [slice(self.size + cut.start, self.size + cut.stop) for cut in later.blocks]
        table = None
        if self.table is not None and later.table is not None:
            table = namespace_of(self.table).concatenate([self.table, later.table + self.size])
        return Points(
            self.size + later.size,
            self.n_features,
            self.dtype,
            self.placement,
            (*self.blocks, *blocks),
            None if self.side is None or later.side is None else self.side.join(later.side),
            None if self.packed is None or later.packed is None else join_packed(self.packed, later.packed),
            tuple(mine.join(theirs) for mine, theirs in zip(self.parts, later.parts, strict=True)),
            self.precision,
            table,
            None if self.wider is None or later.wider is None else self.wider.join(later.wider),
        )


@dataclass(frozen=True, eq=False)
class Left:
    """The left side of kernel blocks, for rows that are used with several sets of points: see :meth:`Kernel.left`."""

    shape: tuple[int, int]
    dtype: Any
    side: Side | None = None
    native: NativeRows | None = None
    parts: tuple["Left", ...] = ()
    wider: "Left | None" = None


def rows_like(X: Array, right: Points) -> Array:
    """Return rows in the dtype of products with `right`. DataError for another number of features."""
    X = as_rows(X, right.dtype)
    if X.shape[1] != right.n_features:
        raise DataError(
            f"got X of shape {tuple(X.shape)}; expected rows of {right.n_features} features; "
            "give the same features as in training"
        )
    return X


def cut_blocks(p: int, blocks: Sequence[slice] | None) -> tuple[slice, ...]:
    """Return the blocks of p columns: `blocks`, split where they are long, or equal blocks for None."""
    if blocks is None:
        return tuple(slices(p, BLOCK_COLUMNS))
    return tuple(piece for part in blocks for piece in within(part, _LARGEST_BLOCK))


def make_side(rows: Array, what: Program, *, left: bool, caps: FloatArray | None = None) -> Side:
    """Return `rows` with the statistics that the formula `what` needs.

    Where the formula uses the distance itself, the left squared norms are reduced by the rounding error of an inner
    product over d features (measured: at most 6.5 eps times the norms at d = 784). Equal rows then have distance
    exactly 0, where an error of 1e-6 in the square would become one of 1e-3. For angles, cosines are increased
    likewise.

    Rows whose squared norm exceeds a quarter of the dtype's largest number cannot be compared. They are refused on
    the right (DataError), unless within :func:`daskkern.kernels.rows.unchecked_rows`; on the left their squared norm is
    NaN, and so are all values computed from it.
    """
    wanted, difference = what.symbols, what.difference
    if difference is not None:
        if what.is_capped != (caps is not None):
            raise SpecError("got a formula of capped differences without caps, or caps without one; give both, or none")
        caps = None if caps is None else module_of(rows).asarray(caps.astype(rows.dtype))
        return Side(rows, None if left else difference_norms(rows, replace(difference, caps=caps)), None, None, caps)
    squared = norm = inverse = None
    if left and wanted & _DISTANCES and not wanted & _ANGLES and takes_rows(rows):  # one launch instead of five
        slack = slack_of(rows.shape[1], rows.dtype) if what.cuts_off else 0.0
        return Side(rows, row_squares(rows, _most(rows.dtype), 1 - slack), None, None)
    if wanted & (_DISTANCES | _ANGLES):
        sums = _in_range(squared_norms(rows), left)
        xp = namespace_of(sums)
        slack = slack_of(rows.shape[1], rows.dtype)
        if wanted & _DISTANCES:
            squared = sums * (1 - slack) if left and what.cuts_off else sums
        if wanted & _ANGLES:
            norm = xp.sqrt(sums)
            inverse = xp.where(norm == 0, 0, 1 / xp.where(norm == 0, 1, norm)).astype(rows.dtype)
            if left and what.cuts_angles:
                inverse *= 1 + slack
    return Side(rows, squared, norm, inverse)


def slack_of(d: int, dtype: Any) -> float:
    """Return the error of squared distances of d features, in units of the squared norms. See :func:`make_side`."""
    return 2 * (4 + d**0.5 / 4) * float(np.finfo(dtype).eps)


def _most(dtype: Any) -> float:
    return float(np.finfo(dtype).max) / 4


def _in_range(squared: Array, left: bool) -> Array:
    xp, most = namespace_of(squared), _most(squared.dtype)
    if xp is not np and is_unchecked() and not left:
        return squared
    if xp is not np and left:
        return xp.where(squared <= most, squared, xp.nan).astype(squared.dtype, copy=False)
    if all_within(squared, most):
        return squared
    bad = ~(squared <= most)
    if left:
        return xp.where(bad, xp.nan, squared).astype(squared.dtype)
    wider = ", or take float64" if squared.dtype.itemsize < 8 else ""
    raise DataError(
        f"point {int(xp.argmax(bad))} has values too large for {squared.dtype}: its squared norm exceeds {most:.1e}; "
        f"scale the features{wider}"
    )


def native_rows(side: Side) -> NativeRows:
    """Return the left side for the compiled engine; rows are copied unless their features are contiguous."""
    if is_sparse(side.rows):
        return NativeRows(CSRParts.of(side.rows), *side.stats)
    rows = side.rows if side.rows.strides[1] == side.rows.itemsize else np.ascontiguousarray(side.rows)
    return NativeRows(rows, *side.stats)


def pick_shift(Z: Array, transform: Callable[[Array], Array]) -> Array | None:
    """Return the mean of `Z` when distances of ``transform(Z)`` would lose digits without subtracting it, else None.

    ``|x|^2 + |z|^2 - 2 x.z`` loses digits when rows are far from the origin: only then, when |mean|^2 exceeds 100 times
    the median squared distance, is centring worth its own rounding. Where the mean is equally far from the median,
    which a single outlier can cause, the median takes its place: centring at such a mean would cost all other rows
    their digits. The mean of integer data is rounded to integers, so that equal rows stay equal and exact. Sparse rows
    are never shifted: they would become dense.
    """
    if is_sparse(Z):
        return None
    xp = namespace_of(Z)
    sample = to_host(Z[:: max(1, Z.shape[0] // _SHIFT_SAMPLE)][:_SHIFT_SAMPLE]).astype(np.float64)
    if sample.shape[0] < 2:
        return None
    near = _SHIFT_RATIO * float(np.median(squared_norms(transform(sample - np.roll(sample, 1, axis=0)))))

    def is_far(point: HostArray) -> bool:
        return float(squared_norms(transform(point[None]))[0]) > near

    shift = sample.mean(axis=0)
    if not is_far(shift):
        return None
    median = np.median(sample, axis=0)
    if is_far(shift - median):
        shift = median
    if not is_far(shift):
        return None
    if (sample == np.rint(sample)).all():
        shift = np.rint(shift)
    return xp.asarray(shift.astype(Z.dtype))


def product_size(X: Array | Left, Z: Array | Points, factor: Array) -> float:
    """Return the approximate multiply-adds of a product on the threads of this machine: 0 on a GPU."""
    if not isinstance(factor, np.ndarray):
        return 0.0
    p = Z.size if isinstance(Z, Points) else _shape(Z)[0]
    m, d = _shape(X)
    return float(m) * p * (d + factor.size / max(1, len(factor)))


def _shape(rows: Array | Left) -> tuple[int, ...]:
    """Return the shape of rows, prepared or not, on any device."""
    found: tuple[int, ...] = rows.shape if hasattr(rows, "shape") else np.shape(rows)
    return found
