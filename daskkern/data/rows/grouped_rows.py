"""Rows in groups that are decoded whole, such as row groups of files: each once per pass of batches."""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.namespace import to_host
from daskkern.backend.reductions import all_finite
from daskkern.data.rows.array_rows import float_dtype
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.finite import check_finite
from daskkern.data.rows.rows import ALL, Fields, RowBlock, RowsReadWhole
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.schema import ClassLabel, Task
from daskkern.errors import DataError, SpecError

CACHE_BYTES = 64 << 20
"""Bytes of decoded groups that rows cache; the two used last are cached in any case."""
_LEAST_CACHED = 2


class GroupReader(ABC):
    """Reads groups of rows, from any number of threads, in this process or on a worker that it was sent to.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each group, at least 1.
    """

    sizes: tuple[int, ...]

    @property
    def has_weight(self) -> bool:
        """Whether rows have weights."""
        return False

    @property
    def held_bytes(self) -> int:
        """Bytes of rows that this process holds in memory, and would have to send to workers."""
        return 0

    @property
    def is_slow(self) -> bool:
        """Whether a group takes much longer to read than its bytes from a disk, because it is decoded and encoded."""
        return False

    def features_on(self, dtype: npt.DTypeLike) -> Iterator[Array] | None:
        """Return the features of all rows in order, not scaled, as arrays (m, d) on the GPU of this process.

        None where they are not computed on GPUs. Nothing is computed before the first of them is asked for.
        """
        del dtype
        return None

    @abstractmethod
    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        """Return the rows of a group, not scaled: X (m, d) in `dtype`, y codes (m,) or targets (m, t), weights (m,).

        Raises
        ------
        DataError
            When they cannot be read.
        """

    def read_some(self, number: int, places: IntArray, fields: Fields, dtype: npt.DTypeLike) -> RowBlock | None:
        """Return the rows at `places` (k,), ascending, of a group; None where that costs as much as the whole group."""
        del number, places, fields, dtype
        return None


@dataclass(frozen=True)
class RowTargets:
    """What the targets of rows are: see :class:`daskkern.data.rows.rows.Rows`."""

    task: Task | None
    n_targets: int
    classes: tuple[ClassLabel, ...] | None = None


