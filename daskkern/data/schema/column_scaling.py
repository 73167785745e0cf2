"""Scalings of table columns: the maps, the statistics behind them, and their precision in float32."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.namespace import namespace_of
from daskkern.data.rows.csr import CsrRows, FeatureRows, divide_columns, is_sparse
from daskkern.data.schema.column_statistics import ColumnStatistics, floats_of
from daskkern.data.schema.layout import float32_rounds
from daskkern.data.schema.rank_tables import RankTable, check_tables
from daskkern.errors import SpecError

ScalingKind: TypeAlias = Literal[
    "standard", "common", "minmax", "maxabs", "unit_variance", "none", "auto", "robust", "ranks", "warped"
]
SCALING_KINDS: tuple[ScalingKind, ...] = ("standard", "common", "minmax", "maxabs", "unit_variance", "none")
RECORDED_KINDS: tuple[ScalingKind, ...] = (*SCALING_KINDS, "auto", "robust", "ranks", "warped")
"""In addition those that a fit learns, which need more than moments and range; see
:mod:`daskkern.data.schema.learned_scaling`.
"""
SPARSE_SCALINGS: tuple[ScalingKind, ...] = ("maxabs", "unit_variance", "none")
"""Kinds without a shift: zeros stay zeros, and sparse rows stay sparse."""

_FAR = 1000
"""A column whose shift is more than this times its scale keeps fewer than four digits after the shift in float32."""
_SMALL = 1e-36  # float32 has fewer digits below 1.2e-38


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
    def of(cls, kind: str, statistics: ColumnStatistics, codes: Sequence[int] = ()) -> "Scaling":
        """Return the scaling of one kind for columns with these statistics; without spread the scale is 1.

        ``"standard"`` gives mean 0 and standard deviation 1, ``"minmax"`` the range 0 to 1. ``"common"`` subtracts the
        means and divides all columns by one number, the root of their mean variance, in which `codes`, the columns
        whose numbers are not quantities, do not count. ``"maxabs"`` divides by the largest absolute value and
        ``"unit_variance"`` by the standard deviation; neither shifts, like scikit-learn's ``MaxAbsScaler`` and
        ``StandardScaler(with_mean=False)``.
        """
        check_scaling_kind(kind)
        if kind == "none":
            return cls()
        low, high, std = np.asarray(statistics.min), np.asarray(statistics.max), np.asarray(statistics.std)
        measured = ~np.isin(np.arange(len(std)), list(codes))
        shift, scale = {
            "standard": (np.asarray(statistics.mean), std),
            "common": (np.asarray(statistics.mean), np.full_like(std, _root_mean_square(std[measured]))),
            "minmax": (low, high - low),
            "maxabs": (np.zeros_like(low), np.maximum(np.abs(low), np.abs(high))),
            "unit_variance": (np.zeros_like(low), std),
        }[kind]
        known = next(name for name in SCALING_KINDS if name == kind)
        return cls(known, floats_of(shift), floats_of(np.where(scale > 0, scale, 1.0)))

    def apply(self, X: FeatureRows, dtype: npt.DTypeLike, *, overwrite: bool = False) -> FeatureRows:
        """Return the rows `X` (m, d), dense or CSR, scaled, as float `dtype`; dense ones where they lie, on a GPU too.

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
        wide = float32_rounds(X.dtype) or self._is_small
        scaled = X.astype(np.float64 if wide else dtype, copy=not overwrite)
        xp = namespace_of(scaled)
        shift, scale = (xp.asarray(vector.astype(scaled.dtype)) for vector in self._vectors)
        scaled -= shift
        scaled /= scale
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
        """Whether a column lies so far from 0, or is so small, that it has to be read in float64, before the shift."""
        shift, scale = self._vectors
        reach = [(np.abs(table.values).max(), table.values[-1] - table.values[0]) for table in self.ranks]
        far = bool((np.abs(shift) > _FAR * scale).any()) or any(most > _FAR * spread for most, spread in reach)
        return far or self._is_small

    @cached_property
    def _is_small(self) -> bool:
        return bool(np.min(self._vectors[1], initial=1.0) < _SMALL)

    @property
    def shifts(self) -> bool:
        """Whether zeros may become other numbers, so that sparse rows cannot stay sparse."""
        return self.kind not in SPARSE_SCALINGS and (any(self.shift) or bool(self.ranks))

    def _bend(self, scaled: Array) -> None:
        """Bend the columns of dense rows in place."""
        xp, (columns, bend) = namespace_of(scaled), self._bends
        if not columns.size:
            return
        columns, bend = xp.asarray(columns), xp.asarray(bend.astype(scaled.dtype))
        every = columns.size == scaled.shape[1]
        part = scaled if every else scaled[:, columns]
        part /= bend
        xp.arcsinh(part, out=part)
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


def _root_mean_square(values: FloatArray) -> float:
    """Return the root of the mean square; infinity and NaN where a value is."""
    largest = float(np.max(np.abs(values), initial=0.0))
    within = 0 < largest < np.inf  # a ratio: squares of large and small values are beyond float64
    return largest * float(np.sqrt(np.mean((values / largest) ** 2))) if within else largest


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
