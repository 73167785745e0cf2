"""Tables from ``.parquet`` files, a batch of rows at a time."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.errors import DataError

_BUFFER_BYTES = 16 << 20  # for all columns of a file together; without it Arrow reads whole column chunks


def open_parquet(paths: Sequence[Path], request: Request) -> Parts:
    """Return the rows of ``.parquet`` files."""
    return open_typed([_open(path) for path in paths], request)


def _open(path: Path) -> TypedFile:
    try:
        with pq.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
            sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error

    def batches(names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        buffer = max(1 << 13, min(1 << 18, _BUFFER_BYTES // max(1, len(names))))  # of one column
        try:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=buffer) as file:
                groups, skipped = _groups_from(file, start)
                found = file.iter_batches(batch_size=rows, row_groups=groups, columns=list(names), use_threads=False)
                yield from after(found, start - skipped)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from error

    return TypedFile(path, n_rows, schema, batches, starts=tuple(accumulate(sizes[:-1], initial=0)))


def _groups_from(file: pq.ParquetFile, start: int) -> tuple[list[int], int]:
    """Return the row groups from the one with row `start` on, and the number of rows before them."""
    first = skipped = 0
    while first < file.num_row_groups and skipped + file.metadata.row_group(first).num_rows <= start:
        skipped += file.metadata.row_group(first).num_rows
        first += 1
    return list(range(first, file.num_row_groups)), skipped


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read as Parquet: {error}; make the file again")
