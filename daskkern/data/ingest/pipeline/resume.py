"""The recorded progress of an ingestion, from which the same command continues after a kill."""

import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskkern.data.remote.url_files import SourceFile, UrlFile
from daskkern.data.schema.schema import SOURCE_KEY, ClassLabel
from daskkern.data.storage.store import open_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions.part_record import as_npz
from daskkern.data.transactions.resumable import work_key
from daskkern.errors import StoreError

SECONDS = 10.0
"""Between two records: each may write what is in the buffers, one chunk."""

_VERSION = 1


@dataclass(frozen=True)
class ResumedIngest:
    """Rows of the source that are in the store, and the labels by code that they have."""

    n_rows: int
    labels: tuple[ClassLabel, ...]


class IngestCheckpoint:
    """Records the state of a writer, and restores it. Without a resume key it does nothing.

    Parameters
    ----------
    writer : StoreWriter
        An entered writer, to which nothing was appended yet.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self._writer, partial = writer, writer.partial
        self._place = None if partial is None else partial.record
        self._found = partial is not None and partial.found
        self._last = time.monotonic()

    def take_up(self) -> ResumedIngest | None:
        """Return the progress of an earlier process, after restoring the writer; None when there is none."""
        record = self._place.read() if self._place is not None and self._found else None
        if record is None:
            return None
        with np.load(io.BytesIO(record), allow_pickle=False) as file:
            state = {name: file[name] for name in file.files}
        if "kept" not in state:  # the record of another way of writing
            return None
        kept = json.loads(str(state.pop("kept")))
        self._writer.restore(state)
        return ResumedIngest(int(kept["n_rows"]), tuple(kept["labels"]))

    def keep(self, n_rows: int, labels: Sequence[ClassLabel]) -> None:
        """Record the state, unless that was done a few seconds ago."""
        if self._place is None or time.monotonic() - self._last < SECONDS:
            return
        kept = json.dumps({"n_rows": n_rows, "labels": list(labels)})
        self._place.write(as_npz({**self._writer.state(), "kept": np.array(kept)}))
        self._last = time.monotonic()

    def forget(self) -> None:
        """Remove the record: the next steps change rows that are already written."""
        if self._place is not None:
            self._place.remove()


def parts_key(source_key: str | None, shuffle: bool | None) -> str | None:
    """Return the key of rows that are written part by part: another one where they keep their order on request."""
    return None if source_key is None else work_key([source_key, "parts", *(["in order"] if shuffle is False else [])])


def is_written(place: Path | str, key: str | None) -> bool:
    """Return whether there is a complete store in a folder or at a URL, from these sources with these settings."""
    if key is None or (isinstance(place, Path) and not place.is_dir()):
        return False
    try:
        return open_store(place).group.attrs.get(SOURCE_KEY) == key
    except StoreError:
        return False


def key_of(files: Sequence[SourceFile], settings: Mapping[str, object]) -> str:
    """Return the identity of an ingestion: its sources, with size and modification time, and its settings."""
    return work_key({"version": _VERSION, "sources": [_stamp(path) for path in files], "settings": dict(settings)})


def _stamp(path: SourceFile) -> list[object]:
    """Return the absolute name of a file, its size and modification time; for a folder, those of all its files."""
    if isinstance(path, UrlFile):
        return [path.found.place, path.found.size, path.found.stamp]
    absolute = os.path.abspath(path)
    if not path.is_dir():
        status = path.stat()
        return [absolute, status.st_size, status.st_mtime_ns]
    inside = (Path(folder) / name for folder, _, names in os.walk(absolute) for name in names)
    return [absolute, *sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in inside)]
