"""Tables out of ``.parquet`` files, a batch of rows at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daskkern.data.ingest.arrow import is_number, is_text, piece_of
from daskkern.data.ingest.columns_choice import Columns, check_same_columns, choose_columns
from daskkern.data.ingest.tables import Parts, Piece, Request, Table, TargetKind, block_rows, concatenate
from daskkern.data.writer import stored_dtype
from daskkern.errors import DataError

_BUFFER_BYTES = 16 << 20  # for all columns of a file together; without it Arrow reads whole column chunks


def open_parquet(paths: Sequence[Path], request: Request) -> Parts:
    """Return the rows of ``.parquet`` files, columns matched by name. The index that pandas adds is left out."""
    files = [_open(path) for path in paths]
    columns = choose_columns(files[0].names, request, str(paths[0]))
    for file in files[1:]:
        check_same_columns(files[0].names, file.names, str(file.path), str(paths[0]))
    indexes = tuple(dict.fromkeys(name for file in files for name in file.index))
    note = (f"the index that pandas wrote was left out: {', '.join(indexes)}",) if indexes else ()
    return Parts(concatenate([file.table(columns) for file in files]), notes=note)


@dataclass(frozen=True)
class _File:
    path: Path
    n_rows: int
    schema: pa.Schema
    names: tuple[str, ...]
    index: tuple[str, ...]

    def table(self, columns: Columns) -> Table:
        self._refuse_text(columns)
        kinds = [self._target_kind(name) for name in columns.targets]
        mixed: TargetKind = "text" if "text" in kinds else "float"
        return Table(
            source=str(self.path),
            n_rows=self.n_rows,
            n_features=len(columns.features),
            dtype=stored_dtype(self._dtype(columns)),
            target_kind=None if not kinds else kinds[0] if len(kinds) == 1 else mixed,
            n_targets=len(columns.targets),
            has_weight=columns.weight is not None,
            pieces=lambda: self._pieces(columns),
            feature_names=columns.features,
            target_names=columns.targets or None,
        )

    def _dtype(self, columns: Columns) -> "np.dtype[np.generic]":
        """Return the dtype that holds every feature as it came."""
        return np.result_type(*(_numpy_type(self.schema.field(name).type) for name in columns.features))

    def _target_kind(self, name: str) -> TargetKind:
        kind = self.schema.field(name).type
        if is_text(kind):
            return "text"
        if not is_number(kind):
            raise DataError(f"the target {name!r} of {self.path} holds {kind} values; numbers or strings were expected")
        known: dict[str, TargetKind] = {"b": "truth", "i": "integer", "u": "integer", "f": "float"}
        return known[_numpy_type(kind).kind]

    def _refuse_text(self, columns: Columns) -> None:
        for name in (*columns.features, *([columns.weight] if columns.weight else [])):
            kind = self.schema.field(name).type
            if not is_number(kind):
                with pq.ParquetFile(self.path) as file:
                    batch = next(file.iter_batches(batch_size=1, columns=[name]), None)
                found = f", {batch.column(0)[0].as_py()!r:.60} in row 0 (counted from 0)," if batch is not None else ""
                raise DataError(
                    f"column {name!r} of {self.path} holds {kind} values{found} where numbers were expected; drop it "
                    "with --drop, or encode it as numbers"
                )

    def _pieces(self, columns: Columns) -> Iterator[Piece]:
        dtype, first = self._dtype(columns), 0
        rows = block_rows(8 * len(columns.all))
        buffer = max(1 << 13, min(1 << 18, _BUFFER_BYTES // len(columns.all)))  # of one column
        try:
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=buffer) as file:
                for batch in file.iter_batches(batch_size=rows, columns=columns.all, use_threads=False):
                    yield piece_of(batch, columns, dtype, str(self.path), first)
                    first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from error


def _open(path: Path) -> _File:
    try:
        with pq.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    described = schema.pandas_metadata or {}
    index = tuple(name for name in described.get("index_columns", ()) if name in schema.names)
    return _File(path, n_rows, schema, tuple(name for name in schema.names if name not in index), index)


def _numpy_type(kind: pa.DataType) -> "np.dtype[np.generic]":
    if pa.types.is_dictionary(kind):
        return _numpy_type(kind.value_type)
    return np.dtype(np.float64) if pa.types.is_decimal(kind) else np.dtype(kind.to_pandas_dtype())


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read as Parquet: {error}; make the file again")
