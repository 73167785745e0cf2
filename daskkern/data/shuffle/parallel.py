"""Shuffling a store with the workers of a Dask cluster, all of which can access the places of both stores.

For a URL, and for sparse rows, see :mod:`daskkern.data.shuffle.by_pieces`. Dense rows for a folder: in pass one each
task appends a range of rows to buckets of its own, and in pass two each task writes a range of output chunks; it sorts
the buckets that these rows come from, one at a time. Keys depend on the row numbers alone, so the store is the one that
:func:`daskkern.data.shuffle.shuffle.shuffle_store` writes, whatever the number of workers.
"""

import os
import shutil
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import zarr
from distributed import Client

from daskkern.arrays import HostArray, IntArray
from daskkern.data.remote.stores import absolute, is_url
from daskkern.data.schema.schema import FORMAT, StoreInfo
from daskkern.data.shuffle.buckets import DEFAULT_MEMORY, Buckets, RowFormat, load_bucket
from daskkern.data.shuffle.by_pieces import ShuffleSettings, shuffle_by_pieces
from daskkern.data.shuffle.cancellable_tasks import check_wanted, run_tasks
from daskkern.data.shuffle.reordered import write_attributes
from daskkern.data.shuffle.shuffle import Progress, check_budget, check_seed, least_bytes, shuffled_provenance
from daskkern.data.storage.checksums import Checksum
from daskkern.data.storage.raw_rows import StoredBlock, StoredRows
from daskkern.data.storage.store import Store, open_store
from daskkern.data.transactions.atomic import check_destination
from daskkern.data.transactions.work_folder import check_room, put_in_place, work_folder
from daskkern.errors import StoreError

_TASKS_PER_WORKER = 2


@dataclass(frozen=True)
class _Shuffle:
    """Settings of all tasks: source and destination of the rows, the seed, and the memory of one task."""

    source: str
    work: Path
    seed: int
    memory: int

    @property
    def target(self) -> Path:
        return self.work / "store"

    def folder(self, part: int) -> Path:
        return self.work / f"buckets-{part}"


@dataclass(frozen=True)
class _Scattered:
    """The buckets of one task of pass one: their folder, the rows in each, and the format of the rows."""

    folder: Path
    sizes: IntArray
    form: RowFormat


@dataclass(frozen=True)
class _Part:
    """The task of one worker: its rows of the source in pass one, of the output in pass two."""

    job: _Shuffle
    number: int
    limits: tuple[int, int]
    scattered: tuple[_Scattered, ...] = ()
    """The results of pass one."""


