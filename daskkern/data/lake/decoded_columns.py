"""Columns that a first pass over a lake has decoded, kept on the disk for the next one."""

import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from daskkern.data.lake.lake_piece import LakeBatch, LakePiece
from daskkern.data.remote.disk_cache import MOST_BYTES, FileBlocks
from daskkern.data.remote.file_systems import is_in_memory

_MEMORY_BYTES = 48 << 20


class DecodedColumns:
    """Some columns of row groups: up to 48 MiB in memory, then in a temporary file without a name.

    The file has up to 4 GiB and half of the free space.

    Row groups that find no room are decoded again. So are all where temporary files are in memory, and in another
    process: sent to it, this becomes None.
    Threads may keep and read different row groups at once.

    Parameters
    ----------
    most_bytes : int
        Most bytes of the file.
    memory_bytes : int
        Most bytes in memory.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, memory_bytes: int = _MEMORY_BYTES) -> None:
        if is_in_memory(tempfile.gettempdir()):
            most_bytes = 0
        self._blocks = FileBlocks(most_bytes)
        self._batches: dict[tuple[str, int], int] = {}
        self._held: dict[tuple[str, int, int], pa.RecordBatch] = {}
        self._memory, self._lock = memory_bytes, threading.Lock()
        self._names: frozenset[str] = frozenset()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def keep(self, piece: LakePiece, batches: Iterable[LakeBatch]) -> Iterator[LakeBatch]:
        """Yield the batches of a whole piece, and keep them where they have the columns of the first one kept."""
        place, n_kept, has_room = (piece.file, piece.group), 0, True
        for batch in batches:
            names = frozenset(batch.rows.schema.names)
            self._names = self._names or names
            has_room = has_room and names == self._names  # not where a second pass examines other columns
            if has_room and place not in self._batches:
                has_room = self._put(place, n_kept, batch.rows)
                n_kept += 1
            yield batch
        if has_room and n_kept:
            self._batches[place] = n_kept

    def rows_of(self, piece: LakePiece, columns: Sequence[str]) -> "DecodedRows | None":
        """Return the rows of a piece that was kept; None of others, and where none of `columns` was kept."""
        n_kept = self._batches.get((piece.file, piece.group))
        if n_kept is None or self._names.isdisjoint(columns):
            return None
        return DecodedRows(self._names, (self._read(piece, number) for number in range(n_kept)))

    def _put(self, place: tuple[str, int], number: int, rows: pa.RecordBatch) -> bool:
        """Keep a batch, and return whether there was room."""
        size = rows.nbytes
        with self._lock:
            is_held = size <= self._memory
            self._memory -= size * is_held
        if is_held:
            self._held[*place, number] = rows
        return is_held or self._blocks.put("\0".join(map(str, place)), number, _written(rows))

    def _read(self, piece: LakePiece, number: int) -> pa.RecordBatch:
        held = self._held.get((piece.file, piece.group, number))
        if held is not None:
            return held
        found = self._blocks.get(f"{piece.file}\0{piece.group}", number)
        assert found is not None
        with pa.ipc.open_stream(pa.py_buffer(found)) as stream:
            return stream.read_next_batch()


class DecodedRows:
    """Kept rows of a piece, from the first on.

    Attributes
    ----------
    names : frozenset of str
        Their columns.
    """

    def __init__(self, names: frozenset[str], batches: Iterator[pa.RecordBatch]) -> None:
        self.names = names
        self._batches = batches
        self._left = next(batches)

    def take(self, n_rows: int) -> dict[str, pa.Array]:
        """Return the columns of the next rows, as many as that."""
        parts = []
        while True:
            part = self._left.slice(0, n_rows)
            self._left = self._left.slice(part.num_rows)
            parts.append(part)
            n_rows -= part.num_rows
            if not n_rows:
                break
            self._left = next(self._batches)
        whole = parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        return dict(zip(whole.schema.names, whole.columns, strict=True))


def _written(rows: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return memoryview(sink.getvalue())