class GroupedRows(RowsReadWhole):
    """The rows of a :class:`GroupReader`, one group after the other; groups that were decoded last are cached.

    Batches are drawn from whole groups (:class:`daskkern.data.rows.chunk_edges.ChunkEdges`), so that a pass decodes
    each group once, whatever its size.

    Parameters
    ----------
    reader : GroupReader
    n_features : int
    targets : RowTargets
    dtype : dtype
        Dtype of the blocks of ``X``: float32 or float64.
    scaling : Scaling or None
        Applied to blocks as they are decoded.
    cache_bytes : int
        Bytes of decoded groups to cache.
    """

    decodes_chunks = True

    def __init__(
        self,
        reader: GroupReader,
        n_features: int,
        targets: RowTargets,
        *,
        dtype: npt.DTypeLike = np.float32,
        scaling: Scaling | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        if min(reader.sizes, default=0) < 1:
            raise DataError("got groups without rows; at least one row is needed in each")
        edges = ChunkEdges(reader.sizes)
        self._edges, self.n_rows, self.n_features = edges, edges.n_rows, n_features
        self.chunk_rows = int(edges.sizes.max())
        self.chunk_edges = None if bool((edges.sizes[:-1] == self.chunk_rows).all()) else edges
        self.task, self.n_targets, self.classes = targets.task, targets.n_targets, targets.classes
        self.has_weight, self.dtype = reader.has_weight, float_dtype(dtype)
        self._reader, self._scaling = reader, Scaling() if scaling is None else scaling
        self._cache = _GroupCache(cache_bytes)
        self.on_gpus = reader.features_on(self.dtype) is not None

    def blocks_on(self, xp: ModuleType) -> Iterator[RowBlock] | None:
        """Return all rows in order with ``X`` on the GPU of `xp`; None where they do not lie on one."""
        features = None if xp is np else self._reader.features_on(self._read_as)
        return None if features is None else self._placed(features, xp)

    def _placed(self, features: Iterator[Array], xp: ModuleType) -> Iterator[RowBlock]:
        start = 0
        for found in features:
            X, stop = xp.ascontiguousarray(found), start + len(found)
            if not all_finite(X):
                check_finite(to_host(X), start)
            rest = self.read(start, stop, ALL & ~Fields.X)
            yield RowBlock(self._scaling.apply(X, self.dtype), rest.y, rest.weight)
            start = stop
        if start != self.n_rows:
            raise DataError(
                f"got {start} rows, but there were {self.n_rows} when the fit began; do not change the data"
            )

    def read(self, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        """Return the rows from `start` to `stop` (excluded); every group of them is decoded once for all `fields`."""
        if not 0 <= start <= stop <= self.n_rows:
            raise SpecError(f"got rows {start} to {stop}, but there are {self.n_rows} rows")
        wanted = self._present(fields)
        if stop <= start:
            return self._joined([self._empty()], wanted)
        first, last = (int(group) for group in self._edges.chunks_of(np.array([start, stop - 1])))
        parts = []
        for number in range(first, last + 1):
            begin, end = self._edges.bounds_of(number)
            parts.append(_cut(self._group(number, wanted), slice(max(start, begin) - begin, min(stop, end) - begin)))
        return self._joined(parts, wanted)

    def parts_at(self, positions: IntArray, fields: Fields = ALL) -> Iterator[tuple[slice, RowBlock]]:
        """Yield slices of ascending positions and their rows, group by group; see :class:`Rows`."""
        wanted = self._present(fields)
        if not wanted:
            yield slice(0, len(positions)), RowBlock(None, None, None)
            return
        groups = self._edges.chunks_of(positions)
        bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(positions)] if len(positions) else []
        for begin, end in pairwise(bounds):
            number = int(groups[begin])
            places = positions[begin:end] - int(self._edges.values[number])
            some = self._reader.read_some(number, places, wanted, self._read_as)
            block = _cut(self._group(number, wanted), places) if some is None else self._scaled(some)
            yield slice(begin, end), self._joined([block], wanted)

    def _group(self, number: int, fields: Fields) -> RowBlock:
        return self._cache.get((number, fields), lambda: self._decoded(number, fields))

    def _decoded(self, number: int, fields: Fields) -> RowBlock:
        block, expected = self._reader.read(number, fields, self._read_as), int(self._edges.sizes[number])
        found = {len(part) for part in (block.X, block.y, block.weight) if part is not None}
        if found != {expected}:
            raise DataError(
                f"group {number} of the rows has {sorted(found)} rows, but had {expected} when the fit began; "
                "do not change the data during a fit"
            )
        if block.X is not None:
            check_finite(block.X, int(self._edges.values[number]))
        return self._scaled(block)

    def _scaled(self, block: RowBlock) -> RowBlock:
        return block if block.X is None else RowBlock(self._scaling.apply(block.X, self.dtype), block.y, block.weight)

    @property
    def _read_as(self) -> npt.DTypeLike:
        return np.float64 if self._scaling.is_far else self.dtype

    def _present(self, fields: Fields) -> Fields:
        there = fields if self.has_weight else fields & ~Fields.weight
        return there if self.task is not None else there & ~Fields.y

    def _empty(self) -> RowBlock:
        y = np.empty(0, np.int64) if self.task == "classification" else np.empty((0, self.n_targets))
        return RowBlock(np.empty((0, self.n_features), self.dtype), y, np.empty(0))

    def _joined(self, parts: Sequence[RowBlock], fields: Fields) -> RowBlock:
        def of(field: Fields, arrays: list[Any]) -> HostArray | None:
            if field not in fields:
                return None
            return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

        return RowBlock(
            of(Fields.X, [part.X for part in parts]),
            of(Fields.y, [part.y for part in parts]),
            of(Fields.weight, [part.weight for part in parts]),
        )


def grouped_sizes(n_rows: int, rows: int) -> tuple[int, ...]:
    """Return the sizes of groups of `rows` rows each, fewer in the last."""
    whole, rest = divmod(n_rows, rows)
    return (rows,) * whole + ((rest,) if rest else ())


def merged(sizes: Sequence[int], least: int) -> list[tuple[int, int]]:
    """Return the first group of each run of neighbours of `least` rows together at least, and the one after its last.

    Small groups are better read together: each costs opening and decoding anew. The last run may have fewer rows.
    """
    runs, begun, rows = [], 0, 0
    for number, size in enumerate(sizes):
        rows += size
        if rows >= least:
            runs.append((begun, number + 1))
            begun, rows = number + 1, 0
    if begun < len(sizes):
        runs.append((begun, len(sizes)))
    return runs


class _GroupCache:
    """Decoded groups, least recently used ones dropped first. A group that a thread decodes is not decoded twice."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._blocks: OrderedDict[Any, RowBlock] = OrderedDict()
        self._changed = threading.Condition()
        self._decoding: set[Any] = set()

    def get(self, key: Any, decode: Callable[[], RowBlock]) -> RowBlock:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._decoding)
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
            self._decoding.add(key)
        try:
            block = decode()
        except BaseException:
            with self._changed:
                self._decoding.discard(key)
                self._changed.notify_all()
            raise
        with self._changed:
            self._decoding.discard(key)
            self._blocks[key] = block
            self._held += _bytes(block)
            while self._held > self._most and len(self._blocks) > _LEAST_CACHED:
                self._held -= _bytes(self._blocks.popitem(last=False)[1])
            self._changed.notify_all()
        return block


def _bytes(block: RowBlock) -> int:
    return sum(int(part.nbytes) for part in (block.X, block.y, block.weight) if part is not None)


def _cut(block: RowBlock, rows: slice | IntArray) -> RowBlock:
    X, y, weight = block.X, block.y, block.weight
    return RowBlock(*(None if part is None else part[rows] for part in (X, y, weight)))
