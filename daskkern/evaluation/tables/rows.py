"""Blocks of rows to predict or to score, from stores and tables, encoded by the model but not yet scaled.

Blocks end where a multiple of 4096 rows, or of the rows of an output file, is reached: whoever reads them, and from
whatever file, a row is in the same block, so that its predictions have the same bits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.ingest.columns.labels import KnownLabels
from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.columns.values import features_of, labels_of, quantities_of, weights_of
from daskkern.data.ingest.readers.tables import Piece, Table
from daskkern.data.remote.stores import absolute
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.data.schema.schema import ClassLabel, Task
from daskkern.data.storage.store import Store, open_store, read_array
from daskkern.errors import SpecError
from daskkern.evaluation.score import raw_blocks

BLOCK_ROWS = 4096
Cuts: TypeAlias = tuple[int, ...]
"""Numbers of rows at whose multiples blocks end."""


@dataclass(frozen=True, eq=False)
class InputBlock:
    """Rows from row `first` on: X (m, d) dense or CSR, targets or class codes, columns to keep, and weights."""

    first: int
    X: FeatureRows
    y: HostArray | None = None
    kept: pa.RecordBatch | None = None
    weight: HostArray | None = None

    @property
    def stop(self) -> int:
        """The row after the last one."""
        return self.first + int(self.X.shape[0])


class InputRows(Protocol):
    """Rows of a store or table. `classes` are the labels that codes in `y` stand for."""

    @property
    def source(self) -> str: ...
    @property
    def n_rows(self) -> int | None: ...
    @property
    def task(self) -> Task | None: ...
    @property
    def classes(self) -> tuple[ClassLabel, ...] | None: ...
    @property
    def starts(self) -> tuple[int, ...] | None:
        """Rows at which a pass begins cheaply; None where it may begin at any row."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes can read the rows, and from the middle on."""

    def blocks(self, cuts: Cuts, start: int = 0, stop: int | None = None) -> Iterator[InputBlock]:
        """Yield the rows from `start` to `stop`."""


