"""A Zarr array of features and one of targets as groups of rows, aligned with the chunks of the features."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from daskkern.arrays import HostArray
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.exact_integers import check_label_floats, check_quantities
from daskkern.data.rows.grouped_rows import GroupReader, grouped_sizes
from daskkern.data.rows.rows import Fields, RowBlock
from daskkern.data.schema.schema import ClassLabel
from daskkern.data.storage.store import read_array
from daskkern.errors import DataError

_LEAST_ROWS, _BYTES = 4096, 8 << 20


@dataclass(frozen=True, eq=False)
class ZarrPair(GroupReader):
    """Reads chunks of rows of Zarr arrays.

    Attributes
    ----------
    X : zarr.Array (n, d)
    y : zarr.Array (n,) or (n, t)
    weight : zarr.Array (n,) or None
    sizes : tuple of int
    classes : tuple or None
        Labels by code.
    """

    X: Any
    y: Any
    weight: Any
    sizes: tuple[int, ...]
    classes: tuple[ClassLabel, ...] | None

    @property
    def has_weight(self) -> bool:
        """Whether rows have weights."""
        return self.weight is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of arrays that are in the memory of this process."""
        arrays = [array for array in (self.X, self.y, self.weight) if array is not None]
        return sum(int(array.nbytes) for array in arrays if type(array.store).__name__ == "MemoryStore")

    @property
    def is_slow(self) -> bool:
        """Whether chunks of features are decompressed, or come from elsewhere than a folder or memory."""
        kind = type(self.X.store).__name__
        return kind != "MemoryStore" and (kind != "LocalStore" or bool(self.X.compressors or self.X.filters))

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        """Return the rows of a group; see :class:`daskkern.data.rows.grouped_rows.GroupReader`."""
        start = number * self.sizes[0]
        stop = start + self.sizes[number]
        X, y, weight = None, None, None
        if Fields.X in fields:
            with np.errstate(over="ignore"):
                X = np.ascontiguousarray(read_array(self.X, start, stop), dtype)
        if Fields.y in fields:
            y = self._targets(read_values(self.y, start, stop))
        if Fields.weight in fields and self.weight is not None:
            weight = read_array(self.weight, start, stop).astype(np.float64)
            if not (np.isfinite(weight).all() and (weight >= 0).all()):
                raise DataError("the weights hold NaN, infinite or negative numbers; give finite ones of 0 or more")
        return RowBlock(X, y, weight)

    def _targets(self, y: HostArray) -> HostArray:
        if self.classes is None:
            if not np.isfinite(y).all():
                raise DataError("the targets hold NaN or infinity; remove such rows first")
            check_quantities(y)
            return (y[:, None] if y.ndim == 1 else y).astype(np.float64)
        known = np.asarray(self.classes)
        at = np.minimum(np.searchsorted(known, y), len(known) - 1)
        if not np.array_equal(known[at], y):
            raise DataError(f"the targets hold {y[known[at] != y][0]!r}, not among the classes {known[:20].tolist()}")
        return at.astype(np.int64)


def read_values(array: Any, start: int, stop: int) -> HostArray:
    """Return the rows from `start` to `stop`, texts of variable width as NumPy's texts of one width."""
    values = read_array(array, start, stop)
    return np.array(values.tolist(), dtype=str) if values.dtype.kind in "TO" else values


def zarr_pair(X: Any, y: Any, weight: Any, task: str, classes: tuple[ClassLabel, ...] | None = None) -> ZarrPair:
    """Return the reader of Zarr arrays with the same rows; one pass over `y` finds the classes, unless given.

    Raises
    ------
    DataError
        For arrays that are not a table, or whose rows or values do not suit.
    """
    if not isinstance(y, zarr.Array):
        raise DataError(f"got y of type {type(y).__name__} with X as a Zarr array; give a Zarr array of the targets")
    if weight is not None and not isinstance(weight, zarr.Array):
        raise DataError(f"got sample_weight of type {type(weight).__name__}; with Zarr arrays, give a Zarr array")
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise DataError(f"got X as a Zarr array of {X.dtype} with shape {X.shape}; expected a table of numbers")
    for name, array in (("y", y), ("sample_weight", weight)):
        if array is not None and array.shape[0] != X.shape[0]:
            raise DataError(f"{name} has {array.shape[0]} rows, but X has {X.shape[0]}")
    if not X.shape[0]:
        raise DataError("got X without rows; at least one is needed")
    if task == "regression" and (y.ndim > 2 or y.dtype.kind not in "fiub"):
        raise DataError(f"got y as a Zarr array of {y.dtype} with shape {y.shape}; expected numbers (n,) or (n, t)")
    chunk = int(X.chunks[0])
    least = min(_LEAST_ROWS, max(1, _BYTES // (4 * X.shape[1])))
    rows = chunk * -(-least // chunk)
    fix_places(X, y, weight)
    if task == "classification" and classes is None:
        classes = _labels(y, rows)
    return ZarrPair(X, y, weight, grouped_sizes(int(X.shape[0]), rows), classes)


def _labels(y: Any, rows: int) -> tuple[ClassLabel, ...]:
    if y.ndim != 1:
        raise DataError(f"got y with shape {y.shape}; expected one class label per row")
    if y.dtype.kind not in "fiubUTO":
        raise DataError(f"got class labels of type {y.dtype}; use strings, integers, floats or booleans")
    found: set[ClassLabel] = set()
    for start in range(0, y.shape[0], rows):
        values = np.unique(read_values(y, start, min(start + rows, y.shape[0])))
        if values.dtype.kind == "f" and not (values == np.rint(values)).all():
            raise DataError("y holds fractions or NaN, which are not class labels; use KernelRegressor")
        check_label_floats(values)
        found.update(values.tolist())
    if len(found) < 2:
        raise DataError(f"a classifier needs at least 2 classes, but y holds only {sorted(found)}")
    return tuple(sorted(found))
