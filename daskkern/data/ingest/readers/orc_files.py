"""Tables from ORC files, a stripe at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, open_typed
from daskkern.data.remote.url_files import SourceFile, open_bytes
from daskkern.errors import DataError

if TYPE_CHECKING:
    from pyarrow import orc


def open_orc(paths: Sequence[SourceFile], request: Request) -> Parts:
    """Return the rows of ``.orc`` files, columns matched by name.

    Raises
    ------
    DataError
        For files that are damaged, or whose columns differ.
    """
    return open_typed([_typed(path) for path in paths], request)


def _typed(path: SourceFile) -> TypedFile:
    with _opened(path) as source:
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
        with _opened(self.path) as source:
            for number, stop in enumerate(self.starts[1:]):
                if start >= stop:
                    continue
                batch = source.read_stripe(number, list(names)).select(list(names))
                for at in range(max(0, start - self.starts[number]), batch.num_rows, rows):
                    yield batch.slice(at, rows)


@contextmanager
def _opened(path: SourceFile) -> "Iterator[orc.ORCFile]":
    """Yield an open file; errors of Arrow become a sentence."""
    try:
        from pyarrow import orc  # which not every build of Arrow has
    except ImportError as error:
        raise DataError(f"{path} cannot be read: this build of pyarrow has no ORC; install that of PyPI") from error
    try:
        with pa.memory_map(str(path)) if isinstance(path, Path) else pa.PythonFile(open_bytes(path), "r") as source:
            yield orc.ORCFile(source)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as an ORC file: {error}; make the file again") from error
