"""What a reader makes of files: tables that stream pieces of rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import DataError

BLOCK_BYTES = 8 << 20

TargetKind: TypeAlias = Literal["text", "truth", "integer", "float"]
_KINDS: dict[str, TargetKind] = {"U": "text", "S": "text", "b": "truth", "i": "integer", "u": "integer", "f": "float"}


@dataclass(frozen=True)
class Request:
    """What the caller asked of a reader.

    `target` is None when nothing was said, and empty when the data has no targets. `scratch` is a folder with room
    for temporary files; `count` asks for the number of rows to be known before the first piece.
    """

    target: tuple[str, ...] | None
    weight: str | None
    drop: tuple[str, ...]
    task: str
    scratch: Path
    count: bool


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file, from row `first` of it: X (m, d), y (m,) or (m, t), weight (m,)."""

    source: str
    first: int
    X: HostArray
    y: HostArray | None
    weight: HostArray | None


@dataclass(frozen=True)
class Table:
    """Rows of one or more files. `n_rows` is None while it is unknown; `pieces()` starts a new pass."""

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

    def feature_name(self, column: int) -> str:
        """Return how messages call a feature."""
        return repr(self.feature_names[column]) if self.feature_names else f"{column} (counted from 0)"


@dataclass(frozen=True)
class Parts:
    """What the files hold: training rows, test rows or None, and remarks for the user."""

    train: Table
    test: Table | None = None
    notes: tuple[str, ...] = ()


def kind_of(dtype: np.dtype[np.generic], what: str) -> TargetKind:
    """Return what sort of targets a dtype holds; `what` names the array in the refusal of any other."""
    if dtype.kind not in _KINDS:
        raise DataError(
            f"{what} holds {dtype} values, which are no targets; give integers, floats, truth values or strings "
            "(an object array is a pickle and is never read: save it with y.astype(str) or as numbers)"
        )
    return _KINDS[dtype.kind]


def concatenate(tables: Sequence[Table]) -> Table:
    """Return the rows of `tables`, one after the other. They must agree in everything but rows."""
    first = tables[0]
    if len(tables) == 1:
        return first
    for other in tables[1:]:
        _check_alike(first, other)
    counts = [table.n_rows for table in tables if table.n_rows is not None]
    kinds = {table.target_kind for table in tables}

    def pieces() -> Iterator[Piece]:
        for table in tables:
            yield from table.pieces()

    return replace(
        first,
        source=f"{len(tables)} files from {first.source}",
        n_rows=sum(counts) if len(counts) == len(tables) else None,
        dtype=np.result_type(*(table.dtype for table in tables)),
        target_kind=first.target_kind if len(kinds) == 1 else "float",
        pieces=pieces,
    )


def _check_alike(first: Table, other: Table) -> None:
    numbers = {"integer", "float"}
    same_kind = first.target_kind == other.target_kind or {first.target_kind, other.target_kind} == numbers
    for what, alike, found in (
        ("features", first.n_features == other.n_features, (first.n_features, other.n_features)),
        ("targets", first.n_targets == other.n_targets, (first.n_targets, other.n_targets)),
        ("kind of target", same_kind, (first.target_kind, other.target_kind)),
        ("task", first.task_hint == other.task_hint, (first.task_hint, other.task_hint)),
        ("weights", first.has_weight == other.has_weight, (first.has_weight, other.has_weight)),
    ):
        if not alike:
            raise DataError(
                f"{first.source} and {other.source} do not belong together: their {what} differ "
                f"({found[0]} and {found[1]}); ingest them apart"
            )


def block_rows(row_bytes: int) -> int:
    """Return how many rows of this size make a piece."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))
