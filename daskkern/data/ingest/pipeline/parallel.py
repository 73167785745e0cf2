"""Ingestion by the workers of a cluster: each writes its own chunks of the store, from its own rows of the source.

Parts begin where a chunk begins, so no two workers write to one chunk, and a part that is written twice because
a worker was lost is the same both times. Labels are coded by their order in each part; when all are known, the codes
of every part are replaced, which touches only ``y``.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import zarr
from distributed import Client

from daskkern.data.ingest.columns.labels import AUTO_LIMIT, KnownLabels, LabelCoder
from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.pipeline.stream import LabelEncoder, Progress, check_classes, checked_blocks
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.schema.schema import ClassLabel
from daskkern.data.shuffle.cancellable_tasks import check_wanted, run_tasks
from daskkern.data.storage.csr_store import State
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.errors import DataError, SpecError, StoreError

_PARTS_PER_WORKER = 4  # so that a slow worker causes little waiting


@dataclass(frozen=True)
class Part:
    """The task of a worker that writes the rows from `start` to `stop`."""

    table: Table
    decision: Decision
    classes: tuple[ClassLabel, ...] | None
    folder: str
    chunk_rows: int
    start: int
    stop: int


def check_parallel(table: Table) -> None:
    """Raise SpecError unless the rows of `table` can be distributed to workers before they are read."""
    if table.is_sparse or table.n_rows is None:
        what = "they are sparse" if table.is_sparse else "their number is unknown"
        raise SpecError(
            f"got a cluster to ingest the rows of {table.source}, but {what}, so workers cannot know where to write; "
            "leave out the cluster"
        )


def ingest_parts(
    client: Client,
    writer: SharedWriter,
    table: Table,
    decision: Decision,
    classes: tuple[ClassLabel, ...] | None,
    progress: Progress,
) -> None:
    """Write all rows with the workers of `client`; the writer still has to be closed.

    The source and the folder of the store must be on a file system that the workers share with this process.
    """
    check_parallel(table)
    assert table.n_rows is not None
    assert writer.partial is not None
    if table.n_rows == 0:
        raise DataError(f"{table.source} has no rows; at least one is needed")
    writer.make_room(table.n_rows)
    folder = os.fspath(writer.partial.folder)
    n_workers = max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
    bounds = part_bounds(table.n_rows, writer.chunk_rows, table.starts, _PARTS_PER_WORKER * n_workers)
    parts = [Part(table, decision, classes, folder, writer.chunk_rows, *bound) for bound in bounds]
    written = 0

    def count(number: int) -> None:
        nonlocal written
        written += bounds[number][1] - bounds[number][0]
        progress(written, table.n_rows)

    results = run_tasks(client, _write, parts, writer.partial.folder, count)
    _join(writer, table, decision, classes, bounds, results)


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


def _write(part: Part) -> tuple[State, tuple[ClassLabel, ...]]:
    """Write a part, on a worker; return the state of its writer and its labels by code."""
    folder, table = Path(part.folder), part.table
    if not folder.is_dir():
        raise StoreError(
            f"a worker cannot access the folder {folder} of the store; give an output on a file system that all "
            "workers share, or leave out the cluster"
        )
    writer = SharedWriter(
        folder,
        n_features=table.n_features,
        dtype=table.dtype,
        task=part.decision.task,
        n_targets=table.n_targets,
        has_weight=table.has_weight,
        chunk_rows=part.chunk_rows,
    )
    writer.write_part(zarr.open_group(folder, mode="r+", zarr_format=3), part.start)
    fresh = LabelCoder(AUTO_LIMIT if part.decision.guessed else None)
    coder: LabelEncoder = fresh if part.classes is None else KnownLabels(part.classes)
    done = part.start
    for block in checked_blocks(table, part.decision, coder, part.start):
        check_wanted(folder)
        kept = block.first(part.stop - done)
        kept.append_to(writer)
        done += kept.X.shape[0]
        if done == part.stop:
            break
    if done < part.stop:
        raise DataError(
            f"{table.source} ended at row {done}, but it has {table.n_rows} rows; was it changed meanwhile?"
        )
    return writer.leave_part(), coder.labels


def _join(
    writer: SharedWriter,
    table: Table,
    decision: Decision,
    classes: tuple[ClassLabel, ...] | None,
    bounds: list[tuple[int, int]],
    results: list[tuple[State, tuple[ClassLabel, ...]]],
) -> None:
    """Merge the parts: statistics, checksums, and one code for each label."""
    known, places = classes, None
    if decision.task == "classification" and classes is None:
        coder = LabelCoder(AUTO_LIMIT if decision.guessed else None)
        codes = [coder.encode(np.asarray(labels)) for _, labels in results]
        known, order = coder.finish()
        check_classes(known, decision, bounds[-1][1], table)
        places = [order[code] for code in codes]
    for number, ((start, stop), (state, _)) in enumerate(zip(bounds, results, strict=True)):
        writer.join_part(state, stop - start, None if places is None else places[number])
    if decision.task == "classification" and known is not None:
        writer.set_classes(known)
    if places is not None:
        writer.sum_classes()
