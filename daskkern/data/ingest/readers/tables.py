"""Tables that stream pieces of rows: the results of all readers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.schema.encoding import CategoricalChoice, Encoding, MissingChoice, UnknownChoice
from daskkern.data.schema.table_schema import TableSchema
from daskkern.errors import DataError

BLOCK_BYTES = 8 << 20

TargetKind: TypeAlias = Literal["text", "truth", "integer", "float"]
_KINDS: dict[str, TargetKind] = {"U": "text", "S": "text", "b": "truth", "i": "integer", "u": "integer", "f": "float"}


@dataclass(frozen=True)
class Request:
    """A request to a reader.

    `target` is None when not given, and empty when the data has no targets. `scratch` is a folder for temporary
    files; with `count` the number of rows must be known before the first piece. `features` names the
    key of the features in files of named arrays. `index_base` is the number of the first feature in SVMLight files,
    None to guess. `columns` names those that may be features, None all; `where` is a filter of rows. `like` is the
    schema of a store whose columns, encoding and classes the rows must have. `keep` names columns that pieces carry
    unchanged in addition, features or not. `unknown` says what becomes of categories that `like` lacks.
    """

    target: tuple[str, ...] | None
    weight: str | None
    drop: tuple[str, ...]
    task: str
    scratch: Path = field(repr=False)  # not a part of what identifies rows
    count: bool
    features: str | None = None
    index_base: int | None = None
    categorical: CategoricalChoice = "auto"
    missing: MissingChoice = "auto"
    like: TableSchema | None = None
    keep: tuple[str, ...] = ()
    unknown: UnknownChoice = "refuse"
    columns: tuple[str, ...] | None = None
    where: str | None = None


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file, from its row `first` on: X (m, d) dense or CSR, y (m,) or (m, t), weight (m,).

    `kept` holds the columns that were to be kept, as they are in the file. `is_finite` says that the reader has made
    sure that all features are finite. `moments` (4, d) are minimum, maximum, mean and sum of squared deviations of each
    feature, where the reader has taken them.
    """

    source: str
    first: int
    X: FeatureRows
    y: HostArray | None
    weight: HostArray | None
    kept: pa.RecordBatch | None = None
    is_finite: bool = False
    moments: FloatArray | None = None


@dataclass(frozen=True)
class Table:
    """Rows of one or more files. `n_rows` is None while it is unknown; `pieces()` starts a new pass.

    `pieces_from(start)`, where a format supports it, starts a pass at a later row without reading those before. It
    is cheap only at the rows `starts`, such as those where a file or a row group begins; None means at any row.
    `targets()`, where a format supports it, passes over a single target (m,) without reading features.
    `narrow_from(start)`, likewise, is `pieces_from` with targets and weights only; X has no columns.
    `features_on(dtype)`, where the table lies on a GPU, passes over the features as arrays (m, d) there.
    `exact()`, where pieces are rounded to `dtype` as they are read, is the table whose pieces are not.
    """

    source: str
    n_rows: int | None
    n_features: int
    dtype: np.dtype[np.generic]
    target_kind: TargetKind | None
    n_targets: int
    has_weight: bool
    pieces: Callable[[], Iterator[Piece]]
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    task_hint: str | None = None
    is_sparse: bool = False
    encoding: Encoding | None = None
    index_base: int | None = None
    pieces_from: Callable[[int], Iterator[Piece]] | None = None
    starts: tuple[int, ...] | None = None
    targets: Callable[[], Iterator[HostArray]] | None = None
    narrow_from: Callable[[int], Iterator[Piece]] | None = None
    window: Callable[[int, int], Callable[[], Iterator[Piece]]] | None = None
    fills_means: bool = False
    exact: "Callable[[], Table] | None" = None
    features_on: "Callable[[npt.DTypeLike], Iterator[Array]] | None" = None

    def between(self, start: int, stop: int) -> "Table":
        """Return the table of the rows from `start` to `stop`, or beyond; light to send where a format allows it."""
        if self.window is None:
            return replace(self, pieces=lambda: self.rows_from(start), pieces_from=None, narrow_from=None, targets=None)
        light = replace(self, window=None, pieces_from=None, narrow_from=None, starts=None, targets=None, n_rows=None)
        return replace(light, pieces=self.window(start, stop), exact=None)

    def unrounded(self) -> "Table":
        """Return the table with dense features in float64 where a store of it has float32."""
        if self.is_sparse or self.dtype != np.float32:
            return self
        return replace(self if self.exact is None else self.exact(), dtype=np.dtype(np.float64))

    def rows_from(self, start: int) -> Iterator[Piece]:
        """Start a pass at row `start`: directly where the format allows it, else by skipping the rows before."""
        if self.pieces_from is not None:
            return self.pieces_from(start)
        return self.pieces() if start == 0 else _skipped(self.pieces(), start)

    def narrow_rows_from(self, start: int) -> Iterator[Piece]:
        """Start a pass over targets and weights at row `start`, with features where these cannot be left out."""
        return self.rows_from(start) if self.narrow_from is None else self.narrow_from(start)

    def feature_name(self, column: int) -> str:
        """Return the name of a feature for messages."""
        return repr(self.feature_names[column]) if self.feature_names else f"{column} (counted from 0)"


