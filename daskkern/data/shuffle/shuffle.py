"""Shuffling a store on disk: a new store with the same rows in a uniformly random order."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from daskkern.data.remote.stores import is_url
from daskkern.data.schema.provenance import Provenance, recorded
from daskkern.data.schema.schema import FORMAT
from daskkern.data.shuffle.buckets import DEFAULT_MEMORY, Buckets
from daskkern.data.shuffle.reordered import ReorderedWriter
from daskkern.data.storage.raw_rows import StoredRows
from daskkern.data.storage.store import Store, StoreLocation, open_store
from daskkern.data.transactions.atomic import atomic_group, check_destination
from daskkern.data.transactions.work_folder import check_room, put_in_place, work_folder
from daskkern.errors import MemoryBudgetError, SpecError

Progress: TypeAlias = Callable[[int, int], None]

_LEAST_CHUNKS = 4  # read, sorted, gathered for writing, and inside Zarr


def shuffle_store(
    source: StoreLocation,
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Store:
    """Write the rows of a store in a random order to a new one, in bounded memory.

    Every order is equally likely. It depends only on the seed and the number of rows. In addition to the new
    store, the rows take their size once more in temporary files in the folder of `out`, or for a URL in ``TMPDIR``.

    Parameters
    ----------
    source : str, path or zarr.Group
        As :func:`daskkern.data.storage.store.open_store` takes it; not modified.
    out : path or URL
        The store to write. With `overwrite` it may be the source itself.
    seed : int
        Seed of the order, 0 or more.
    memory : int
        Bytes to hold at most.
    overwrite : bool
        Replace an existing store.
    progress : callable, optional
        Called with the rows moved and the rows to move; each row counts twice.

    Raises
    ------
    StoreError
        When the source cannot be read, `out` is taken, or the disk has too little space.
    MemoryBudgetError
        When `memory` is too small for a few chunks.
    SpecError
        For a negative seed.
    """
    check_seed(seed)
    store = open_store(source)
    out = os.fspath(out)
    check_destination(out, kind=FORMAT, overwrite=overwrite)
    rows = StoredRows(store)
    n, total = store.info.n_rows, 2 * store.info.n_rows
    with work_folder(out) as work:
        buckets = buckets_for(rows, work / "buckets", seed, memory)
        for start, block in rows.blocks(buckets.load_bytes):
            buckets.append(block)
            _report(progress, start + block.n_rows, total)
        place = out if is_url(out) else work / "store"
        with atomic_group(place, kind=FORMAT, overwrite=overwrite) as group:
            writer, done = ReorderedWriter(group, store), n
            for block in buckets.blocks():
                writer.append(block)
                done += block.n_rows
                _report(progress, done, total)
            writer.complete(shuffled_provenance(store, seed))
        if place is not out:
            put_in_place(work / "store", out, overwrite=overwrite)
    return open_store(out)


def buckets_for(rows: StoredRows, folder: Path, seed: int, memory: int) -> Buckets:
    """Return empty buckets in the new `folder` for these rows, when memory and disk allow the shuffle."""
    check_budget(rows, memory)
    check_room(folder.parent, rows.info.n_rows * (rows.row_bytes + 8), "the shuffle")
    return Buckets(folder, rows.info.n_rows * rows.row_bytes, seed, memory)


def check_seed(seed: int) -> None:
    """Raise SpecError for a negative seed."""
    if seed < 0:
        raise SpecError(f"got seed {seed} for a shuffle; expected 0 or more")


def check_budget(rows: StoredRows, memory: int, n_threads: int = 1) -> None:
    """Raise MemoryBudgetError unless `memory` holds the chunks that a shuffle of these rows works on in each thread."""
    if memory < least_bytes(rows) * n_threads:
        each = "" if n_threads == 1 else f" by each of the {n_threads} threads of a worker"
        raise MemoryBudgetError(
            f"got {memory / 1e6:.3g} MB of memory for a shuffle, but a chunk of rows has "
            f"{least_bytes(rows) / _LEAST_CHUNKS / 1e6:.3g} MB and {_LEAST_CHUNKS} of them are needed{each}; give more "
            "memory, or ingest with fewer --chunk-rows"
        )


def least_bytes(rows: StoredRows) -> int:
    """Return the least memory that a shuffle of these rows needs in a thread."""
    return _LEAST_CHUNKS * rows.info.chunk_rows * rows.row_bytes


def shuffled_provenance(store: Store, seed: int) -> Provenance:
    """Return the provenance of a store that has the rows of `store` in the order of `seed`."""
    return {**recorded(store.group), "shuffled with seed": seed}


def _report(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
