"""Splits of a store by the workers of a cluster, or by this process: tasks write whole chunks of all parts.

A task has a range of rows. It writes the chunks of every part that begin in it, and reads on to where the last of them
ends. So no two tasks write to one chunk, and the stores are those of one pass over the rows, whatever the number of
workers. Finished tasks are recorded in each store, so that the same command continues after a kill.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from distributed import Client

from daskkern.arrays import IntArray
from daskkern.data.ingest.pipeline.parallel import n_parts_of, part_bounds
from daskkern.data.ingest.pipeline.split import TEST, TRAIN, VALIDATION, SplitSettings
from daskkern.data.ingest.pipeline.split_and_shuffle import check_trained, split_of, strata_of
from daskkern.data.ingest.pipeline.stream import Progress
from daskkern.data.remote.stores import is_url, open_zarr
from daskkern.data.rows.rows import Fields
from daskkern.data.shuffle.cancellable_tasks import check_wanted, run_tasks, want_again
from daskkern.data.storage.csr_store import State
from daskkern.data.storage.raw_rows import StoredBlock, StoredRows
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.transactions.part_record import PartRecord, PartResult

_BLOCK_BYTES = 16 << 20  # of rows that a task reads at once


@dataclass(frozen=True)
class ChunksOfPart:
    """The chunks of one part that a task writes to `place`: `rows` rows, the first of which is row `first` there.

    The task has `skip` rows of the part before; they belong to a chunk of another task.
    """

    part: int
    place: str
    skip: int
    first: int
    rows: int


@dataclass(frozen=True, eq=False)
class SplitJob:
    """A task: chunks of the parts of the store `staged`, whose rows are from row `start` on.

    `passed` is where the split is then. The task checks at `watched` whether its work is still wanted.
    """

    staged: str
    split: SplitSettings
    start: int
    passed: IntArray = field(repr=False)
    chunk_rows: int
    shares: tuple[ChunksOfPart, ...]
    watched: str


def split_store(
    client: Client | None,
    staged: str,
    split: SplitSettings,
    writers: Mapping[int, SharedWriter],
    progress: Progress,
) -> None:
    """Write the rows of a store to the stores of their parts, those in `writers`, which still have to be closed.

    `staged` and all places must be reachable for all workers. What an earlier process finished is not written again.
    """
    store = open_store(staged)
    layout = _SplitLayout.of(store, split, next(iter(writers.values())).chunk_rows)
    records = {part: PartRecord(writer.record_place, layout.bounds) for part, writer in writers.items()}
    results: dict[int, dict[int, PartResult]] = {}
    for part, writer in writers.items():
        results[part] = dict(records[part].take_up()) if writer.found else {}
        if writer.found:
            want_again(_where(writer.place))
        writer.make_room(layout.size(part), has_parts=records[part].found)
    jobs = _jobs(staged, split, layout, writers, results)
    lengths = {number: stop - start for number, (start, stop) in enumerate(layout.bounds)}
    done = layout.n_rows - sum(lengths[number] for number in jobs)
    progress(done, layout.n_rows)
    numbers = list(jobs)

    def receive(at: int, states: Mapping[int, State]) -> None:
        nonlocal done
        for part, state in states.items():
            results[part][numbers[at]] = (state, ())
            records[part].keep(numbers[at], (state, ()))
        done += lengths[numbers[at]]
        progress(done, layout.n_rows)

    watched = next(iter(writers.values())).place
    run_tasks(client, _write, list(jobs.values()), _where(watched), received=receive)
    for part, writer in writers.items():
        records[part].save()
        for number, (_, _, rows) in enumerate(layout.shares(part)):
            if rows:
                writer.join_part(results[part][number][0], rows, None)


@dataclass(frozen=True, eq=False)
class _SplitLayout:
    """Where the rows of a store go.

    Attributes
    ----------
    bounds : tuple of (int, int)
        The rows of each task.
    passed : tuple of array of int
        Where the split is at the beginning of each task.
    before : array of int (tasks + 1, 3)
        The rows of TRAIN, TEST and VALIDATION before each task, and all of them.
    chunk_rows : int
        Of the new stores.
    """

    bounds: tuple[tuple[int, int], ...]
    passed: tuple[IntArray, ...]
    before: IntArray
    chunk_rows: int

    @classmethod
    def of(cls, store: Store, settings: SplitSettings, chunk_rows: int) -> "_SplitLayout":
        """Return the layout of a store, in one pass over its targets. DataError if a class has no training rows."""
        info, rows = store.info, StoreRows(store)
        n_parts = n_parts_of(info.n_rows * StoredRows(store).row_bytes)
        bounds = part_bounds(info.n_rows, info.chunk_rows, None, n_parts)
        split, counts, passed = split_of(info, settings), [np.zeros(3, np.int64)], []
        trained = np.zeros(len(info.classes or ()), np.int64)
        for start, stop in bounds:
            codes = rows.read(start, stop, Fields.y).y if info.classes is not None else None
            passed.append(split.passed())
            parts = split.assign(strata_of(info, settings, stop - start, codes))
            counts.append(np.bincount(parts, minlength=3))
            if codes is not None:
                trained += np.bincount(codes[parts == TRAIN], minlength=len(trained))
        check_trained(info.classes or (), trained)
        return cls(tuple(bounds), tuple(passed), np.cumsum(counts, axis=0), chunk_rows)

    @property
    def n_rows(self) -> int:
        return self.bounds[-1][1]

    def size(self, part: int) -> int:
        """Return the rows of a part."""
        return int(self.before[-1, part])

    def shares(self, part: int) -> list[tuple[int, int, int]]:
        """Return for each task the rows of a part to skip, where its chunks begin in the store, and their rows."""
        before, size = self.before[:, part], self.size(part)
        edges = np.minimum(-(-before // self.chunk_rows) * self.chunk_rows, size)
        return [
            (int(first - start), int(first), int(last - first))
            for start, first, last in zip(before[:-1], edges[:-1], edges[1:], strict=True)
        ]


def _jobs(
    staged: str,
    split: SplitSettings,
    layout: _SplitLayout,
    writers: Mapping[int, SharedWriter],
    results: Mapping[int, Mapping[int, PartResult]],
) -> dict[int, SplitJob]:
    """Return the tasks that are left to do, by number."""
    shares = {part: layout.shares(part) for part in (TRAIN, TEST, VALIDATION) if part in writers}
    watched, jobs = next(iter(writers.values())).place, {}
    for number, (start, _) in enumerate(layout.bounds):
        wanted = tuple(
            ChunksOfPart(part, writers[part].place, *of_tasks[number])
            for part, of_tasks in shares.items()
            if of_tasks[number][2] and number not in results[part]
        )
        if wanted:
            jobs[number] = SplitJob(staged, split, start, layout.passed[number], layout.chunk_rows, wanted, watched)
    return jobs


def _where(place: str) -> Path | str:
    return place if is_url(place) else Path(place)


def _write(job: SplitJob) -> dict[int, State]:
    """Write the chunks of a task; return the states of the writers by part."""
    store = open_store(job.staged, chunks_present=False)
    rows, info = StoredRows(store), store.info
    split = split_of(info, job.split)
    split.continue_at(job.passed)
    open_shares = [_OpenChunks(share, _writer(rows, job, share)) for share in job.shares]
    step = info.chunk_rows * max(1, _BLOCK_BYTES // (info.chunk_rows * rows.row_bytes))
    for start in range(job.start, info.n_rows, step):
        check_wanted(_where(job.watched))
        block = rows.read(start, min(start + step, info.n_rows))
        parts = split.assign(strata_of(info, job.split, block.n_rows, block.y))
        for share in open_shares:
            share.take(block, np.flatnonzero(parts == share.part))
        if all(share.is_full for share in open_shares):
            break
    return {share.part: share.writer.leave_part() for share in open_shares}


def _writer(rows: StoredRows, job: SplitJob, share: ChunksOfPart) -> SharedWriter:
    info = rows.info
    writer = SharedWriter(
        share.place,
        n_features=info.n_features,
        dtype=rows.dtype,
        task=info.task,
        n_targets=info.n_targets,
        has_weight=info.has_weight,
        chunk_rows=job.chunk_rows,
    )
    writer.write_part(open_zarr(share.place, mode="r+"), share.first)
    return writer


class _OpenChunks:
    """A share that is being written."""

    def __init__(self, share: ChunksOfPart, writer: SharedWriter) -> None:
        self.part, self.writer = share.part, writer
        self._skip, self._rows = share.skip, share.rows

    @property
    def is_full(self) -> bool:
        return self._rows == 0

    def take(self, block: StoredBlock, positions: IntArray) -> None:
        """Append those of some rows of the part that belong to the share."""
        skipped = min(self._skip, len(positions))
        kept: Sequence[int] | IntArray = positions[skipped : skipped + self._rows]
        self._skip -= skipped
        self._rows -= len(kept)
        if len(kept):
            found = block.take(kept)
            self.writer.append(found.X, found.y, found.weight)
