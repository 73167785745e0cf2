"""The output formats of predictions, chosen by file name extension."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from daskkern.data.remote.stores import public
from daskkern.errors import DataError, SpecError

TableFormat: TypeAlias = Literal["parquet", "csv", "csv.gz", "arrow", "zarr"]
_ENDINGS: dict[str, TableFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv.gz",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".zarr": "zarr",
}
ENDING: dict[TableFormat, str] = {"parquet": ".parquet", "csv": ".csv", "csv.gz": ".csv.gz", "arrow": ".arrow"}
"""The ending of each file in a folder of predictions."""


def format_of(out: str) -> TableFormat | None:
    """Return the format of the file name extension of `out`, a path or URL; None for a name without an ending.

    Raises
    ------
    SpecError
        For another ending.
    """
    name = PurePosixPath(public(out).rstrip("/")).name.lower()
    found = next((ending for ending in sorted(_ENDINGS, key=len, reverse=True) if name.endswith(ending)), None)
    if found is not None:
        return _ENDINGS[found]
    if not PurePosixPath(name).suffix:
        return None
    raise SpecError(
        f"got {public(out)} for predictions, whose ending is not known; use .parquet, .csv, .csv.gz, .arrow or .zarr, "
        "or a name without an ending for a Zarr group"
    )


class BatchWriter:
    """Writes batches of one schema to a binary file."""

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self._writer, self._schema = writer, schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; columns of another width of number, as later files have them, are converted."""
        self._writer.write_batch(batch if batch.schema.equals(self._schema) else batch.cast(self._schema))


@contextmanager
def batch_writer(file: BinaryIO, kind: TableFormat, schema: pa.Schema) -> Iterator[BatchWriter]:
    """Yield a writer of batches to an open file, which is left open at the end.

    Raises DataError for columns of lists and other nested values in CSV.
    """
    nested = next((field for field in schema if kind.startswith("csv") and pa.types.is_nested(field.type)), None)
    if nested is not None:
        raise DataError(f"column {nested.name!r} holds {nested.type} values, which CSV cannot hold; write .parquet")
    if kind == "csv.gz":
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,  # equal rows are equal bytes
            pa.csv.CSVWriter(pa.PythonFile(packed, mode="w"), schema) as writer,
        ):
            yield BatchWriter(writer, schema)
        return
    sink = pa.PythonFile(file, mode="w")
    if kind == "parquet":
        made = pq.ParquetWriter(sink, schema)
    elif kind == "csv":
        made = pa.csv.CSVWriter(sink, schema)
    else:
        made = pa.ipc.new_file(sink, schema)
    with made:
        yield BatchWriter(made, schema)
