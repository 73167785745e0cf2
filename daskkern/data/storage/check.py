"""Integrity check of a store: every chunk is read and compared with the checksums recorded on writing."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import StorePath

from daskkern.arrays import HostArray
from daskkern.backend.machine_code.crc32 import crc32
from daskkern.data.storage.check_contents import StoreFinding, contradictions
from daskkern.data.storage.checksums import combine
from daskkern.data.storage.recorded_checksums import (
    RECORDS,
    Records,
    attribute_sum,
    metadata_sum,
    read_records,
    records_sum,
)
from daskkern.data.storage.sizes import ZarrArray
from daskkern.data.storage.store import Store, StoreLocation, open_store
from daskkern.errors import StoreError

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True)
class CheckReport:
    """The result of :func:`check_store`."""

    path: str
    n_chunks: int
    n_bytes: int
    seconds: float
    findings: tuple[StoreFinding, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.findings


def check_store(source: StoreLocation, *, progress: Progress | None = None) -> CheckReport:
    """Read everything in a store and report all errors.

    Attributes and array metadata are compared with the checksums recorded on writing. Every chunk must be there,
    decode, and have its checksum. When all bytes are intact, their contents must be valid, too: finite features,
    known class codes, weights of 0 or more, CSR rows, the recorded class counts and statistics.

    Parameters
    ----------
    source : str, path or zarr.Group
        As :func:`daskkern.data.storage.store.open_store` takes it.
    progress : callable, optional
        Called with the number of chunks read and the number of all chunks.

    Raises
    ------
    StoreError
        When `source` is not a store, or too damaged to be opened.

    Notes
    -----
    Holds one chunk, and a checksum of 4 bytes for each chunk.
    """
    begun = time.perf_counter()
    store = open_store(source, chunks_present=False)
    records = read_records(store.group)
    findings = list(changed_keys(store, records))
    total = sum(store.array(name).nchunks for name in store.array_names())
    n_chunks = n_bytes = 0
    for name in store.array_names():
        reader = ArrayCheck(store, name, records)
        for size in reader.run(0, row_chunks(store.array(name))):
            n_chunks, n_bytes = n_chunks + 1, n_bytes + size
            if progress is not None:
                progress(n_chunks, total)
        findings += reader.findings or changed_array(store, name, reader.total)
    if not findings:
        findings += contradictions(store)
    return CheckReport(store.path, n_chunks, n_bytes, time.perf_counter() - begun, tuple(findings))


def changed_keys(store: Store, records: Records | None) -> Iterator[StoreFinding]:
    attributes = store.group.attrs.asdict()
    if records is None:
        if "records" in attributes:
            yield StoreFinding(RECORDS, f"the checksums of the chunks ({RECORDS!r}) are missing; copy the store again")
        return
    if attributes.get("records") != records_sum(store.group, store.array_names()):
        yield StoreFinding(RECORDS, f"the recorded checksums ({RECORDS!r}) were changed; copy the store again")
    for key, expected in records.attributes.items():
        if key not in attributes or attribute_sum(attributes[key]) != expected:
            yield StoreFinding(key, f"attribute {key!r} was changed after it was written; copy the store again")
    for name, expected in records.metadata.items():
        if metadata_sum(store.group, name) != expected:
            key = f"{name}/zarr.json"
            yield StoreFinding(key, f"the metadata {key} were changed after they were written; copy the store again")
    for name in set(store.array_names()) - set(records.chunks):
        yield StoreFinding(f"{RECORDS}/{name}", f"the checksums {RECORDS}/{name} are missing; copy the store again")


def changed_array(store: Store, name: str, total: int) -> list[StoreFinding]:
    """Return that an array is not what was written, unless the checksum of all its chunks is `total`."""
    what = f"array {name} is not what was written: its checksum differs; copy the store again or ingest the data again"
    return [] if total == store.info.checksums.get(name) else [StoreFinding(name, what)]


def row_chunks(array: ZarrArray) -> int:
    """Return the number of chunks along the rows."""
    return -(-array.shape[0] // array.chunks[0])


class ArrayCheck:
    """Reads one array chunk by chunk and collects errors in `findings`; `total` is the CRC-32 of what it has read."""

    def __init__(self, store: Store, name: str, records: Records | None) -> None:
        self.findings: list[StoreFinding] = []
        self._array: ZarrArray = store.array(name)
        self._name = name
        self._sums = None if records is None else records.chunks.get(name)
        self.total = 0

    def run(self, first: int, stop: int) -> Iterator[int]:
        """Yield the bytes of each chunk that was read, from chunk `first` of the rows to `stop`."""
        rows = self._array.chunks[0]
        for number in range(first, stop):
            key = self._key(number)
            values = self._read(key, number * rows, rows)
            if values is None:
                continue
            crc = crc32(values)
            self.total = combine(self.total, crc, values.nbytes)
            if self._sums is not None and (number >= len(self._sums) or crc != int(self._sums[number])):
                self._find(key, "was changed after it was written: its checksum differs")
            yield values.nbytes

    def _read(self, key: str, start: int, rows: int) -> HostArray | None:
        try:
            place = self._array.store_path / key.removeprefix(f"{self._name}/")
            if not sync(place.exists()):
                self._find(key, "is missing")
                return None
            values = np.ascontiguousarray(self._array[start : start + rows])
            if len(values) < rows and not self._is_padded(place, values.nbytes):
                self._find(key, "was changed after it was written: the padding after its last row is not 0")
                return None
            return values
        except StoreError:  # the location cannot be reached; the chunk may be intact
            raise
        except Exception as error:  # codecs and stores have error types of their own
            self._find(key, f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())})")
            return None

    def _is_padded(self, place: StorePath, used: int) -> bool:
        """Return whether the last chunk, where it is stored uncompressed, ends in zeros."""
        metadata: Any = self._array.metadata
        if len(metadata.codecs) > 1:
            return True
        stored = sync(place.get(default_buffer_prototype()))
        return stored is not None and not any(stored.to_bytes()[used:])

    def _key(self, number: int) -> str:
        metadata: Any = self._array.metadata
        return f"{self._name}/{metadata.encode_chunk_key((number, *[0] * (self._array.ndim - 1)))}"

    def _find(self, key: str, what: str) -> None:
        self.findings.append(StoreFinding(key, f"chunk {key} {what}; copy the store again or ingest the data again"))
