"""The report of a finished ingestion."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from daskkern.data.ingest.pipeline.sources import IngestSource
from daskkern.data.ingest.pipeline.split import TEST, TRAIN, VALIDATION
from daskkern.data.ingest.pipeline.split_and_shuffle import SORTED_NOTE
from daskkern.data.ingest.readers.tables import Parts, Table
from daskkern.data.schema.schema import ClassLabel, StoreInfo, Task
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.unseen_categories import unseen_notes

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class IngestReport:
    """The result of an ingestion.

    `task_reason` gives the reason for the task in a few words; `notes` are remarks worth showing. The fields of
    the test and the validation store are None without one. `shuffled` says whether the training rows were shuffled.
    """

    path: str
    test_path: str | None
    format: str
    n_files: int
    n_rows: int
    n_test_rows: int | None
    n_features: int
    n_targets: int
    task: Task | None
    task_reason: str
    classes: tuple[ClassLabel, ...] | None
    class_counts: tuple[int, ...] | None
    notes: tuple[str, ...]
    validation_path: str | None = None
    n_validation_rows: int | None = None
    shuffled: bool = False


def report(
    source: IngestSource, outputs: Mapping[int, PathLike], task_reason: str, *, shuffled: bool, requested: bool | None
) -> IngestReport:
    """Return the report on the stores at `outputs`; `requested` is the `shuffle` option as given."""
    stores = {part: open_store(path) for part, path in outputs.items()}
    info = stores[TRAIN].info
    return IngestReport(
        path=str(outputs[TRAIN]),
        test_path=_name(outputs, TEST),
        format=source.format,
        n_files=source.n_files,
        n_rows=info.n_rows,
        n_test_rows=_rows(stores, TEST),
        n_features=info.n_features,
        n_targets=info.n_targets,
        task=info.task,
        task_reason=task_reason,
        classes=info.classes,
        class_counts=info.class_counts,
        notes=(
            *source.parts.notes,
            *_ignored_test(source.parts, outputs),
            *_resolution(info, source.parts.train),
            *_zeros(info, source.parts.train),
            *(note for store in stores.values() for note in unseen_notes(store)),
            *((SORTED_NOTE,) if shuffled and requested is None else ()),
        ),
        validation_path=_name(outputs, VALIDATION),
        n_validation_rows=_rows(stores, VALIDATION),
        shuffled=shuffled,
    )


def _name(outputs: Mapping[int, PathLike], part: int) -> str | None:
    return str(outputs[part]) if part in outputs else None


def _rows(stores: Mapping[int, Store], part: int) -> int | None:
    return stores[part].info.n_rows if part in stores else None


def _ignored_test(parts: Parts, outputs: Mapping[int, PathLike]) -> tuple[str, ...]:
    if parts.test is None or TEST in outputs:
        return ()
    return (f"the test part of {parts.test.source} (X_test) was not ingested; name a store for it with --out-test",)


def _resolution(info: StoreInfo, table: Table) -> tuple[str, ...]:
    """Return notes on columns whose spread float32 barely resolves, because they lie far from 0."""
    if table.dtype.kind != "f":
        return ()
    size, std = np.abs(info.statistics.mean), np.asarray(info.statistics.std)
    spread = (std > 0) | (size >= 2**24)  # this far from 0, float32 may have merged different values
    coarse = np.flatnonzero(spread & (std < 100 * size * np.finfo(np.float32).eps))
    return tuple(
        f"feature column {table.feature_name(int(j))} varies by {std[j]:.3g} around {info.statistics.mean[j]:.6g}, "
        "which float32 barely resolves; subtract an offset before ingesting"
        for j in coarse[:5]
    )


def _zeros(info: StoreInfo, table: Table) -> tuple[str, ...]:
    """Return a note on dense columns of floats that are 0 in all rows: float32 has no numbers between 0 and 1e-45."""
    if table.dtype.kind != "f" or table.is_sparse:
        return ()
    empty = np.flatnonzero((np.asarray(info.statistics.min) == 0) & (np.asarray(info.statistics.max) == 0))
    if not empty.size:
        return ()
    names = ", ".join(table.feature_name(int(j)) for j in empty[:5]) + ", ..." * (empty.size > 5)
    which = "column" if empty.size == 1 else f"columns ({empty.size:,})"
    return (f"0 in every row: feature {which} {names} (values below 1e-45 are 0 in float32)",)