@dataclass(frozen=True)
class StoreInput:
    """The rows of a store. Features that are not one-hot, and targets, can be kept.

    Copies that are sent to a worker open the store there, and check that all of its chunks can be seen.
    """

    store: Store
    keep: tuple[str, ...] = ()
    is_shared: bool = True
    starts: tuple[int, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (absolute(self.store.path), self.keep)

    @property
    def source(self) -> str:
        return self.store.path

    @property
    def n_rows(self) -> int:
        return self.store.info.n_rows

    @property
    def task(self) -> Task | None:
        return self.store.info.task

    @property
    def classes(self) -> tuple[ClassLabel, ...] | None:
        return self.store.info.classes

    def blocks(self, cuts: Cuts, start: int = 0, stop: int | None = None) -> Iterator[InputBlock]:
        end = self.n_rows if stop is None else min(stop, self.n_rows)
        y = None if self.task is None else self.store.array("y")
        weight = self.store.array("weight") if self.store.info.has_weight else None
        while start < end:
            until = min(end, _next_cut(start, cuts))
            X = next(raw_blocks(self.store, slice(start, until)))
            targets = None if y is None else read_array(y, start, until)
            weights = None if weight is None else read_array(weight, start, until)
            yield InputBlock(start, X, targets, self._kept(X, targets), weights)
            start = until

    def check(self) -> None:
        """Raise SpecError for a column to keep that the store does not have."""
        info = self.store.info
        known = [*(info.feature_names or ()), *(info.target_names or ())]
        for name in self.keep:
            if name not in known:
                raise SpecError(
                    f"the store {self.store.path} has no column {name!r} to keep, only its features and targets; "
                    "predict the table that it was made from, which the model encodes as it did for training"
                )

    def _kept(self, X: FeatureRows, y: HostArray | None) -> pa.RecordBatch | None:
        if not self.keep:
            return None
        info = self.store.info
        columns: dict[str, pa.Array] = {}
        for name in self.keep:
            if name in (info.feature_names or ()):
                at = (info.feature_names or ()).index(name)
                values = _column(X, at)
                columns[name] = _decoded(values, next((c for c in info.encoding or () if c.name == name), None))
            else:
                assert y is not None
                at = (info.target_names or ()).index(name)
                target = y if y.ndim == 1 else np.ascontiguousarray(y[:, at])
                labels = info.classes
                columns[name] = pa.array(target) if labels is None else pa.array(list(labels)).take(pa.array(target))
        return pa.RecordBatch.from_pydict(columns)


def _opened(place: str, keep: tuple[str, ...]) -> StoreInput:
    return StoreInput(open_store(place), keep)


def _column(X: Any, at: int) -> HostArray:
    column: HostArray = X[:, [at]].toarray()[:, 0] if is_sparse(X) else np.ascontiguousarray(X[:, at])
    return column


def _decoded(values: HostArray, column: ColumnEncoding | None) -> pa.Array:
    """Return a feature of a store as its column was: texts for codes."""
    if column is None or column.kind not in ("ordinal", "code"):
        return pa.array(values)
    codes = pa.array(values.astype(np.int64), mask=values >= len(column.categories))
    return pa.array(column.categories).take(codes)


@dataclass(frozen=True)
class TableInput:
    """The rows of table files or of a data frame, with targets where `decision` has a task."""

    table: Table
    decision: Decision
    classes: tuple[ClassLabel, ...] | None = None
    is_shared: bool = False
    """Whether the table is of files that other processes may see."""

    @property
    def n_rows(self) -> int | None:
        return self.table.n_rows

    @property
    def source(self) -> str:
        return self.table.source

    @property
    def task(self) -> Task | None:
        return self.decision.task

    @property
    def starts(self) -> tuple[int, ...] | None:
        return self.table.starts

    def blocks(self, cuts: Cuts, start: int = 0, stop: int | None = None) -> Iterator[InputBlock]:
        found = _cut(self._checked(start), cuts)
        for block in found:
            if stop is not None and block.stop > stop:
                if block.first < stop:
                    yield _slice(block, 0, stop - block.first)
                return
            yield block

    def _checked(self, start: int) -> Iterator[InputBlock]:
        coder = KnownLabels(self.classes or ())
        for piece in self.table.rows_from(start):
            X, y = features_of(piece, self.table), self._targets(piece, coder)
            yield InputBlock(start, X, y, piece.kept, weights_of(piece))
            start += piece.X.shape[0]

    def _targets(self, piece: Piece, coder: KnownLabels) -> HostArray | None:
        if self.task is None:
            return None
        if self.task == "classification":
            return coder.encode(labels_of(piece, self.table))
        y = quantities_of(piece, self.table)
        return y[:, None] if y.ndim == 1 else y


def _cut(pieces: Iterable[InputBlock], cuts: Cuts) -> Iterator[InputBlock]:
    """Yield the rows of pieces in blocks that end at the cuts."""
    held: list[InputBlock] = []
    for piece in pieces:
        while piece.first < piece.stop:
            end = _next_cut(piece.first, cuts)
            held.append(_slice(piece, 0, end - piece.first))
            if held[-1].stop == end:
                yield _joined(held)
                held = []
            piece = _slice(piece, end - piece.first, None)
    if held:
        yield _joined(held)


def _next_cut(row: int, cuts: Cuts) -> int:
    return min((row // cut + 1) * cut for cut in cuts)


def _slice(block: InputBlock, start: int, stop: int | None) -> InputBlock:
    rows = slice(start, stop)
    if start == 0 and (stop is None or stop >= block.X.shape[0]):
        return block
    first = min(block.first + start, block.stop)
    kept = None if block.kept is None else block.kept.slice(start, None if stop is None else stop - start)
    y, weight = (None if part is None else part[rows] for part in (block.y, block.weight))
    return InputBlock(first, block.X[rows], y, kept, weight)


def _joined(blocks: list[InputBlock]) -> InputBlock:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    parts = [block.X for block in blocks]
    X = scipy.sparse.vstack(parts, format="csr") if is_sparse(first.X) else np.concatenate(parts)
    y = None if first.y is None else np.concatenate([block.y for block in blocks if block.y is not None])
    weight = None if first.weight is None else np.concatenate([b.weight for b in blocks if b.weight is not None])
    if first.kept is None:
        return InputBlock(first.first, X, y, None, weight)
    kept = [block.kept.cast(first.kept.schema) for block in blocks if block.kept is not None]
    [batch] = pa.Table.from_batches(kept).combine_chunks().to_batches()
    return InputBlock(first.first, X, y, batch, weight)
