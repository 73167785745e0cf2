"""Row groups of tables as groups of rows, decoded and encoded as in an ingestion but not written."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array, HostArray
from daskkern.backend.machine_code.row_copies import copy_rows
from daskkern.data.ingest.columns.labels import AUTO_LIMIT, KnownLabels, LabelCoder
from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.columns.values import labels_of, quantities_of, weights_of
from daskkern.data.ingest.pipeline.stream import check_classes
from daskkern.data.ingest.readers.tables import Piece, Table, block_rows
from daskkern.data.rows.grouped_rows import GroupReader, grouped_sizes, merged
from daskkern.data.rows.rows import Fields, RowBlock
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError

LEAST_ROWS = 4096
"""Rows of a group, at least: smaller row groups are read several at once."""


@dataclass(frozen=True, eq=False)
class TableReader(GroupReader):
    """Reads row groups of a table.

    Attributes
    ----------
    table : Table
    starts : tuple of int
        The first row of each group.
    sizes : tuple of int
    task : "classification", "regression" or None
    classes : tuple or None
        Labels by code.
    held_bytes : int
        Bytes of the table in the memory of this process, which cannot be sent as it is; 0 where it lies in files.
    """

    table: Table
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    task: str | None
    classes: tuple[ClassLabel, ...] | None
    held_bytes: int = 0

    @property
    def has_weight(self) -> bool:
        """Whether rows have weights."""
        return self.table.has_weight

    @property
    def is_slow(self) -> bool:
        """Whether rows lie in files: columns of different types become features."""
        return not self.held_bytes

    def features_on(self, dtype: npt.DTypeLike) -> Iterator[Array] | None:
        """Return features on the GPU of this process; see :class:`daskkern.data.rows.grouped_rows.GroupReader`."""
        return None if self.table.features_on is None else self.table.features_on(dtype)

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        """Return the rows of a group; see :class:`daskkern.data.rows.grouped_rows.GroupReader`."""
        start, m = self.starts[number], self.sizes[number]
        table = self.table.unrounded() if np.dtype(dtype) == np.float64 else self.table
        wants_X = Fields.X in fields
        X = np.empty((m, table.n_features), dtype) if wants_X else None
        y: list[HostArray] = []
        weight: list[HostArray] = []
        done = 0
        for whole in _passes(table, start, m) if wants_X else table.narrow_rows_from(start):
            k = min(int(whole.X.shape[0]), m - done)
            piece = _first(whole, k)
            if X is not None:
                with np.errstate(over="ignore"):  # infinite values are refused by the rows
                    if piece.moments is None:
                        X[done : done + k] = piece.X
                    else:
                        copy_rows(X[done : done + k], piece.X)
            if Fields.y in fields and self.task is not None:
                y.append(self._targets(piece))
            weights = weights_of(piece) if Fields.weight in fields else None
            if weights is not None:
                weight.append(weights)
            done += k
            if done == m:
                break
        if done < m:
            raise DataError(f"{table.source} ended at row {start + done}; do not change the data during a fit")
        return RowBlock(X, np.concatenate(y) if y else None, np.concatenate(weight) if weight else None)

    def _targets(self, piece: Piece) -> HostArray:
        if self.classes is not None:
            return KnownLabels(self.classes).encode(labels_of(piece, self.table))
        y = quantities_of(piece, self.table)
        return y[:, None] if y.ndim == 1 else y


def table_reader(
    table: Table, decision: Decision, classes: tuple[ClassLabel, ...] | None = None, held_bytes: int = 0
) -> TableReader:
    """Return the reader of a table; one pass over the targets finds the classes, unless they are given.

    Raises
    ------
    DataError
        For sparse rows and tables of unknown length, which have no row groups.
    """
    if table.is_sparse or table.n_rows is None:
        what = "sparse" if table.is_sparse else "read line by line"
        raise DataError(
            f"{table.source} is {what} and has no row groups to draw batches from; ingest it with 'daskkern ingest'"
        )
    if not table.n_rows:
        raise DataError(f"{table.source} has no rows; at least one is needed")
    starts, sizes = _groups(table, table.n_rows)
    if decision.task == "classification" and classes is None:
        classes = _classes(table, decision)
    return TableReader(table, starts, sizes, decision.task, classes, held_bytes)


def _passes(table: Table, start: int, m: int) -> Iterator[Piece]:
    return table.rows_from(start) if table.window is None else table.window(start, start + m)()


def _groups(table: Table, n_rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first rows and the sizes of the groups."""
    if table.starts is None:
        rows = max(LEAST_ROWS, block_rows(4 * table.n_features))
        sizes = grouped_sizes(n_rows, rows)
        return tuple(range(0, n_rows, rows)), sizes
    edges = sorted({*table.starts, n_rows})
    found = [stop - start for start, stop in pairwise(edges)]
    runs = merged(found, LEAST_ROWS)
    starts = tuple(edges[first] for first, _ in runs)
    return starts, tuple(edges[last] - edges[first] for first, last in runs)


def _classes(table: Table, decision: Decision) -> tuple[ClassLabel, ...]:
    coder, n_rows = LabelCoder(AUTO_LIMIT if decision.guessed else None), 0
    for piece in table.narrow_rows_from(0):
        coder.encode(labels_of(piece, table))
        n_rows += int(piece.X.shape[0])
    labels, _ = coder.finish()
    check_classes(labels, decision, n_rows, table)
    return labels


def _first(piece: Piece, k: int) -> Piece:
    """Return the first k rows of a piece."""
    if k == piece.X.shape[0]:
        return piece
    y, weight = piece.y, piece.weight
    return Piece(
        piece.source,
        piece.first,
        piece.X[:k],
        None if y is None else y[:k],
        None if weight is None else weight[:k],
    )
