"""A lake: row groups of Parquet files with one schema, read a batch at a time in bounded memory.

Every row group is described by a small record, so that a task for a worker carries those that it reads, and nothing of
the others.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from daskkern.data.lake.decoded_columns import DecodedColumns
from daskkern.data.lake.lake_piece import LakeBatch, LakePiece
from daskkern.data.lake.parsed_footers import ParsedFooters
from daskkern.data.remote.spans import SpannedFile
from daskkern.data.remote.stores import is_url
from daskkern.errors import DataError

_GROUP_BYTES = 48 << 20
"""Compressed bytes of the columns of a row group that are read at once; larger ones are read through small buffers."""

_BUFFER_BYTES = 16 << 20  # for all columns of a file together


@dataclass(frozen=True, eq=False)
class Lake:
    """Row groups that are read as one table.

    Attributes
    ----------
    name : str
        For messages.
    schema : pyarrow.Schema
        All columns: those of the files, then those of the names of folders. Readers cast to these types.
    columns : tuple of str
        Those that were chosen; the schema also has the columns of the filter.
    pieces : tuple of LakePiece
        In the order of the rows. Row groups in which no row can pass the filter are left out.
    where : pyarrow.compute.Expression or None
        The filter.
    filtered : tuple of str
        The columns that the filter reads.
    nulls : dict
        Missing values of each column by the footers of the files; None where they do not say.
    index : tuple of str
        Columns that pandas added as its index.
    categories : tuple of str
        Columns that their writer took for categories: dictionaries of texts.
    stamps : tuple of str
        What changes when a file is written again, for each file.
    decoded : DecodedColumns or None
        Columns that an earlier pass of this process has kept, which are not decoded again.
    footers : ParsedFooters or None
        Footers that this process has parsed.
    """

    name: str
    schema: pa.Schema
    columns: tuple[str, ...]
    pieces: tuple[LakePiece, ...]
    where: "pa.compute.Expression | None" = None
    filtered: tuple[str, ...] = ()
    nulls: dict[str, int | None] = field(default_factory=dict)
    index: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    stamps: tuple[str, ...] = ()
    decoded: DecodedColumns | None = None
    footers: ParsedFooters | None = None

    @property
    def n_rows(self) -> int | None:
        """Rows that pass the filter; None while they have not been counted."""
        counts = [piece.n_rows if self.where is None else piece.kept for piece in self.pieces]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def of(self, pieces: Sequence[LakePiece]) -> "Lake":
        """Return the lake of these pieces alone."""
        return replace(self, pieces=tuple(pieces), stamps=(), nulls={})

    def batches(self, piece: LakePiece, columns: Sequence[str], rows: int) -> Iterator[LakeBatch]:
        """Yield the columns of one piece, at most `rows` rows at a time.

        Only these columns, and those of the filter, are read. Holds the compressed columns of the row group, where
        they have less than 48 MiB, and one batch.

        Raises
        ------
        DataError
            When the file is damaged, or a value does not fit the type of its column.
        StoreError
            When a server cannot be reached.
        """
        wanted = list(dict.fromkeys([*columns, *self.filtered]))
        first = piece.first if self.where is None else 0
        source = piece.file if self.where is None else f"the rows that pass the filter in {piece.file}"
        for batch in self._rows(piece, wanted, rows):
            kept = batch if self.where is None else _filtered(batch, self.where)
            if kept.num_rows:
                yield LakeBatch(source, first, kept if len(wanted) == len(columns) else kept.select(list(columns)))
            first += kept.num_rows

    def counted(self, piece: LakePiece) -> int:
        """Return the rows of a piece that pass the filter; reads the columns of the filter."""
        if self.where is None:
            return piece.n_rows
        return sum(batch.rows.num_rows for batch in self.batches(piece, self.filtered[:1], 1 << 16))

    def _rows(self, piece: LakePiece, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a piece; columns that were kept are taken from there."""
        kept = None if self.decoded is None else self.decoded.rows_of(piece, columns)
        if kept is None:
            yield from self._stored(piece, columns, rows)
            return
        others = [name for name in columns if name not in kept.names]
        for batch in self._stored(piece, others, rows) if others else _empty(piece.n_rows, rows):
            arrays = kept.take(batch.num_rows)
            arrays.update(zip(others, batch.columns, strict=True))
            yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))

    def _stored(self, piece: LakePiece, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a piece, in the types of the schema."""
        fixed, former = dict(piece.partition), dict(piece.renamed)
        stored = {name: former.get(name, name) for name in columns if name not in fixed}
        names = list(stored.values())
        large = piece.n_bytes > _GROUP_BYTES
        try:
            with (
                _opened(piece) as stream,
                pq.ParquetFile(
                    stream,
                    metadata=None if self.footers is None else self.footers.of(piece),
                    read_dictionary=[there for name, there in stored.items() if pa.types.is_string(self._kinds[name])],
                    pre_buffer=is_url(piece.file) and not large,
                    buffer_size=_buffer_bytes(len(stored)) if large else 0,
                ) as file,
            ):
                if isinstance(stream, SpannedFile) and not large:
                    stream.expect(_ranges(file.metadata, piece.group, names))
                for batch in _decoded(file, piece, names, rows) if stored else _empty(piece.n_rows, rows):
                    yield self._in_schema(batch, columns, stored, fixed)
        except (pa.ArrowException, OSError) as error:
            raise damaged(piece.file, error) from error

    def _in_schema(
        self, batch: pa.RecordBatch, columns: Sequence[str], stored: Mapping[str, str], fixed: Mapping[str, object]
    ) -> pa.RecordBatch:
        """Return rows of a file as `columns`, in the types of the schema.

        `stored` maps columns to their names in the file, `fixed` those of the names of folders to their values.
        """
        constants = {
            name: _constant(fixed[name], self._kinds[name], batch.num_rows) for name in columns if name in fixed
        }
        if batch.schema.equals(self._as_read(tuple(stored.items()))):  # hundreds of types are compared at once
            batch = batch.replace_schema_metadata().rename_columns(list(stored))
            for at, name in enumerate(columns):
                batch = batch.add_column(at, name, constants[name]) if name in fixed else batch
            return batch
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        known = {name: _cast(found[there], self._kinds[name]) for name, there in stored.items()}
        known.update(constants)
        return pa.RecordBatch.from_arrays([known[name] for name in columns], names=list(columns))

    def _as_read(self, stored: tuple[tuple[str, str], ...]) -> pa.Schema:
        """Return the schema in which columns are read from a file that has them in the types of this one."""
        if stored not in self._schemas:
            fields = [(there, self._kinds[name]) for name, there in stored]
            self._schemas[stored] = pa.schema(
                [
                    (there, pa.dictionary(pa.int32(), kind) if pa.types.is_string(kind) else kind)
                    for there, kind in fields
                ]
            )
        return self._schemas[stored]

    @cached_property
    def _schemas(self) -> dict[tuple[tuple[str, str], ...], pa.Schema]:
        return {}

    @cached_property
    def _kinds(self) -> dict[str, pa.DataType]:
        return dict(zip(self.schema.names, self.schema.types, strict=True))


def damaged(place: str, error: Exception) -> DataError:
    """Return the error for a file that cannot be read."""
    return DataError(f"{place} cannot be read as Parquet: {error}; make the file again")


def _opened(piece: LakePiece) -> "AbstractContextManager[io.IOBase | pa.NativeFile]":
    """Return the file of a piece; Arrow reads local ones itself, without the lock of the interpreter."""
    return SpannedFile(piece.file, piece.size) if is_url(piece.file) else pa.OSFile(piece.file)


def _decoded(file: pq.ParquetFile, piece: LakePiece, names: Sequence[str], rows: int) -> Iterable[pa.RecordBatch]:
    """Return columns of a row group, at most `rows` rows at a time; all at once is faster, where these are all."""
    if piece.n_rows > rows:
        return file.iter_batches(rows, row_groups=[piece.group], columns=names, use_threads=False)
    return file.read_row_group(piece.group, columns=names, use_threads=False).to_batches()


def _ranges(metadata: pq.FileMetaData, group: int, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the byte ranges of columns of a row group; none of nested columns."""
    places = {metadata.schema.column(j).path: j for j in range(metadata.num_columns)}
    chunks = [metadata.row_group(group).column(places[name]) for name in names if name in places]
    starts = [min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset) for chunk in chunks]
    return [(start, chunk.total_compressed_size) for start, chunk in zip(starts, chunks, strict=True)]


def _buffer_bytes(n_columns: int) -> int:
    return max(1 << 13, min(1 << 18, _BUFFER_BYTES // max(1, n_columns)))  # of one column


def _empty(n_rows: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without columns, for columns of the names of folders alone."""
    for start in range(0, n_rows, rows):
        struct = pa.array([{}] * min(rows, n_rows - start), pa.struct([]))
        yield pa.RecordBatch.from_struct_array(struct)


def _constant(value: object, kind: pa.DataType, n_rows: int) -> pa.Array:
    if not pa.types.is_string(kind):
        return pa.repeat(pa.scalar(value, kind), n_rows)
    indices = pa.repeat(pa.scalar(0 if value is not None else None, pa.int32()), n_rows)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value or ""], kind))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in the type of the schema; texts stay dictionaries, which are read faster."""
    if array.type == kind or (pa.types.is_dictionary(array.type) and array.type.value_type == kind):
        return array
    return array.cast(kind)


def _filtered(batch: pa.RecordBatch, where: "pa.compute.Expression") -> pa.RecordBatch:
    table = pa.Table.from_batches([batch]).filter(where)
    whole = table.combine_chunks().to_batches()
    return whole[0] if whole else batch.slice(0, 0)
