"""Tables from files with a JSON object on each line, streamed by Arrow.

Lines can be told apart without parsing them, because JSON text has no line break in a value: a file is read in blocks
of whole lines. One pass over the file finds the columns, their types, the number of rows, and where each block begins.
"""

import io
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from daskkern.data.ingest.readers.csv_dialects import LONGEST_ROW, UNREADABLE
from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, open_typed
from daskkern.data.remote.url_files import SourceFile, open_source_file
from daskkern.errors import DataError

BLOCK_BYTES = 1 << 22
_LARGE = 2.0**63
_LINES = 'every line must be one JSON object, such as {"a": 1.5, "b": "text"}'


def open_json_lines(paths: Sequence[SourceFile], request: Request) -> Parts:
    """Return the rows of ``.jsonl`` or ``.ndjson`` files, also compressed by gzip. A key that a line lacks is missing.

    Raises
    ------
    DataError
        For files that are damaged or empty, and columns that hold values of several kinds.
    """
    found = [_surveyed(path) for path in paths]
    schema = found[0].schema
    for other in found[1:]:
        schema = _joined(schema, other.schema, f"{other.path}", f"{paths[0]}")
    plain = pa.schema([(field.name, _type_of(field, request)) for field in schema])
    return open_typed([replace(one, schema=plain).typed(request.count) for one in found], request)


def _type_of(field: pa.Field, request: Request) -> pa.DataType:
    """Return the type in which a column is read: numbers where all is missing, kept dates as they are written."""
    if pa.types.is_timestamp(field.type) and field.name in request.keep:
        return pa.string()
    return pa.float64() if pa.types.is_null(field.type) else field.type


@dataclass(frozen=True)
class _Blocks:
    """The blocks of a file: the first row and the first byte of each, and at last the numbers of all rows and bytes."""

    path: SourceFile
    schema: pa.Schema
    rows: tuple[int, ...]
    places: tuple[int, ...]

    def typed(self, count: bool) -> TypedFile:
        """Return the file as a table; of a compressed one, which is read from its beginning, blocks are not groups."""
        packed = self.path.name.lower().endswith(".gz")
        n_rows = self.rows[-1] if count or not packed else None
        return TypedFile(self.path, n_rows, self.schema, self.batches, (0,) if packed else self.rows[:-1])

    def batches(self, names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        """Yield columns from row `start` on, at most `rows` rows at a time."""
        schema = pa.schema([self.schema.field(name) for name in names])
        first = max(0, bisect_right(self.rows, start) - 1)
        with _errors_of(self.path), open_source_file(self.path) as stream:
            stream.seek(self.places[first])
            for number in range(first, len(self.rows) - 1):
                block = stream.read(self.places[number + 1] - self.places[number])
                table = _parsed(block, self.path, self.rows[number], schema).combine_chunks()
                yield from table.slice(max(0, start - self.rows[number])).to_batches(max_chunksize=rows)


def _surveyed(path: SourceFile) -> _Blocks:
    schema, rows, places = pa.schema([]), [0], [0]
    with _errors_of(path), open_source_file(path) as stream:
        while block := _next_block(stream, path, rows[-1]):
            if block.isspace():  # of which Arrow knows no columns
                places[-1] += len(block)
                continue
            table = _exact(_parsed(block, path, rows[-1], None), block, path, rows[-1])
            schema = _joined(schema, table.schema, f"row {rows[-1]} of {path} (counted from 0) and later", f"{path}")
            rows.append(rows[-1] + table.num_rows)
            places.append(places[-1] + len(block))
    if not rows[-1]:
        raise DataError(f"{path} is empty; {_LINES}")
    if not schema.names:
        raise DataError(f"{path} has no columns: its objects are empty")
    return _Blocks(path, schema, tuple(rows), tuple(places))


def _next_block(stream: BinaryIO, path: SourceFile, row: int) -> bytes:
    """Return the next whole lines, b"" at the end."""
    block = stream.read(BLOCK_BYTES)
    if block and not block.endswith(b"\n"):
        block += stream.readline(LONGEST_ROW)
        if len(block) >= LONGEST_ROW and not block.endswith(b"\n"):
            raise DataError(f"{path} has a line of more than {LONGEST_ROW >> 20} MiB after row {row}; {_LINES}")
    return block


def _parsed(block: bytes, path: SourceFile, first: int, schema: pa.Schema | None) -> pa.Table:
    """Return the rows of a block, whose first row is row `first`: all columns, or those of a schema."""
    read = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    parse = pa.json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
    )
    try:
        return pa.json.read_json(io.BytesIO(block), read_options=read, parse_options=parse)
    except pa.ArrowException as error:
        raise _explained(str(error), path, first) from error


def _exact(table: pa.Table, block: bytes, path: SourceFile, first: int) -> pa.Table:
    """Return the rows with integers from 2^63 on as they are written; Arrow takes their column for one of fractions."""
    large = [
        field.name
        for field in table.schema
        if pa.types.is_float64(field.type) and (pc.max(table.column(field.name)).as_py() or 0) >= _LARGE
    ]
    if not large:
        return table
    whole = pa.schema([pa.field(f.name, pa.uint64() if f.name in large else f.type) for f in table.schema])
    try:
        return _parsed(block, path, first, whole)
    except DataError:  # not all of them are integers, or some are negative
        return table


def _joined(one: pa.Schema, other: pa.Schema, where: str, first: str) -> pa.Schema:
    """Return the columns of both, with types that hold the values of both."""
    fields = {field.name: field for field in one}
    for field in other:
        known = fields.get(field.name)
        fields[field.name] = field if known is None else _of_both(known, field, where, first)
    return pa.schema(list(fields.values()))


def _of_both(one: pa.Field, other: pa.Field, where: str, first: str) -> pa.Field:
    """Return a field for the values of two; moments that are not all written as one are texts."""
    kinds = (one.type, other.type)
    if kinds[0] == kinds[1] or pa.types.is_null(kinds[1]):
        return one
    if pa.types.is_null(kinds[0]):
        return other
    if all(pa.types.is_timestamp(kind) or pa.types.is_string(kind) for kind in kinds):
        return one.with_type(pa.string())
    if {*map(str, kinds)} in ({"int64", "double"}, {"uint64", "double"}):
        return one.with_type(pa.float64())
    if {*map(str, kinds)} == {"int64", "uint64"}:
        return one.with_type(pa.uint64())
    raise DataError(
        f"column {one.name!r} holds {kinds[0]} values in {first} and {kinds[1]} in {where}; write one type, or leave "
        "these files out"
    )


def _explained(text: str, path: SourceFile, first: int) -> DataError:
    row = re.search(r" in row (\d+)$", text)
    where = f"row {first + int(row[1])} of {path} (counted from 0)" if row else f"{path}"
    mixed = re.search(r"Column\(/(.*)\) changed from (\w+) to (\w+)", text)
    if mixed:
        return DataError(
            f"{where} has another kind of value in column {mixed[1]!r} than the rows before ({mixed[2]} and "
            f"{mixed[3]}); write values of one kind"
        )
    twice = re.search(r"Column\(/(.*)\) was specified twice", text)
    if twice:
        return DataError(f"{where} has the key {twice[1]!r} twice; give every value a key of its own")
    return DataError(f"{where} cannot be parsed as JSON lines ({text}); {_LINES}")


@contextmanager
def _errors_of(path: SourceFile) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}; make the file again") from error
