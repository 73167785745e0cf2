"""Footers of Parquet files that were parsed when a lake was opened, kept for passes over its rows in this process."""

import threading
from typing import Any

import pyarrow.parquet as pq

from daskkern.data.lake.lake_piece import LakePiece
from daskkern.data.remote.files import FoundFile, file_at
from daskkern.data.remote.stores import is_url

_MOST_BYTES = 8 << 20
"""Of footers as they are in the files; parsed, they have several times as many."""


class ParsedFooters:
    """The footers of the first files of a lake, as many as have 8 MiB in their files.

    The footer of a wide table takes as long to parse as some of its columns to decode. Threads may use one object at
    once. Sent to another process, it becomes None.

    Parameters
    ----------
    most_bytes : int
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._left, self._lock = most_bytes, threading.Lock()
        self._known: dict[str, tuple[FoundFile, pq.FileMetaData]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def keep(self, file: FoundFile, metadata: pq.FileMetaData) -> None:
        """Keep the footer of a file, if there is room."""
        size = metadata.serialized_size
        with self._lock:
            if size <= self._left and file.place not in self._known:
                self._left -= size
                self._known[file.place] = file, metadata

    def of(self, piece: LakePiece) -> pq.FileMetaData | None:
        """Return the footer of the file of a row group; None of others, and of a file that was written again.

        Asks for the state of the file, which is one request at a URL: with a footer of other contents, values of one
        column could be taken for those of another. A server that tells no versions apart gets no such request.
        """
        file, metadata = self._known.get(piece.file, (None, None))
        if file is None or (is_url(piece.file) and not file.stamp) or file_at(piece.file) != file:
            return None
        return metadata
