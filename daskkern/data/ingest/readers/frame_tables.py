"""Tables in memory: Arrow tables, DataFrames of pandas and Polars, and whatever else hands out Arrow data."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.data.lake.opening import plain_schema
from daskkern.errors import DataError


def is_table(source: object) -> bool:
    """Return whether a source is a table in memory."""
    return isinstance(source, pa.Table | pa.RecordBatch) or hasattr(source, "__arrow_c_stream__") or _is_pandas(source)


def open_table(source: Any, request: Request) -> Parts:
    """Return the rows of a table in memory, columns by name. Arrow data are not copied; an index is left out.

    Raises
    ------
    DataError
        When a column holds values that Arrow cannot represent.
    """
    try:
        if _is_pandas(source):
            table = pa.Table.from_pandas(source, preserve_index=False)
        else:
            table = pa.Table.from_batches([source]) if isinstance(source, pa.RecordBatch) else pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"a column of the {type(source).__name__} holds values of different kinds ({error}); convert them to one"
        ) from error
    schema = plain_schema(table.schema)
    table = table.cast(schema)

    def batches(names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        yield from after(table.select(list(names)).to_batches(max_chunksize=rows), start)

    return open_typed([TypedFile(Path(f"the {type(source).__name__}"), table.num_rows, schema, batches)], request)


def _is_pandas(source: object) -> bool:
    return type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns")
