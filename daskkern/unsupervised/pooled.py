"""Two sources of rows, concatenated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client

from daskkern.arrays import HostArray
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.ingest.readers.frames import arrow_table, is_frame
from daskkern.data.rows.csr import FeatureRows, is_sparse, stack_rows
from daskkern.data.rows.rows import Fields, Rows
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.same_columns import other_name
from daskkern.errors import DataError
from daskkern.estimators.frame_codes import frame_encoding
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sent_rows import Releasable
from daskkern.training.setup.scaling import with_scaling


def pooled_encoding(X: Any, Y: Any) -> Encoding | None:
    """Return how the columns of two data frames in memory become features, by the rows of both; None for other rows.

    Raises
    ------
    DataError
        For frames with other columns, or with columns of other kinds.
    """
    if not (is_frame(X) and is_frame(Y)) or is_dask_frame(X) or is_dask_frame(Y):
        return None
    first, second = arrow_table(X), arrow_table(Y)
    other = other_name(tuple(first.schema.names), tuple(second.schema.names))
    if other is not None:
        raise DataError(f"got column {other[0]!r} where the other rows have {other[1]!r}; give the same columns")
    try:
        pooled = pa.concat_tables([first, second], promote_options="permissive").unify_dictionaries()
    except pa.ArrowException as error:
        raise DataError(f"got two data frames with columns of different kinds ({error}); make them the same") from error
    return frame_encoding(pooled)


@dataclass(frozen=True, eq=False)
class PooledSource(RowSource):
    """The rows of `first`, followed by those of `second`; targets and weights are left out."""

    first: RowSource
    second: RowSource
    info: SourceInfo

    @classmethod
    def of(cls, first: RowSource, second: RowSource) -> "PooledSource":
        """Return both sources as one. DataError where their columns, or what scaled them, differ."""
        a, b = first.info, second.info
        if a.n_features != b.n_features:
            raise DataError(f"got rows of {a.n_features} and of {b.n_features} features; give the same columns")
        other = other_name(a.feature_names, b.feature_names)
        if other is not None:
            raise DataError(f"got feature {other[0]!r} where the other rows have {other[1]!r}; give the same columns")
        if a.encoding != b.encoding:
            raise DataError(
                "got rows whose columns became features in different ways, such as other categories; give two data "
                "frames in memory, or ingest the second with --like and the first"
            )
        if (a.n_stored is None) != (b.n_stored is None):
            raise DataError("got sparse and dense rows; give both sparse or both dense")
        if a.scaling != b.scaling:
            raise DataError(
                f"got rows with other scalings ({a.scaling.kind} and {b.scaling.kind}); ingest the second with --like "
                "and the first, or both with --scale none"
            )
        stored = None if a.n_stored is None or b.n_stored is None else a.n_stored + b.n_stored
        return cls(first, second, replace(a, n_rows=a.n_rows + b.n_rows, n_stored=stored, task=None, classes=None))

    def open(self, dtype: str) -> Rows:
        return PooledRows(*(with_scaling(each, self.info.scaling).open(dtype) for each in (self.first, self.second)))

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Releasable, ...]]:
        first, held = self.first.for_cluster(client, workers, dtype)
        second, also_held = self.second.for_cluster(client, workers, dtype)
        return replace(self, first=first, second=second), (*held, *also_held)

    def digest(self) -> dict[str, Any]:
        return {"first": self.first.digest(), "second": self.second.digest()}


class PooledRows(Rows):
    """The features of two kinds of rows, one after the other."""

    def __init__(self, first: Rows, second: Rows) -> None:
        self._first, self._second = first, second
        self.n_rows, self.n_features, self.n_targets = first.n_rows + second.n_rows, first.n_features, 0
        self.chunk_rows = max(1, min(max(first.chunk_rows, second.chunk_rows), self.n_rows))
        self.task, self.classes, self.has_weight, self.dtype = None, None, False, first.dtype
        if first.n_stored is not None and second.n_stored is not None:
            self.n_stored = first.n_stored + second.n_stored

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        n = self._first.n_rows
        parts: list[Any] = []
        for rows, offset in ((self._first, 0), (self._second, n)):
            begin, end = max(start - offset, 0), min(stop - offset, rows.n_rows)
            if begin < end:
                parts.append(rows.read(begin, end, Fields.X).X)
        if len(parts) == 1:
            found: FeatureRows = parts[0]
            return found
        if not parts:
            parts = [self._first.read(0, 0, Fields.X).X] * 2
        return stack_rows(parts) if is_sparse(parts[0]) else np.concatenate(parts)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        raise DataError("pooled rows have no targets; read them from the rows that are pooled")

    def _read_weight(self, start: int, stop: int) -> HostArray:
        raise DataError("pooled rows have no weights; read them from the rows that are pooled")
