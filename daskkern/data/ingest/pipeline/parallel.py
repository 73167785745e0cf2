"""Ingestion by the workers of a cluster: each writes its own chunks of the store, from its own rows of the source.

Parts begin where a chunk begins, so no two workers write to one chunk, and a part that is written twice because
a worker was lost is the same both times. Labels are coded by their order in each part; when all are known, the codes
of every part are replaced, which touches only ``y``. The place is a folder that the workers share, or a URL. Finished
parts are recorded, so that the same command continues after a kill.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from distributed import Client

from daskkern.backend.allocator import ReusedMemory
from daskkern.data.ingest.columns.labels import AUTO_LIMIT, KnownLabels, LabelCoder
from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.pipeline.stream import LabelEncoder, Progress, check_classes, checked_blocks
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.remote.stores import is_url, open_zarr
from daskkern.data.schema.schema import ClassLabel
from daskkern.data.shuffle.cancellable_tasks import check_wanted, run_tasks, want_again
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.transactions.part_record import PartRecord, PartResult
from daskkern.errors import DataError, SpecError, StoreError

Job = TypeVar("Job")
Result = TypeVar("Result")

_CHECK_SECONDS = 2.0  # between two looks whether the work is still wanted
_PARTS, LEAST_BYTES, _MOST_BYTES = 32, 16 << 20, 128 << 20
"""Parts of a store, as long as one has this size at least and at most: their number depends on the rows alone, so that
statistics are merged in the same order by any number of workers, and a kill costs a worker seconds."""

_RECODED_TOGETHER = 16  # parts whose class codes are replaced between two records

_MEMORY = ReusedMemory(kept=32 << 20, largest=16 << 20)
"""For the arrays of a batch, which would otherwise be returned to the system and mapped again: glibc's own thresholds,
where Dask leaves them alone, grow to as much."""


@dataclass(frozen=True)
class Part:
    """The task of a worker that writes the rows from `start` to `stop`, the next ones of `table`, to a place."""

    table: Table
    decision: Decision
    classes: tuple[ClassLabel, ...] | None
    place: str
    chunk_rows: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class JobsOnWorkers:
    """Runs jobs that write nothing on the workers of a cluster."""

    client: Client

    def __call__(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        return run_tasks(self.client, function, jobs)


def check_parallel(table: Table) -> None:
    """Raise SpecError unless the rows of `table` can be distributed to workers before they are read."""
    if table.is_sparse or table.n_rows is None:
        what = "they are sparse" if table.is_sparse else "their number is unknown"
        raise SpecError(
            f"got a cluster to ingest the rows of {table.source}, but {what}, so workers cannot know where to write; "
            "leave out the cluster"
        )


def ingest_parts(
    client: Client | None,
    writer: SharedWriter,
    table: Table,
    decision: Decision,
    classes: tuple[ClassLabel, ...] | None,
    progress: Progress,
) -> None:
    """Write all rows part by part, with the workers of `client` or in this process; the writer still has to be closed.

    The source and the place of the store must be reachable for all workers. Parts that an earlier process finished
    are not written again.
    """
    check_parallel(table)
    assert table.n_rows is not None
    if table.n_rows == 0:
        raise DataError(f"{table.source} has no rows; at least one is needed")
    row_bytes = table.n_features * table.dtype.itemsize
    bounds = part_bounds(table.n_rows, writer.chunk_rows, table.starts, n_parts_of(table.n_rows * row_bytes))
    record = PartRecord(writer.record_place, bounds)
    place = writer.place if is_url(writer.place) else Path(writer.place)
    if writer.found:
        want_again(place)
    results = dict(record.take_up()) if writer.found else {}
    writer.make_room(table.n_rows, has_parts=record.found)
    todo = [number for number in range(len(bounds)) if number not in results]
    written = sum(bounds[number][1] - bounds[number][0] for number in results)
    progress(written, table.n_rows)

    def receive(at: int, result: PartResult) -> None:
        nonlocal written
        number = todo[at]
        results[number] = result
        record.keep(number, result)
        written += bounds[number][1] - bounds[number][0]
        progress(written, table.n_rows)

    parts = [
        Part(table.between(*bounds[number]), decision, classes, writer.place, writer.chunk_rows, *bounds[number])
        for number in todo
    ]
    run_tasks(client, _write, parts, place, received=receive)
    _join(writer, table, decision, classes, record, [results[number] for number in range(len(bounds))])


def n_parts_of(n_bytes: int) -> int:
    """Return the number of parts of so many bytes."""
    return max(1, -(-n_bytes // min(_MOST_BYTES, max(LEAST_BYTES, n_bytes // _PARTS))))


def part_bounds(n_rows: int, chunk_rows: int, starts: tuple[int, ...] | None, parts: int) -> list[tuple[int, int]]:
    """Return the rows of about `parts` parts, which begin where a chunk begins.

    Where passes are cheap from `starts` only, a part begins at the first chunk from one of them on, so that its
    worker reads over less than a chunk, and the worker before it as little beyond its last start.
    """
    wanted = np.arange(1, parts) * n_rows // parts
    if starts is not None:
        known = np.asarray(starts)
        after = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        before = np.maximum(after - 1, 0)
        nearer = np.abs(known[before] - wanted) < np.abs(known[after] - wanted)
        wanted = known[np.where(nearer, before, after)]
    cuts = np.unique(-(-wanted // chunk_rows) * chunk_rows)
    edges = [0, *cuts[(cuts > 0) & (cuts < n_rows)].tolist(), n_rows]
    return list(pairwise(edges))


def _write(part: Part) -> PartResult:
    """Write a part, on a worker; return the state of its writer and its labels by code."""
    place: Path | str = part.place if is_url(part.place) else Path(part.place)
    table = part.table
    if isinstance(place, Path) and not place.is_dir():
        raise StoreError(
            f"a worker cannot access the folder {place} of the store; give an output on a file system that all "
            "workers share, or a URL, or leave out the cluster"
        )
    writer = SharedWriter(
        part.place,
        n_features=table.n_features,
        dtype=table.dtype,
        task=part.decision.task,
        n_targets=table.n_targets,
        has_weight=table.has_weight,
        chunk_rows=part.chunk_rows,
    )
    writer.write_part(open_zarr(part.place, mode="r+"), part.start)
    fresh = LabelCoder(AUTO_LIMIT if part.decision.guessed else None)
    coder: LabelEncoder = fresh if part.classes is None else KnownLabels(part.classes)
    check_wanted(place)
    with _MEMORY.held():
        _append_rows(part, writer, coder, place)
    return writer.leave_part(), coder.labels


def _append_rows(part: Part, writer: SharedWriter, coder: LabelEncoder, place: Path | str) -> None:
    """Append the rows of a part, while they are still wanted."""
    table, done, checked = part.table, part.start, time.monotonic()
    for block in checked_blocks(table, part.decision, coder):
        if time.monotonic() - checked > _CHECK_SECONDS:
            check_wanted(place)
            checked = time.monotonic()
        kept = block.first(part.stop - done)
        kept.append_to(writer)
        done += kept.X.shape[0]
        if done == part.stop:
            break
    if done < part.stop:
        raise DataError(
            f"{table.source} ended at row {done}, but it has {part.stop} rows or more; was it changed meanwhile?"
        )


def _join(
    writer: SharedWriter,
    table: Table,
    decision: Decision,
    classes: tuple[ClassLabel, ...] | None,
    record: PartRecord,
    results: Sequence[PartResult],
) -> None:
    """Merge the parts: statistics, checksums, and one code for each label."""
    if decision.task == "classification" and classes is None:
        _join_classes(writer, table, decision, record, results)
        return
    for (start, stop), (state, _) in zip(record.bounds, results, strict=True):
        writer.join_part(state, stop - start, None)
    if decision.task == "classification" and classes is not None:
        writer.set_classes(classes)


def _join_classes(
    writer: SharedWriter, table: Table, decision: Decision, record: PartRecord, results: Sequence[PartResult]
) -> None:
    """Merge parts with labels of their own.

    Codes of a part that are replaced twice are wrong. So the record leaves out the parts whose codes are being
    replaced, which are written again after a kill, and then has them with the labels of all rows.
    """
    coder = LabelCoder(AUTO_LIMIT if decision.guessed else None)
    codes = [coder.encode(np.asarray(labels)) for _, labels in results]
    known, order = coder.finish()
    check_classes(known, decision, record.bounds[-1][1], table)
    labels = tuple(coder.labels[code] for code in np.argsort(order))
    places = [order[code] for code in codes]
    changed = [number for number, place in enumerate(places) if not np.array_equal(place, np.arange(len(place)))]
    for number, ((start, stop), (state, _)) in enumerate(zip(record.bounds, results, strict=True)):
        if number in changed[::_RECODED_TOGETHER]:
            first = changed.index(number)
            record.withdraw(changed[first : first + _RECODED_TOGETHER])
        writer.join_part(state, stop - start, places[number] if number in changed else None)
        if number in changed:
            record.keep(number, (state, labels))
    record.save()
    writer.set_classes(known)
    writer.sum_classes()
