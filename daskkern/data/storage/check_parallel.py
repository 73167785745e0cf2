"""Integrity check of a store by the workers of a cluster: each reads its own chunks and rows."""

import time
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

from daskkern.arrays import HostArray
from daskkern.data.remote.stores import absolute, is_url
from daskkern.data.shuffle.cancellable_tasks import run_tasks
from daskkern.data.storage.check import ArrayCheck, CheckReport, Progress, changed_array, changed_keys, row_chunks
from daskkern.data.storage.check_contents import RowContents, StoreFinding, wrong_pointers
from daskkern.data.storage.checksums import combine
from daskkern.data.storage.recorded_checksums import read_records
from daskkern.data.storage.store import Store, open_store
from daskkern.errors import StoreError

PART_BYTES = 64 << 20


@dataclass(frozen=True)
class ChunkPart:
    """Chunks of one array, from number `first` to `stop` along the rows."""

    place: str
    name: str
    first: int
    stop: int


@dataclass(frozen=True)
class ChunkSums:
    """What a worker found in chunks: how many and how large they are, their CRC-32 together, and errors."""

    n_chunks: int
    n_bytes: int
    total: int
    findings: tuple[StoreFinding, ...]


@dataclass(frozen=True)
class RowPart:
    """Rows of a store, from `start`, where a chunk begins, to `stop`."""

    place: str
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class RowSums:
    """What a worker found in rows: see :meth:`daskkern.data.storage.check_contents.RowContents.state`."""

    state: tuple[HostArray, ...]
    finding: StoreFinding | None


def check_store_on(
    client: Client, source: str | Path, *, progress: Progress | None = None, part_bytes: int = PART_BYTES
) -> CheckReport:
    """Check a store with the workers of a cluster, which find what :func:`check_store` finds, in the same order.

    Parameters
    ----------
    client : Client
    source : str or path
        A place that all workers can reach.
    progress : callable, optional
        Called with the number of chunks read and the number of all chunks.
    part_bytes : int
        Bytes of a task, about.

    Raises
    ------
    StoreError
        When `source` is not a store, is too damaged to be opened, or a worker cannot reach it.

    Notes
    -----
    A worker holds what :func:`daskkern.data.storage.check.check_store` does.
    """
    begun = time.perf_counter()
    place = absolute(source)
    store = open_store(place, chunks_present=False)
    findings = list(changed_keys(store, read_records(store.group)))
    chunks = [part for name in store.array_names() for part in _chunk_parts(store, place, name, part_bytes)]
    total = sum(store.array(name).nchunks for name in store.array_names())
    n_chunks = n_bytes = 0

    def receive(_: int, sums: ChunkSums) -> None:
        nonlocal n_chunks, n_bytes
        n_chunks, n_bytes = n_chunks + sums.n_chunks, n_bytes + sums.n_bytes
        if progress is not None:
            progress(n_chunks, total)

    found = run_tasks(client, _check_chunks, chunks, received=receive)
    for name in store.array_names():
        findings += _of_array(
            store, name, [sums for part, sums in zip(chunks, found, strict=True) if part.name == name]
        )
    if not findings:
        findings += wrong_pointers(store) or _contradictions(client, store, place, part_bytes)
    return CheckReport(store.path, n_chunks, n_bytes, time.perf_counter() - begun, tuple(findings))


def _chunk_parts(store: Store, place: str, name: str, part_bytes: int) -> list[ChunkPart]:
    array = store.array(name)
    rows, n = array.chunks[0], row_chunks(array)
    step = max(1, part_bytes // max(1, rows * array.nbytes // max(1, array.shape[0])))
    return [ChunkPart(place, name, first, min(first + step, n)) for first in range(0, n, step)]


def _of_array(store: Store, name: str, sums: list[ChunkSums]) -> list[StoreFinding]:
    findings, total = [finding for one in sums for finding in one.findings], 0
    for one in sums:
        total = combine(total, one.total, one.n_bytes)
    return findings or changed_array(store, name, total)


def _contradictions(client: Client, store: Store, place: str, part_bytes: int) -> list[StoreFinding]:
    n, chunk = store.info.n_rows, store.info.chunk_rows
    row_bytes = max(1, sum(store.array(name).nbytes for name in store.array_names()) // n)
    step = chunk * max(1, part_bytes // (chunk * row_bytes))
    parts = [RowPart(place, start, min(start + step, n)) for start in range(0, n, step)]
    contents = RowContents(store)
    for sums in run_tasks(client, _check_rows, parts):
        if sums.finding is not None:
            return [sums.finding]
        contents.add(sums.state)
    return list(contents.compare())


def _check_chunks(part: ChunkPart) -> ChunkSums:
    store = _opened(part.place)
    reader = ArrayCheck(store, part.name, read_records(store.group))
    sizes = list(reader.run(part.first, part.stop))
    return ChunkSums(len(sizes), sum(sizes), reader.total, tuple(reader.findings))


def _check_rows(part: RowPart) -> RowSums:
    contents = RowContents(_opened(part.place))
    finding = contents.read(part.start, part.stop)
    return RowSums(contents.state(), finding)


def _opened(place: str) -> Store:
    if not is_url(place) and not Path(place).exists():
        raise StoreError(
            f"a worker cannot access the store {place}; put it on a file system that all workers share, or at a URL, "
            "or leave out the cluster"
        )
    return open_store(place, chunks_present=False)
