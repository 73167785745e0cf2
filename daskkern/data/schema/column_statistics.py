"""Statistics of the columns of a table: moments and range, and the scaling derived from them.

Moments are merged block by block in float64 (Chan, Golub and LeVeque, "Algorithms for computing the sample
variance", The American Statistician 1983), so one pass over data of any size is enough.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.data.rows.csr import CsrRows, FeatureRows, divide_columns, is_sparse
from daskkern.data.schema.block_moments import column_moments, sparse_moments
from daskkern.data.schema.layout import float32_rounds, is_by_column
from daskkern.data.schema.rank_tables import RankTable, check_tables
from daskkern.errors import SpecError

ScalingKind: TypeAlias = Literal[
    "standard", "minmax", "maxabs", "unit_variance", "none", "auto", "robust", "ranks", "warped"
]
SCALING_KINDS: tuple[ScalingKind, ...] = ("standard", "minmax", "maxabs", "unit_variance", "none")
RECORDED_KINDS: tuple[ScalingKind, ...] = (*SCALING_KINDS, "auto", "robust", "ranks", "warped")
"""In addition those that a fit learns, which need more than moments and range; see
:mod:`daskkern.data.schema.learned_scaling`.
"""
SPARSE_SCALINGS: tuple[ScalingKind, ...] = ("maxabs", "unit_variance", "none")
"""Kinds without a shift: zeros stay zeros, and sparse rows stay sparse."""

WIDE = 1 << 15
"""Number of columns above which statistics are stored in arrays rather than in attributes."""

_FAR = 1000
"""A column whose shift is more than this times its scale keeps fewer than four digits after the shift in float32."""
_PANEL_BYTES = 1 << 20  # the float64 copy of a panel stays in cache while its moments are taken


Floats: TypeAlias = tuple[float, ...] | FloatArray


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Mean, standard deviation (divisor n), minimum and maximum of every column, over `count` rows.

    Each is a tuple, or an array (d,) for very many columns, as sparse data have.
    """

    count: int
    mean: Floats
    std: Floats
    min: Floats
    max: Floats

    def table(self) -> FloatArray:
        """Return mean, std, min and max as the rows of an array (4, d)."""
        return np.array([self.mean, self.std, self.min, self.max], dtype=np.float64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColumnStatistics):
            return NotImplemented
        return self.count == other.count and np.array_equal(self.table(), other.table())

    __hash__ = None  # type: ignore[assignment]


