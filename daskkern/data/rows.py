"""Rows readable by position: what training reads, whether they lie in memory or in a store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag, auto

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray, IntArray
from daskkern.data.csr import CsrRows, FeatureRows, as_csr, gather_rows, is_sparse
from daskkern.data.csr_store import CsrReader
from daskkern.data.schema import ClassLabel, Task
from daskkern.data.store import Store, read_array
from daskkern.errors import DataError, SpecError, StoreError


class Fields(Flag):
    """Which parts of the rows are wanted; ``Fields.X | Fields.y``."""

    X = auto()
    y = auto()
    weight = auto()


ALL = Fields.X | Fields.y | Fields.weight


@dataclass(frozen=True)
class RowBlock:
    """Rows as read. A part is None when it was not wanted or the source has none. Not to be modified.

    Attributes
    ----------
    X : (m, d) float32 or float64
        Features, scaling already applied: a NumPy array, or a ``scipy.sparse.csr_array`` of sparse rows.
    y : (m,) int64 or (m, t) float64
        Class codes, or regression targets.
    weight : (m,) float64
        Weights of the rows.
    """

    X: FeatureRows | None
    y: HostArray | None
    weight: HostArray | None


class Rows(ABC):
    """Rows readable by position, from any number of threads at once.

    Attributes
    ----------
    n_rows, n_features, n_targets : int
        Sizes; `n_targets` is 1 for classification and 0 without targets.
    chunk_rows : int
        Rows decoded together: reads from one multiple of it to the next waste nothing.
    task : "classification", "regression" or None
        None when there are no targets.
    classes : tuple or None
        Class labels by code.
    has_weight : bool
        Whether rows have weights.
    dtype : dtype
        Of the blocks of ``X``: float32 or float64.
    n_stored : int or None
        Entries of all sparse rows, about; None for dense rows.
    """

    n_rows: int
    n_features: int
    n_targets: int
    chunk_rows: int
    task: Task | None
    classes: tuple[ClassLabel, ...] | None
    has_weight: bool
    dtype: np.dtype[np.floating]
    n_stored: int | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether blocks of ``X`` are CSR rows."""
        return self.n_stored is not None

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a row in float32, on the average; at least 1."""
        if self.n_stored is None:
            return 4 * self.n_features
        return 8 * (self.n_stored // max(1, self.n_rows) + 1)

    def read(self, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        """Return the rows from `start` to `stop` (excluded). What is not in `fields` is not decoded."""
        if not 0 <= start <= stop <= self.n_rows:
            raise SpecError(f"rows {start} to {stop} were asked, but there are {self.n_rows} rows")
        return RowBlock(
            X=self._read_features(start, stop) if Fields.X in fields else None,
            y=self._read_targets(start, stop) if Fields.y in fields and self.task is not None else None,
            weight=self._read_weight(start, stop) if Fields.weight in fields and self.has_weight else None,
        )

    @abstractmethod
    def _read_features(self, start: int, stop: int) -> FeatureRows: ...

    @abstractmethod
    def _read_targets(self, start: int, stop: int) -> HostArray: ...

    @abstractmethod
    def _read_weight(self, start: int, stop: int) -> HostArray: ...


class ArrayRows(Rows):
    """Rows of NumPy arrays in memory. Nothing is copied; blocks are cast as they are read.

    Parameters
    ----------
    X : (n, d) array of real numbers, or sparse matrix
        Anything sparse but canonical CSR is converted once.
    y : None, (n,) int codes, or (n,) or (n, t) floats
        Codes when `classes` is given, regression targets otherwise.
    weight : None or (n,) array
    classes : sequence or None
        Class labels by code.
    dtype : dtype
        Of the blocks of ``X``.
    chunk_rows : int
        Granularity of shuffling.
    """

    def __init__(
        self,
        X: FeatureRows,
        y: HostArray | None = None,
        *,
        weight: HostArray | None = None,
        classes: Sequence[ClassLabel] | None = None,
        dtype: npt.DTypeLike = np.float32,
        chunk_rows: int = 4096,
    ) -> None:
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise DataError(f"X is {X.dtype} of shape {X.shape}; a table of real numbers (rows, features) was expected")
        for name, array in (("y", y), ("weight", weight)):
            if array is not None and len(array) != X.shape[0]:
                raise DataError(f"{name} has {len(array)} rows, but X has {X.shape[0]}")
        if is_sparse(X):
            X = as_csr(X)
            self.n_stored = int(X.nnz)
        self.dtype = _float_dtype(dtype)
        self.n_rows, self.n_features = X.shape
        self.chunk_rows = max(1, min(chunk_rows, self.n_rows))
        self.classes = None if classes is None else tuple(classes)
        self.has_weight = weight is not None
        self.task = None if y is None else "regression" if classes is None else "classification"
        if y is not None and classes is not None:
            _check_codes(y, len(classes), "y")
        elif y is not None and y.ndim == 1:
            y = y[:, None]  # (n, 1)
        self.n_targets = 0 if y is None else 1 if y.ndim == 1 else y.shape[1]
        self._X, self._y, self._weight = X, y, weight

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        return self._X[start:stop].astype(self.dtype, copy=False)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        assert self._y is not None
        dtype = np.int64 if self.task == "classification" else np.float64
        return self._y[start:stop].astype(dtype, copy=False)

    def _read_weight(self, start: int, stop: int) -> HostArray:
        assert self._weight is not None
        return self._weight[start:stop].astype(np.float64, copy=False)


class StoreRows(Rows):
    """Rows of an open store, with its recorded scaling applied.

    Parameters
    ----------
    store : Store
        From :func:`daskkern.data.store.open_store`.
    dtype : dtype
        Of the blocks of ``X``: float32 or float64.
    """

    def __init__(self, store: Store, dtype: npt.DTypeLike = np.float32) -> None:
        info = store.info
        self.dtype = _float_dtype(dtype)
        self.n_rows, self.n_features, self.n_targets = info.n_rows, info.n_features, info.n_targets
        self.chunk_rows = info.chunk_rows
        self.task, self.classes, self.has_weight = info.task, info.classes, info.has_weight
        self._scaling, self._path = info.scaling, store.path
        self._X = None if info.is_sparse else store.array("X")
        self._csr = (
            CsrReader(store.csr_parts(), info.n_features, f"X of the store {store.path}") if info.is_sparse else None
        )
        self.n_stored = None if self._csr is None else self._csr.n_stored
        self._y = store.array("y") if info.task is not None else None
        self._weight = store.array("weight") if info.has_weight else None

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        if self._csr is not None:
            return self._scaling.apply(self._csr.read(start, stop), self.dtype)
        assert self._X is not None
        X = read_array(self._X, start, stop)
        return self._scaling.apply(X, self.dtype, overwrite=bool(X.flags.owndata))

    def _read_targets(self, start: int, stop: int) -> HostArray:
        assert self._y is not None
        y = read_array(self._y, start, stop)
        if self.classes is not None:
            _check_codes(y, len(self.classes), f"y of the store {self._path}")
        return y

    def _read_weight(self, start: int, stop: int) -> HostArray:
        assert self._weight is not None
        return read_array(self._weight, start, stop)


def take(rows: Rows, positions: IntArray, fields: Fields = ALL) -> RowBlock:
    """Return the rows at `positions` (k,), in that order; each chunk is read once.

    Positions may be unsorted and repeated. Memory: the result and one chunk.
    """
    positions = np.asarray(positions, dtype=np.int64)
    if positions.ndim != 1 or (positions.size and not 0 <= positions.min() <= positions.max() < rows.n_rows):
        raise SpecError(f"row positions from 0 to {rows.n_rows - 1} were expected")
    gathering = Gathering(rows, len(positions), fields)
    order = np.argsort(positions, kind="stable")
    in_order = positions[order]
    cuts = np.flatnonzero(np.diff(in_order // rows.chunk_rows)) + 1  # where the next chunk begins
    for slots in np.split(order, cuts):
        if slots.size:
            wanted = positions[slots]
            start = int(wanted[0])
            part = rows.read(start, int(wanted[-1]) + 1, fields)
            gathering.put(slots, part, wanted - start)
    return gathering.block()


class Gathering:
    """A block of `m` rows put together from parts, in any order. Holds the block; of sparse rows, twice at the end.

    Parameters
    ----------
    rows : Rows
        Where the parts come from.
    m : int
        Rows of the block; each of them must be put once.
    fields : Fields
        The parts of the rows to gather, as far as `rows` has them.
    """

    def __init__(self, rows: Rows, m: int, fields: Fields) -> None:
        self._rows, self._wants_X = rows, Fields.X in fields
        self._X = np.empty((m, rows.n_features), rows.dtype) if self._wants_X and not rows.is_sparse else None
        self._y, self._weight = _targets_like(rows, m, fields), None
        if Fields.weight in fields and rows.has_weight:
            self._weight = np.empty(m, np.float64)
        self._parts: list[CsrRows] = []
        self._slots: list[IntArray] = []

    def put(self, slots: IntArray, part: RowBlock, places: IntArray | slice = slice(None)) -> None:
        """Make the rows of `part` at `places` the rows `slots` of the block, every field that both have."""
        for into, values in ((self._X, part.X), (self._y, part.y), (self._weight, part.weight)):
            if into is not None and values is not None:
                into[slots] = values[places]
        if self._wants_X and self._X is None:
            assert part.X is not None
            self._parts.append(part.X if isinstance(places, slice) and places == slice(None) else part.X[places])
            self._slots.append(slots)

    def block(self) -> RowBlock:
        """Return the block, when every row was put."""
        X: FeatureRows | None = self._X
        if self._wants_X and X is None:
            slots = np.concatenate([*self._slots, np.empty(0, np.int64)])
            X = gather_rows(self._parts, np.argsort(slots), self._rows.n_features, self._rows.dtype)
            self._parts.clear()
        return RowBlock(X, self._y, self._weight)


def _targets_like(rows: Rows, m: int, fields: Fields) -> HostArray | None:
    if Fields.y not in fields or rows.task is None:
        return None
    return np.empty(m, np.int64) if rows.task == "classification" else np.empty((m, rows.n_targets), np.float64)


def _float_dtype(dtype: npt.DTypeLike) -> np.dtype[np.floating]:
    for known in (np.dtype(np.float32), np.dtype(np.float64)):
        if np.dtype(dtype) == known:
            return known
    raise SpecError(f"rows of dtype {np.dtype(dtype)} were asked; choose float32 or float64")


def _check_codes(y: HostArray, n_classes: int, name: str) -> None:
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"{name} is {y.dtype} of shape {y.shape}; integer class codes (rows,) were expected")
    if y.size and not 0 <= y.min() <= y.max() < n_classes:
        raise StoreError(f"{name} holds codes from {y.min()} to {y.max()}, but there are {n_classes} classes")
