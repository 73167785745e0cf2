"""A lake: row groups of Parquet files with one schema, read a batch at a time in bounded memory.

Every row group is described by a small record, so that a task for a worker carries those that it reads, and nothing of
the others.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from daskkern.data.lake.partitions import PartitionValues
from daskkern.data.remote.spans import SpannedFile
from daskkern.data.remote.stores import is_url
from daskkern.errors import DataError

_GROUP_BYTES = 48 << 20
"""Compressed bytes of the columns of a row group that are read at once; larger ones are read through small buffers."""

_BUFFER_BYTES = 16 << 20  # for all columns of a file together


@dataclass(frozen=True)
class LakePiece:
    """One row group of a file.

    Attributes
    ----------
    file : str
        Path or URL.
    size : int
        Bytes of the file.
    group : int
        Number of the row group in its file.
    first : int
        Row of the file at which it begins.
    n_rows : int
        Rows, without a filter.
    n_bytes : int
        Compressed bytes of all its columns.
    partition : tuple of (str, value)
        Columns that come from the names of folders.
    kept : int or None
        Rows that pass the filter, once they have been counted.
    renamed : tuple of (str, str)
        Columns that the file has under a former name, and that name.
    """

    file: str
    size: int
    group: int
    first: int
    n_rows: int
    n_bytes: int
    partition: PartitionValues = ()
    kept: int | None = None
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class LakeBatch:
    """Rows of a file, from its row `first` on; of rows that passed a filter, the number of them counts."""

    source: str
    first: int
    rows: pa.RecordBatch


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
        for batch in self._stored(piece, wanted, rows):
            kept = batch if self.where is None else _filtered(batch, self.where)
            if kept.num_rows:
                yield LakeBatch(source, first, kept if len(wanted) == len(columns) else kept.select(list(columns)))
            first += kept.num_rows

    def counted(self, piece: LakePiece) -> int:
        """Return the rows of a piece that pass the filter; reads the columns of the filter."""
        if self.where is None:
            return piece.n_rows
        return sum(batch.rows.num_rows for batch in self.batches(piece, self.filtered[:1], 1 << 16))

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
                    read_dictionary=[there for name, there in stored.items() if pa.types.is_string(self._kinds[name])],
                    pre_buffer=is_url(piece.file) and not large,
                    buffer_size=_buffer_bytes(len(stored)) if large else 0,
                ) as file,
            ):
                if isinstance(stream, SpannedFile) and not large:
                    stream.expect(_ranges(file.metadata, piece.group, names))
                found = file.iter_batches(rows, row_groups=[piece.group], columns=names, use_threads=False)
                for batch in found if stored else _empty(piece.n_rows, rows):
                    values = dict(zip(batch.schema.names, batch.columns, strict=True))
                    arrays = [
                        _constant(fixed[name], self._kinds[name], batch.num_rows)
                        if name in fixed
                        else _cast(values[stored[name]], self._kinds[name])
                        for name in columns
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise damaged(piece.file, error) from error

    @cached_property
    def _kinds(self) -> dict[str, pa.DataType]:
        return dict(zip(self.schema.names, self.schema.types, strict=True))


def damaged(place: str, error: Exception) -> DataError:
    """Return the error for a file that cannot be read."""
    return DataError(f"{place} cannot be read as Parquet: {error}; make the file again")


def _opened(piece: LakePiece) -> "AbstractContextManager[io.IOBase | pa.NativeFile]":
    """Return the file of a piece; Arrow reads local ones itself, without the lock of the interpreter."""
    return SpannedFile(piece.file, piece.size) if is_url(piece.file) else pa.OSFile(piece.file)


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