class Moments:
    """Running moments of `n_columns` columns; pass blocks to :meth:`update`, then call :meth:`result`."""

    def __init__(self, n_columns: int) -> None:
        self._count = 0
        self._mean = np.zeros(n_columns)
        self._squares = np.zeros(n_columns)  # sum of squared deviations from the running mean
        self._min = np.full(n_columns, np.inf)
        self._max = np.full(n_columns, -np.inf)

    def update(self, block: FeatureRows) -> bool:
        """Add the rows of `block` (m, n_columns), dense or CSR, and return True when all of them are finite.

        After False the moments are meaningless: the caller is expected to refuse the data.
        """
        if is_sparse(block):
            return self._take(block.shape[0], sparse_moments(block))
        if is_by_column(block):
            return self._take(len(block), column_moments(block, _PANEL_BYTES))
        rows = max(1, _PANEL_BYTES // max(1, 8 * block.shape[1]))
        return all(self._update_panel(block[i : i + rows]) for i in range(0, len(block), rows))

    def _update_panel(self, panel: HostArray) -> bool:
        low, high = panel.min(axis=0), panel.max(axis=0)  # both carry NaN, and one of them any infinity
        if not self._widen(low, high):
            return False
        values = panel.astype(np.float64)
        mean = values.mean(axis=0)
        values -= mean
        self._merge(len(panel), mean, np.einsum("ij,ij->j", values, values))
        return True

    def _widen(self, low: HostArray, high: HostArray) -> bool:
        """Extend the ranges of the columns, and return True when the values are finite."""
        self._min, self._max = np.minimum(self._min, low), np.maximum(self._max, high)
        return bool(np.isfinite(low).all() and np.isfinite(high).all())

    def _take(self, m: int, found: FloatArray | None) -> bool:
        """Add m rows of which minimum, maximum, mean and sum of squares of each column are known."""
        if found is None:
            return False
        if m:
            low, high, mean, squares = found
            self._widen(low, high)
            self._merge(m, mean, squares)
        return True

    def _merge(self, m: int, mean: FloatArray, squares: FloatArray) -> None:
        """Merge m rows with known means and sums of squared deviations."""
        total = self._count + m
        delta = mean - self._mean
        self._squares += squares + delta * delta * (self._count * m / total)
        self._mean += delta * (m / total)
        self._count = total

    def state(self) -> FloatArray:
        """Return everything as an array (5, n_columns), for :meth:`restore`."""
        count = np.full_like(self._mean, self._count)
        return np.array([count, self._mean, self._squares, self._min, self._max])

    def restore(self, state: FloatArray) -> None:
        """Continue from a :meth:`state`."""
        count, self._mean, self._squares, self._min, self._max = state.copy()
        self._count = int(count[0])

    def add(self, state: FloatArray) -> None:
        """Merge other moments, given their :meth:`state`."""
        count, mean, squares, low, high = state
        if count[0] > 0:
            self._min, self._max = np.minimum(self._min, low), np.maximum(self._max, high)
            self._merge(int(count[0]), mean, squares)

    def result(self) -> ColumnStatistics:
        """Return the statistics of all rows seen. A constant column has a std of exactly 0, and its value as mean."""
        if self._count == 0:
            raise SpecError("got no rows for column statistics; give at least one row")
        constant = self._min == self._max  # rounding errors in the mean must not count as spread
        std = np.where(constant, 0.0, np.sqrt(self._squares / self._count))
        mean = np.where(constant, self._min, self._mean)
        if len(mean) > WIDE:
            return ColumnStatistics(self._count, mean, std, self._min, self._max)
        return ColumnStatistics(self._count, _floats(mean), _floats(std), _floats(self._min), _floats(self._max))


@dataclass(frozen=True)
class Scaling:
    """The map ``z = (x - shift) / scale`` of every column, followed by ``bend arcsinh(z / bend)`` where it has a bend.

    A bent column is linear up to about `bend` and logarithmic beyond. `shift` and `scale` are empty for kind ``"none"``
    and `bend` where no column has one; a bend of 0 means none. The columns that `ranks` has tables of have a shift of 0
    and a scale of 1, and are mapped by these tables.
    """

    kind: ScalingKind = "none"
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    bend: tuple[float, ...] = ()
    ranks: tuple[RankTable, ...] = field(default=(), repr=False)  # hundreds of numbers

    def __post_init__(self) -> None:
        check_tables(self.ranks, len(self.scale))
        if self.bend and (len(self.bend) != len(self.scale) or not all(0 <= b < np.inf for b in self.bend)):
            raise SpecError("got bends that are not finite numbers of 0 or more, one per column; learn it again")

    @classmethod
    def of(cls, kind: str, statistics: ColumnStatistics) -> "Scaling":
        """Return the scaling of one kind for columns with these statistics; without spread the scale is 1.

        ``"standard"`` gives mean 0 and standard deviation 1, ``"minmax"`` the range 0 to 1. ``"maxabs"`` divides by
        the largest absolute value and ``"unit_variance"`` by the standard deviation; neither shifts, like
        scikit-learn's ``MaxAbsScaler`` and ``StandardScaler(with_mean=False)``.
        """
        check_scaling_kind(kind)
        if kind == "none":
            return cls()
        low, high, std = np.asarray(statistics.min), np.asarray(statistics.max), np.asarray(statistics.std)
        shift, scale = {
            "standard": (np.asarray(statistics.mean), std),
            "minmax": (low, high - low),
            "maxabs": (np.zeros_like(low), np.maximum(np.abs(low), np.abs(high))),
            "unit_variance": (np.zeros_like(low), std),
        }[kind]
        known = next(name for name in SCALING_KINDS if name == kind)
        return cls(known, _floats(shift), _floats(np.where(scale > 0, scale, 1.0)))

    def apply(self, X: FeatureRows, dtype: npt.DTypeLike, *, overwrite: bool = False) -> FeatureRows:
        """Return the rows `X` (m, d), dense or CSR, scaled, as float `dtype`.

        `X` itself is returned when there is nothing to do. It is modified only with `overwrite`, which saves
        the copy when `X` already has the dtype. A shift of sparse rows raises SpecError. Wide integers and float64
        are scaled in float64 first, because float32 would round away what is left after the shift.
        """
        dtype = np.dtype(dtype)
        if self.kind == "none":
            return X.astype(dtype, copy=False)
        if is_sparse(X):
            if self.shifts:
                check_sparse_scaling(self.kind)
            return self._bent_sparse(divide_columns(X, self._vectors[1], dtype))
        scaled = X.astype(np.float64 if float32_rounds(X.dtype) else dtype, copy=not overwrite)
        shift, scale = self._vectors
        scaled -= shift.astype(scaled.dtype)
        scaled /= scale.astype(scaled.dtype)
        self._bend(scaled)
        for table in self.ranks:
            scaled[:, table.column] = table.apply(scaled[:, table.column])
        return scaled.astype(dtype, copy=False)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a store or a model records."""
        recorded: dict[str, Any] = {"kind": self.kind, "shift": list(self.shift), "scale": list(self.scale)}
        if self.bend:
            recorded["bend"] = list(self.bend)
        if self.ranks:
            recorded["ranks"] = [table.to_json() for table in self.ranks]
        return recorded

    @property
    def is_affine(self) -> bool:
        """Whether no column is bent or ranked."""
        return not self.bend and not self.ranks

    @property
    def is_far(self) -> bool:
        """Whether a column lies so far from 0 that it has to be read in float64, before the shift."""
        shift, scale = self._vectors
        reach = [(np.abs(table.values).max(), table.values[-1] - table.values[0]) for table in self.ranks]
        return bool((np.abs(shift) > _FAR * scale).any()) or any(most > _FAR * spread for most, spread in reach)

    @property
    def shifts(self) -> bool:
        """Whether zeros may become other numbers, so that sparse rows cannot stay sparse."""
        return self.kind not in SPARSE_SCALINGS and (any(self.shift) or bool(self.ranks))

    def _bend(self, scaled: HostArray) -> None:
        """Bend the columns of dense rows in place."""
        columns, bend = self._bends
        if not columns.size:
            return
        bend = bend.astype(scaled.dtype)
        every = columns.size == scaled.shape[1]
        part = scaled if every else scaled[:, columns]
        part /= bend
        np.arcsinh(part, out=part)
        part *= bend
        if not every:
            scaled[:, columns] = part

    def _bent_sparse(self, scaled: CsrRows) -> CsrRows:
        """Return CSR rows with their entries bent; zeros stay zeros, and entries of one place are added up before."""
        if self._bends[0].size:
            if not scaled.has_canonical_format:
                scaled = scaled.copy()
                scaled.sum_duplicates()
            bend = np.asarray(self.bend)[scaled.indices]
            bent = np.flatnonzero(bend)
            bend = bend[bent]
            scaled.data[bent] = bend * np.arcsinh(scaled.data[bent] / bend)
        return scaled

    @cached_property
    def _vectors(self) -> tuple[FloatArray, FloatArray]:
        return np.asarray(self.shift), np.asarray(self.scale)

    @cached_property
    def _bends(self) -> tuple[IntArray, FloatArray]:
        """Return the columns that have a bend, and their bends."""
        bend = np.asarray(self.bend)
        columns = np.flatnonzero(bend)
        return columns, bend[columns]


def check_scaling_kind(kind: str) -> None:
    """Raise SpecError unless `kind` is the name of a scaling."""
    if kind not in SCALING_KINDS:
        raise SpecError(f"got scale {kind!r}; choose one of {', '.join(SCALING_KINDS)}")


def check_sparse_scaling(kind: str) -> None:
    """Raise SpecError unless a scaling of this kind keeps sparse rows sparse."""
    if kind not in RECORDED_KINDS:
        check_scaling_kind(kind)
    if kind not in SPARSE_SCALINGS:
        raise SpecError(
            f"got scale {kind!r} for sparse rows, but it shifts columns, so that no zero would stay zero; "
            "choose maxabs (divide by the largest absolute value), unit_variance (divide by the standard deviation, "
            "without centring) or none"
        )


def _floats(values: HostArray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
