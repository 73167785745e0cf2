"""Rows readable by position, in memory or in a store: the interface that training reads through."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Flag, auto
from itertools import pairwise
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.csr import CsrRows, FeatureRows, gather_rows
from daskkern.data.schema.schema import ClassLabel, Task
from daskkern.errors import SpecError


class Fields(Flag):
    """The fields of rows to read, such as ``Fields.X | Fields.y``."""

    X = auto()
    y = auto()
    weight = auto()


ALL = Fields.X | Fields.y | Fields.weight


@dataclass(frozen=True)
class RowBlock:
    """Rows as read, not to be modified. A field is None when it was not requested or the source has none.

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
        Rows decoded together: reads between multiples of it decode nothing in vain.
    task : "classification", "regression" or None
        None when there are no targets.
    classes : tuple or None
        Class labels by code.
    has_weight : bool
        Whether rows have weights.
    dtype : dtype
        Of the blocks of ``X``: float32 or float64.
    n_stored : int or None
        Approximate number of entries of all sparse rows; None for dense rows.
    reads_pieces : bool
        Whether :meth:`parts_at` reads a piece of a chunk at the cost of its own bytes. This depends on the kind of
        rows, not on their location: a store in a zip file, which is read by whole chunks, has the same batches.
    decodes_chunks : bool
        Whether a whole chunk is decoded for any of its rows, as those are that are compressed.
    chunk_edges : ChunkEdges or None
        Where chunks begin and end that differ in size, at most `chunk_rows`; None where all but the last are equal.
    in_memory : bool
        Whether the rows are in the memory of this process.
    on_gpus : bool
        Whether blocks of ``X`` lie on GPUs, of this process or of the workers that hold them.
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
    reads_pieces: bool = False
    decodes_chunks: bool = False
    chunk_edges: ChunkEdges | None = None
    in_memory: bool = False
    on_gpus: bool = False

    @property
    def is_sparse(self) -> bool:
        """Whether blocks of ``X`` are CSR rows."""
        return self.n_stored is not None

    @property
    def row_bytes(self) -> int:
        """Average bytes of the features of a row in float32; at least 1."""
        return mean_row_bytes(self.n_rows, self.n_features, self.n_stored)

    def read(self, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        """Return the rows from `start` to `stop` (excluded). Other fields than `fields` are not decoded."""
        if not 0 <= start <= stop <= self.n_rows:
            raise SpecError(f"got rows {start} to {stop}, but there are {self.n_rows} rows")
        return RowBlock(
            X=self._read_features(start, stop) if Fields.X in fields else None,
            y=self._read_targets(start, stop) if Fields.y in fields and self.task is not None else None,
            weight=self._read_weight(start, stop) if Fields.weight in fields and self.has_weight else None,
        )

    def blocks_on(self, xp: ModuleType) -> Iterator[RowBlock] | None:
        """Return all rows in order, block by block, with ``X`` on the GPU of `xp`.

        None where they neither lie there nor can be read to it directly.
        """
        del xp
        return None

    def encoded(self) -> "Rows":
        """Return the same rows with blocks of ``X`` as they are stored, where that takes fewer bytes; else itself."""
        return self

    def decoded(self, X: FeatureRows) -> FeatureRows:
        """Return ``X`` of a block of :meth:`encoded` rows as a block of these rows has it, bit for bit."""
        return X

    def parts_at(self, positions: IntArray, fields: Fields = ALL) -> Iterator[tuple[slice, RowBlock]]:
        """Yield slices and the rows at ``positions[slice]``, for ascending `positions` (k,); reads each chunk once."""
        edges = self.chunk_edges
        chunks = positions // self.chunk_rows if edges is None else edges.chunks_of(positions)
        cuts = np.flatnonzero(np.diff(chunks)) + 1  # where the next chunk begins
        bounds = [0, *cuts.tolist(), positions.size] if positions.size else [0]
        for begin, end in pairwise(bounds):
            wanted = positions[begin:end]
            start = int(wanted[0])
            yield slice(begin, end), _rows_of(self.read(start, int(wanted[-1]) + 1, fields), wanted - start)

    @abstractmethod
    def _read_features(self, start: int, stop: int) -> FeatureRows: ...

    @abstractmethod
    def _read_targets(self, start: int, stop: int) -> HostArray: ...

    @abstractmethod
    def _read_weight(self, start: int, stop: int) -> HostArray: ...


class RowsReadWhole(Rows):
    """Dense rows whose :meth:`read` is the implementation, as fields that lie together are read together."""

    @abstractmethod
    def read(self, start: int, stop: int, fields: Fields = ALL) -> RowBlock: ...

    def _read_features(self, start: int, stop: int) -> HostArray:
        X = self.read(start, stop, Fields.X).X
        assert X is not None
        return np.asarray(X)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        y = self.read(start, stop, Fields.y).y
        assert y is not None
        return y

    def _read_weight(self, start: int, stop: int) -> HostArray:
        weight = self.read(start, stop, Fields.weight).weight
        assert weight is not None
        return weight


def row_fields(rows: Rows) -> Fields:
    """Return the fields that a training step reads: all that the rows have."""
    return ALL if rows.has_weight else Fields.X | Fields.y


def mean_row_bytes(n_rows: int, n_features: int, n_stored: int | None) -> int:
    """Return the bytes of a row of `n_features` float32 features, or of its share of `n_stored` sparse entries."""
    return 4 * n_features if n_stored is None else 8 * (n_stored // max(1, n_rows) + 1)


def take(rows: Rows, positions: IntArray, fields: Fields = ALL) -> RowBlock:
    """Return the rows at `positions` (k,), in that order; no chunk is read twice.

    Positions may be unsorted and repeated. From stores with uncompressed chunks, only the requested rows and bytes
    close to them are read. Memory: the result, and for one chunk, or 4 MiB if that is more, the bytes read and twice
    the rows.
    """
    positions = np.asarray(positions, dtype=np.int64)
    if positions.ndim != 1 or (positions.size and not 0 <= positions.min() <= positions.max() < rows.n_rows):
        raise SpecError(f"got row positions out of range; expected 0 to {rows.n_rows - 1}")
    gathering = Gathering(rows, len(positions), fields)
    order = np.argsort(positions, kind="stable")
    for places, part in rows.parts_at(positions[order], fields):
        gathering.put(order[places], part)
    return gathering.block()


class NewArray(Protocol):
    """Makes arrays in host memory whose values are not set, as :func:`numpy.empty` does."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> HostArray: ...


class Gathering:
    """A block of `m` rows assembled from parts in any order. Holds the block; sparse rows twice at the end.

    Parameters
    ----------
    rows : Rows
        Source of the parts.
    m : int
        Number of rows of the block; each of them must be put once.
    fields : Fields
        The fields to gather, as far as `rows` has them.
    empty : callable
        Makes the array of dense features.
    """

    def __init__(self, rows: Rows, m: int, fields: Fields, empty: NewArray = np.empty) -> None:
        self._rows, self._wants_X = rows, Fields.X in fields
        self._X = empty((m, rows.n_features), rows.dtype) if self._wants_X and not rows.is_sparse else None
        self._y, self._weight = _targets_like(rows, m, fields), None
        if Fields.weight in fields and rows.has_weight:
            self._weight = np.empty(m, np.float64)
        self._parts: list[tuple[CsrRows, IntArray]] = []

    def put(self, slots: IntArray, part: RowBlock, places: IntArray | slice = slice(None)) -> None:
        """Copy the rows of `part` at `places` to the rows `slots` of the block, in every field that both have.

        From any number of threads at once.
        """
        for into, values in ((self._X, part.X), (self._y, part.y), (self._weight, part.weight)):
            if into is not None and values is not None:
                into[slots] = values[places]
        if self._wants_X and self._X is None:
            assert part.X is not None
            X = part.X if isinstance(places, slice) and places == slice(None) else part.X[places]
            self._parts.append((X, slots))

    def block(self) -> RowBlock:
        """Return the block, after every row was put."""
        X: FeatureRows | None = self._X
        if self._wants_X and X is None:
            slots = np.concatenate([*(slots for _, slots in self._parts), np.empty(0, np.int64)])
            parts = [part for part, _ in self._parts]
            X = gather_rows(parts, np.argsort(slots), self._rows.n_features, self._rows.dtype)
            self._parts.clear()
        return RowBlock(X, self._y, self._weight)


def _rows_of(block: RowBlock, places: IntArray) -> RowBlock:
    """Return the rows at `places` of a block, copied."""
    X, y, weight = block.X, block.y, block.weight
    return RowBlock(*(None if part is None else part[places] for part in (X, y, weight)))


def _targets_like(rows: Rows, m: int, fields: Fields) -> HostArray | None:
    if Fields.y not in fields or rows.task is None:
        return None
    return np.empty(m, np.int64) if rows.task == "classification" else np.empty((m, rows.n_targets), np.float64)
