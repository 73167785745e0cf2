"""Tables from Arrow files (also called Feather, version 2), Arrow streams and ORC files, a batch of rows at a time."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.orc

from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.data.remote.url_files import SourceFile, open_bytes
from daskkern.errors import DataError, StoreError

_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"


def open_arrow(paths: Sequence[SourceFile], request: Request) -> Parts:
    """Return the rows of ``.arrow``, ``.feather`` or ``.arrows`` files: the file format, or a stream."""
    return open_typed([_open(path) for path in paths], request)


def _open(path: SourceFile) -> TypedFile:
    with open_bytes(path) as stream:
        magic = stream.read(len(_MAGIC))
    if magic.startswith(_FEATHER_1):
        raise DataError(f"{path} is a Feather file of version 1; write it again with pyarrow.feather.write_feather")
    is_file = magic == _MAGIC
    try:
        with _opened(path) as source:
            reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
            schema = reader.schema
            sizes = _sizes(source, schema) if is_file else []
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error

    starts = tuple(accumulate(sizes, initial=0))

    def batches(names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        first = max(0, bisect_right(starts[:-1], start) - 1)
        try:
            with _opened(path) as source:
                found = _batches(source, first) if is_file else pa.ipc.open_stream(source)
                for batch in after(found, start - starts[first]):
                    chosen = batch.select(list(names))
                    for at in range(0, batch.num_rows, rows):
                        yield chosen.slice(at, rows)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from error

    return (
        TypedFile(path, starts[-1], schema, batches, starts[:-1] or (0,))
        if is_file
        else TypedFile(path, None, schema, batches)
    )


def _opened(path: SourceFile) -> pa.NativeFile:
    return pa.memory_map(str(path)) if isinstance(path, Path) else pa.PythonFile(open_bytes(path), "r")


def _sizes(source: pa.NativeFile, schema: pa.Schema) -> list[int]:
    """Return the rows of each batch; one column of it is decoded."""
    options = pa.ipc.IpcReadOptions(included_fields=[0] if schema.names else [])
    reader = pa.ipc.open_file(source, options=options)
    return [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]


def _batches(source: pa.NativeFile, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file from number `first` on."""
    reader = pa.ipc.open_file(source)
    for number in range(first, reader.num_record_batches):
        yield reader.get_batch(number)


def _damaged(path: SourceFile, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read as an Arrow file or stream: {error}; make the file again")


def open_orc(paths: Sequence[SourceFile], request: Request) -> Parts:
    """Return the rows of ``.orc`` files, columns matched by name.

    Raises
    ------
    DataError
        For files that are damaged, or whose columns differ.
    """
    return open_typed([_typed_orc(path) for path in paths], request)


def _typed_orc(path: SourceFile) -> TypedFile:
    with _opened_orc(path) as source:
        schema = source.schema
        if not schema.names:
            raise DataError(f"{path} has no columns; write it again")
        # No function tells the rows of a stripe; one column has as many.
        sizes = [source.read_stripe(number, [schema.names[0]]).num_rows for number in range(source.nstripes)]
    starts = tuple(accumulate(sizes, initial=0))
    stripes = _Stripes(path, starts)
    return TypedFile(path, starts[-1], schema, stripes.batches, starts[:-1] or (0,))


@dataclass(frozen=True)
class _Stripes:
    """The stripes of a file: the first rows of each, and the number of all rows."""

    path: SourceFile
    starts: tuple[int, ...]

    def batches(self, names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        """Yield columns from row `start` on, `rows` rows at a time."""
        with _opened_orc(self.path) as source:
            for number, stop in enumerate(self.starts[1:]):
                if start >= stop:
                    continue
                batch = source.read_stripe(number, list(names)).select(list(names))
                for at in range(max(0, start - self.starts[number]), batch.num_rows, rows):
                    yield batch.slice(at, rows)


@contextmanager
def _opened_orc(path: SourceFile) -> Iterator[pyarrow.orc.ORCFile]:
    """Yield an open file; errors of Arrow become a sentence."""
    try:
        with _opened(path) as source:
            yield pyarrow.orc.ORCFile(source)
    except (pa.ArrowException, OSError) as error:
        ours = re.search(r"daskkern\.errors\.StoreError: (.*)", str(error))  # within a traceback, in Arrow's words
        if ours is not None:
            raise StoreError(ours[1]) from error
        raise DataError(f"{path} cannot be read as an ORC file: {error}; make the file again") from error