def shuffle_store_on(
    client: Client | None,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    overwrite: bool = False,
    progress: Progress | None = None,
    key: str | None = None,
) -> Store:
    """Write the rows of a store in a random order to a new one, with all workers of a cluster.

    Parameters
    ----------
    client : Client or None
        A client whose workers can access both places. None does the same in this process: to a URL it needs no local
        disk, other than :func:`daskkern.data.shuffle.shuffle.shuffle_store`.
    source, out, seed, overwrite, progress
        As for :func:`daskkern.data.shuffle.shuffle.shuffle_store`.
    memory : int
        Bytes that a worker may hold for a URL and for sparse rows, divided among its threads; for dense rows in a
        folder, those of one task.
    key : str, optional
        At a URL: recorded as that of the sources of the new store.

    Raises
    ------
    StoreError, MemoryBudgetError, SpecError
        As for one process, and when a worker cannot reach the place of `out`. For a folder, its disk needs space for
        the rows twice.

    Notes
    -----
    A URL needs no local disk: see :mod:`daskkern.data.shuffle.by_pieces`.
    """
    check_seed(seed)
    location = absolute(source)
    store = open_store(location)
    rows, n = StoredRows(store), store.info.n_rows
    check_destination(os.fspath(out), kind=FORMAT, overwrite=overwrite)
    report = progress or _silent
    if is_url(out) or store.info.is_sparse:
        threads = _threads(client)
        check_budget(rows, memory, threads)
        settings = ShuffleSettings(location, os.fspath(out), seed, memory // threads, overwrite, key)
        shuffle_by_pieces(client, store, settings, report)
        return open_store(out)
    check_budget(rows, memory)
    with work_folder(out) as work:
        check_room(work, 2 * n * (rows.row_bytes + 8), "the shuffle")
        job = _Shuffle(location, work, seed, memory)
        group = _make_arrays(store, job.target)
        ranges = _chunk_ranges(store.info, _TASKS_PER_WORKER * _workers(client))
        parts = [_Part(job, number, limits) for number, limits in enumerate(ranges)]
        moved = _MovedRows(report, [stop - start for start, stop in ranges], 2 * n)
        scattered = tuple(run_tasks(client, _scatter, parts, work, moved))
        parts = [replace(part, scattered=scattered) for part in parts]
        sums = _sums(store, run_tasks(client, _gather, parts, work, moved))
        write_attributes(group, store, sums, shuffled_provenance(store, seed))
        group.update_attributes({"complete": True})
        put_in_place(job.target, out, overwrite=overwrite)
    return open_store(out)


def least_memory(client: Client | None, store: Store) -> int:
    """Return the least memory of a worker with which these workers shuffle a store by pieces."""
    return least_bytes(StoredRows(store)) * _threads(client)


def _threads(client: Client | None) -> int:
    return 1 if client is None else max(client.nthreads().values(), default=1)


def _workers(client: Client | None) -> int:
    return 1 if client is None else max(1, len(client.nthreads()))


@dataclass
class _MovedRows:
    """Reports the rows that tasks have moved, by the number of each task that ends."""

    progress: Progress
    rows: list[int]
    total: int
    done: int = 0

    def __call__(self, number: int) -> None:
        self.done += self.rows[number]
        self.progress(self.done, self.total)


def _silent(done: int, total: int) -> None:
    del done, total


def _chunk_ranges(info: StoreInfo, n_tasks: int) -> list[tuple[int, int]]:
    """Return about `n_tasks` ranges of rows that begin where chunks do."""
    n_chunks = -(-info.n_rows // info.chunk_rows)
    cuts = np.unique(np.linspace(0, n_chunks, min(n_tasks, n_chunks) + 1).round().astype(int)) * info.chunk_rows
    return [(int(a), min(int(b), info.n_rows)) for a, b in pairwise(cuts)]


def _scatter(part: _Part) -> _Scattered:
    """Pass one: append a range of rows to new buckets."""
    job, limits, folder = part.job, part.limits, part.job.folder(part.number)
    if not job.work.exists():
        raise StoreError(f"a worker cannot reach {job.work}; write to a folder that all workers share")
    check_wanted(job.work)
    shutil.rmtree(folder, ignore_errors=True)  # left by a lost worker
    rows = StoredRows(open_store(job.source))
    n_bytes = rows.info.n_rows * rows.row_bytes
    buckets = Buckets(folder, n_bytes, job.seed, job.memory, first_row=limits[0])
    step = rows.info.chunk_rows * max(1, buckets.load_bytes // (rows.info.chunk_rows * rows.row_bytes))
    for start in range(*limits, step):
        check_wanted(job.work)
        buckets.append(rows.read(start, min(start + step, limits[1])))
    return _Scattered(folder, buckets.sizes(), RowFormat.of(rows.read(0, 1)))


def _gather(part: _Part) -> dict[str, list[HostArray]]:
    """Pass two: write the chunks of a range of rows in the order of the keys; return the CRC-32 of each chunk."""
    job, limits, scattered = part.job, part.limits, part.scattered
    check_wanted(job.work)
    group = zarr.open_group(job.target, mode="r+", zarr_format=3)
    ends = np.cumsum(sum(part.sizes for part in scattered))
    info = open_store(job.source).info
    sums: dict[str, list[HostArray]] = {}
    pending: list[StoredBlock] = []
    start, missing = limits[0], min(info.chunk_rows, limits[1] - limits[0])
    for number in range(int(np.searchsorted(ends, limits[0], side="right")), len(ends)):
        first = int(ends[number - 1]) if number else 0
        if first >= limits[1]:
            break
        rows, order = _sorted_bucket(scattered, number)
        at, stop = max(limits[0] - first, 0), min(limits[1] - first, len(order))
        while at < stop:
            step = min(missing, stop - at)
            check_wanted(job.work)
            pending.append(rows.take(order[at : at + step]))
            at, missing = at + step, missing - step
            if missing == 0:
                start = _write_chunk(group, start, pending, sums)
                pending, missing = [], min(info.chunk_rows, limits[1] - start)
        del rows
    return sums


def _sorted_bucket(scattered: tuple[_Scattered, ...], number: int) -> tuple[StoredBlock, IntArray]:
    """Return the rows of one bucket from all parts, and the order of their keys."""
    loaded = [load_bucket(part.folder, number, part.form) for part in scattered if part.sizes[number]]
    keys = np.concatenate([keys for keys, _ in loaded])
    return _join([rows for _, rows in loaded]), np.argsort(keys, kind="stable")


def _write_chunk(group: zarr.Group, start: int, blocks: list[StoredBlock], sums: dict[str, list[HostArray]]) -> int:
    rows = _join(blocks)
    stop = start + rows.n_rows
    for name, values in (("X", rows.X), ("y", rows.y), ("weight", rows.weight)):
        if values is not None:
            array = group[name]
            assert isinstance(array, zarr.Array)
            array.with_config({"write_empty_chunks": True})[start:stop] = values
            sums.setdefault(name, []).append(np.array([zlib.crc32(np.ascontiguousarray(values).data), values.nbytes]))
    return stop


def _join(blocks: list[StoredBlock]) -> StoredBlock:
    if len(blocks) == 1:
        return blocks[0]
    y = [block.y for block in blocks if block.y is not None]
    weight = [block.weight for block in blocks if block.weight is not None]
    X = np.concatenate([block.X for block in blocks])
    return StoredBlock(X, np.concatenate(y) if y else None, np.concatenate(weight) if weight else None)


def _make_arrays(store: Store, path: Path) -> zarr.Group:
    group = zarr.open_group(store=path, mode="w-", zarr_format=3, attributes={"format": FORMAT, "complete": False})
    for name in store.array_names():
        like = store.array(name)
        group.create_array(name, shape=like.shape, chunks=like.chunks, dtype=like.dtype, compressors=None, fill_value=0)
    return group


def _sums(store: Store, written: list[dict[str, list[HostArray]]]) -> dict[str, Checksum]:
    """Return the checksums of all chunks, from those of the parts in order."""
    sums = {name: Checksum() for name in store.array_names()}
    for part in written:
        for name, chunks in part.items():
            for crc, size in chunks:
                sums[name].add_sum(int(crc), int(size))
    return sums
