"""What is known about the columns of a table: their moments and range, and the scaling derived from them.

Moments are merged block by block in float64 (Chan, Golub and LeVeque, "Algorithms for computing the sample
variance", The American Statistician 1983), so one pass over data of any size is enough.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daskkern.arrays import FloatArray, HostArray
from daskkern.errors import SpecError

ScalingKind: TypeAlias = Literal["standard", "minmax", "none"]
SCALING_KINDS: tuple[ScalingKind, ...] = ("standard", "minmax", "none")

_PANEL_BYTES = 1 << 20  # the float64 copy of a panel stays in cache while its moments are taken


@dataclass(frozen=True)
class ColumnStatistics:
    """Mean, standard deviation (divisor n), minimum and maximum of every column, over `count` rows."""

    count: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    min: tuple[float, ...]
    max: tuple[float, ...]


class Moments:
    """Running moments of `n_columns` columns; feed blocks to :meth:`update`, then ask for :meth:`result`."""

    def __init__(self, n_columns: int) -> None:
        self._count = 0
        self._mean = np.zeros(n_columns)
        self._squares = np.zeros(n_columns)  # sum of squared deviations from the running mean
        self._min = np.full(n_columns, np.inf)
        self._max = np.full(n_columns, -np.inf)

    def update(self, block: HostArray) -> bool:
        """Add the rows of `block` (m, n_columns) and return True when all of them are finite.

        After False the moments are meaningless: the caller is expected to refuse the data.
        """
        rows = max(1, _PANEL_BYTES // max(1, 8 * block.shape[1]))
        return all(self._update_panel(block[i : i + rows]) for i in range(0, len(block), rows))

    def _update_panel(self, panel: HostArray) -> bool:
        low, high = panel.min(axis=0), panel.max(axis=0)  # both carry NaN, and one of them any infinity
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            return False
        self._min = np.minimum(self._min, low)
        self._max = np.maximum(self._max, high)
        values = panel.astype(np.float64)
        mean = values.mean(axis=0)
        values -= mean
        total = self._count + len(panel)
        delta = mean - self._mean
        self._squares += np.einsum("ij,ij->j", values, values)
        self._squares += delta * delta * (self._count * len(panel) / total)
        self._mean += delta * (len(panel) / total)
        self._count = total
        return True

    def result(self) -> ColumnStatistics:
        """Return the statistics of all rows seen. A column of one value has exactly std 0 and that mean."""
        if self._count == 0:
            raise SpecError("column statistics of no rows were asked; at least one row is needed")
        constant = self._min == self._max  # rounding in the mean must not pass for spread
        std = np.where(constant, 0.0, np.sqrt(self._squares / self._count))
        mean = np.where(constant, self._min, self._mean)
        return ColumnStatistics(self._count, _floats(mean), _floats(std), _floats(self._min), _floats(self._max))


@dataclass(frozen=True)
class Scaling:
    """The map ``(x - shift) / scale`` of every column. `shift` and `scale` are empty for kind ``"none"``."""

    kind: ScalingKind = "none"
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    @classmethod
    def of(cls, kind: str, statistics: ColumnStatistics) -> "Scaling":
        """Return the scaling of one kind for columns with these statistics; no spread gives scale 1.

        ``"standard"`` gives mean 0 and standard deviation 1, ``"minmax"`` the range 0 to 1.
        """
        check_scaling_kind(kind)
        if kind == "none":
            return cls()
        if kind == "standard":
            shift, scale = np.asarray(statistics.mean), np.asarray(statistics.std)
        else:
            shift = np.asarray(statistics.min)
            scale = np.asarray(statistics.max) - shift
        scale = np.where(scale > 0, scale, 1.0)
        return cls("standard" if kind == "standard" else "minmax", _floats(shift), _floats(scale))

    def apply(self, X: HostArray, dtype: npt.DTypeLike, *, overwrite: bool = False) -> HostArray:
        """Return the rows `X` (m, d) scaled, as float `dtype`.

        `X` itself is returned when there is nothing to do. It is modified only with `overwrite`, which saves
        the copy when `X` already has the dtype. Wide integers and float64 are scaled in float64 first, because
        float32 would round away what is left after the shift.
        """
        dtype = np.dtype(dtype)
        if self.kind == "none":
            return X.astype(dtype, copy=False)
        wide = X.dtype == np.float64 or (X.dtype.kind in "iu" and X.dtype.itemsize > 2)
        scaled = X.astype(np.float64 if wide else dtype, copy=not overwrite)
        shift, scale = self._vectors
        scaled -= shift.astype(scaled.dtype)
        scaled /= scale.astype(scaled.dtype)
        return scaled.astype(dtype, copy=False)

    @cached_property
    def _vectors(self) -> tuple[FloatArray, FloatArray]:
        return np.asarray(self.shift), np.asarray(self.scale)


def check_scaling_kind(kind: str) -> None:
    """Raise SpecError unless `kind` is the name of a scaling."""
    if kind not in SCALING_KINDS:
        raise SpecError(f"scale {kind!r} was asked; choose one of {', '.join(SCALING_KINDS)}")


def _floats(values: HostArray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
