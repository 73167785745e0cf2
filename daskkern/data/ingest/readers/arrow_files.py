"""Tables from Arrow files (also called Feather, version 2) and Arrow streams, a record batch at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.data.remote.url_files import SourceFile, open_bytes
from daskkern.errors import DataError

_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"


def open_arrow(paths: Sequence[SourceFile], request: Request) -> Parts:
    """Return the rows of ``.arrow``, ``.feather`` or ``.arrows`` files: the file format, or a stream."""
    return open_typed([_open(path, request.count) for path in paths], request)


def _open(path: SourceFile, count: bool) -> TypedFile:
    with open_bytes(path) as stream:
        magic = stream.read(len(_MAGIC))
    if magic.startswith(_FEATHER_1):
        raise DataError(f"{path} is a Feather file of version 1; write it again with pyarrow.feather.write_feather")
    is_file = magic == _MAGIC
    try:
        with _opened(path) as source:
            reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
            schema = reader.schema
            n_rows = sum(batch.num_rows for batch in _batches(source, is_file)) if count and is_file else None
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error

    def batches(names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        try:
            with _opened(path) as source:
                for batch in after(_batches(source, is_file), start):
                    chosen = batch.select(list(names))
                    for at in range(0, batch.num_rows, rows):
                        yield chosen.slice(at, rows)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from error

    return TypedFile(path, n_rows, schema, batches)


def _opened(path: SourceFile) -> pa.NativeFile:
    return pa.memory_map(str(path)) if isinstance(path, Path) else pa.PythonFile(open_bytes(path), "r")


def _batches(source: pa.NativeFile, is_file: bool) -> Iterator[pa.RecordBatch]:
    if not is_file:
        yield from pa.ipc.open_stream(source)
        return
    reader = pa.ipc.open_file(source)
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _damaged(path: SourceFile, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read as an Arrow file or stream: {error}; make the file again")
