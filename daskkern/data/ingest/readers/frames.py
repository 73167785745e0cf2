"""Tables from in-memory data frames: pandas, polars, Arrow, and others that Arrow reads without a copy."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.data.lake.opening import plain_schema
from daskkern.errors import DataError

_NAME = Path("the data frame")


def is_frame(rows: Any) -> bool:
    """Return whether `rows` is a data frame in memory, with named columns."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return True
    return (hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "iloc")) and hasattr(rows, "columns")


def arrow_table(frame: Any) -> pa.Table:
    """Return a data frame as an Arrow table, without the index of pandas.

    Raises
    ------
    DataError
        For columns that have names that are not text, or values that are of several kinds.
    """
    if hasattr(frame, "iloc"):
        _check_names(frame.columns)
    try:
        return _with_plain_texts(_converted(frame))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"a column of the data frame has values of several kinds, or of a kind that Arrow does not hold ({error}); "
            "make them one"
        ) from error


def _check_names(names: Any) -> None:
    other = next((name for name in names if not isinstance(name, str)), None)
    if other is not None:
        raise DataError(f"the rows have names of columns that are not text, such as {other!r}; rename these")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"the data frame has more than one column named {twice!r}; give every column a name of its own")


def _converted(frame: Any) -> pa.Table:
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if hasattr(frame, "iloc"):
        if hasattr(frame, "to_arrow"):  # of cuDF
            return frame.to_arrow(preserve_index=False)
        return pa.Table.from_pandas(frame, preserve_index=False)
    return frame if isinstance(frame, pa.Table) else pa.table(frame)


def _with_plain_texts(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries of string views, as those of polars are, which Arrow does not decode."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            parts = [
                pa.DictionaryArray.from_arrays(part.indices, part.dictionary.cast(pa.string()))
                for part in table.column(at).chunks
            ]
            kind = pa.dictionary(field.type.index_type, pa.string(), field.type.ordered)
            table = table.set_column(at, field.name, pa.chunked_array([part.cast(kind) for part in parts], kind))
    return table


def open_table(frame: Any, request: Request) -> Parts:
    """Return the rows of a data frame, columns by name. Arrow data are not copied; an index is left out.

    DataError as from :func:`arrow_table`.
    """
    table = arrow_table(frame)
    schema = plain_schema(table.schema)
    plain = table.cast(schema)
    described = schema.with_metadata(table.schema.metadata)  # of an index that pandas has added

    def batches(names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        chosen = plain.select(list(dict.fromkeys(names)))
        yield from after(chosen.to_batches(max_chunksize=rows), start)

    coded = tuple(field.name for field in table.schema if pa.types.is_dictionary(field.type))
    return open_typed([TypedFile(_NAME, table.num_rows, described, batches, categories=coded)], request)