@dataclass(frozen=True)
class Parts:
    """The contents of files: training rows, test rows or None, and notes for the user.

    `missing` is the treatment of missing numbers, where the reader has decided it.
    """

    train: Table
    test: Table | None = None
    notes: tuple[str, ...] = ()
    missing: MissingChoice | None = None


def kind_of(dtype: np.dtype[np.generic], what: str) -> TargetKind:
    """Return the kind of targets of a dtype; `what` names the array in the error for other dtypes."""
    if dtype.kind not in _KINDS:
        raise DataError(
            f"{what} holds {dtype} values, which cannot be targets; give integers, floats, booleans or strings "
            "(an object array is a pickle and is never read: save it with y.astype(str) or as numbers)"
        )
    return _KINDS[dtype.kind]


def kind_of_all(kinds: Sequence[TargetKind]) -> TargetKind | None:
    """Return the kind of a table's targets, whose columns have `kinds`; None where there are none."""
    if len(kinds) < 2:
        return kinds[0] if kinds else None
    return "text" if "text" in kinds else "float" if "float" in kinds else "integer"


def concatenate(tables: Sequence[Table]) -> Table:
    """Return the rows of `tables`, one after the other. They must agree in everything except rows."""
    first = tables[0]
    if len(tables) == 1:
        return first
    for other in tables[1:]:
        _check_alike(first, other)
    counts = [table.n_rows for table in tables if table.n_rows is not None]
    kinds = {table.target_kind for table in tables}

    def pieces_from(start: int, narrow: bool = False) -> Iterator[Piece]:
        for table in tables:
            if table.n_rows is not None and start >= table.n_rows:
                start -= table.n_rows
                continue
            yield from table.narrow_rows_from(start) if narrow else table.rows_from(start)
            start = 0

    narrow = all(table.narrow_from is not None for table in tables)
    return replace(
        first,
        source=f"{len(tables)} files from {first.source}",
        n_rows=sum(counts) if len(counts) == len(tables) else None,
        dtype=np.result_type(*(table.dtype for table in tables)),
        target_kind=first.target_kind if len(kinds) == 1 else "float",
        pieces=lambda: pieces_from(0),
        pieces_from=pieces_from if len(counts) == len(tables) else None,
        starts=_starts(tables),
        targets=_joined_targets(tables),
        exact=None,
        narrow_from=partial(pieces_from, narrow=True) if narrow and len(counts) == len(tables) else None,
    )


def _joined_targets(tables: Sequence[Table]) -> Callable[[], Iterator[HostArray]] | None:
    passes = [table.targets for table in tables if table.targets is not None]
    if len(passes) < len(tables):
        return None
    return lambda: (y for targets in passes for y in targets())


def _starts(tables: Sequence[Table]) -> tuple[int, ...] | None:
    if all(table.starts is None for table in tables):
        return None
    starts, offset = [], 0
    for table in tables:
        starts += [offset + start for start in table.starts or (0,)]
        offset += table.n_rows or 0
    return tuple(starts)


def _skipped(pieces: Iterator[Piece], start: int) -> Iterator[Piece]:
    """Yield the pieces without the first `start` rows."""
    for piece in pieces:
        m = piece.X.shape[0]
        if start >= m:
            start -= m
            continue
        yield piece if start == 0 else _rows_after(piece, start)
        start = 0


def _rows_after(piece: Piece, start: int) -> Piece:
    y = None if piece.y is None else piece.y[start:]
    weight = None if piece.weight is None else piece.weight[start:]
    kept = None if piece.kept is None else piece.kept.slice(start)
    return Piece(piece.source, piece.first + start, piece.X[start:], y, weight, kept)


def _check_alike(first: Table, other: Table) -> None:
    numbers = {"integer", "float"}
    same_kind = first.target_kind == other.target_kind or {first.target_kind, other.target_kind} == numbers
    for what, alike, found in (
        ("layout", first.is_sparse == other.is_sparse, (_layout(first), _layout(other))),
        ("features", first.n_features == other.n_features, (first.n_features, other.n_features)),
        ("names of features", first.feature_names == other.feature_names, _differing(first, other)),
        ("targets", first.n_targets == other.n_targets, (first.n_targets, other.n_targets)),
        ("kind of target", same_kind, (first.target_kind, other.target_kind)),
        ("task", first.task_hint == other.task_hint, (first.task_hint, other.task_hint)),
        ("weights", first.has_weight == other.has_weight, (first.has_weight, other.has_weight)),
    ):
        if not alike:
            raise DataError(
                f"{first.source} and {other.source} do not belong together: their {what} differ "
                f"({found[0]} and {found[1]}); ingest them separately"
            )


def _differing(first: Table, other: Table) -> tuple[object, object]:
    """Return the first feature names that differ, for a message."""
    pairs = zip(first.feature_names or (), other.feature_names or (), strict=False)
    return next((pair for pair in pairs if pair[0] != pair[1]), ("named", "not named"))


def _layout(table: Table) -> str:
    return "sparse" if table.is_sparse else "dense"


def block_rows(row_bytes: int) -> int:
    """Return the number of rows of this size in a piece."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))
