"""Ingestion: decide what the targets are, stream the rows, write the stores."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from daskkern.data.atomic import check_destination
from daskkern.data.columns import check_scaling_kind
from daskkern.data.ingest.formats import find_files
from daskkern.data.ingest.split import Split
from daskkern.data.ingest.stream import Progress, Stream
from daskkern.data.ingest.tables import Parts, Request, Table
from daskkern.data.ingest.targets import Decision, check_task, decide
from daskkern.data.schema import FORMAT, ClassLabel, StoreInfo, Task
from daskkern.data.store import open_store
from daskkern.data.writer import StoreWriter
from daskkern.errors import DataError, SpecError

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class IngestReport:
    """What was made of the sources.

    `task_reason` says in a few words why the task is what it is; `notes` are remarks worth showing. The test
    fields are None without a test store.
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


def ingest(
    sources: PathLike | Sequence[PathLike],
    out: PathLike,
    *,
    target: str | Sequence[str] | None = None,
    task: str = "auto",
    scale: str = "none",
    split: float | None = None,
    out_test: PathLike | None = None,
    chunk_rows: int | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> IngestReport:
    """Turn files into a store, in bounded memory. Either everything is written, or nothing remains.

    Parameters
    ----------
    sources : path or sequence of paths
        Files or patterns of one format: ``.npz`` (X, y or X_train, y_train, X_test, y_test), a ``.npy`` pair (X,
        then y), ``.csv``, ``.csv.gz`` or ``.parquet``. Several are concatenated.
    out : path
        The store to write.
    target : str or sequence of str, optional
        Target columns of a table, or the entry of an npz. Required for tables; ``()`` says there is none.
    task : str
        ``"auto"``, ``"classification"`` or ``"regression"``. Auto: an npz entry ``task`` decides; else strings,
        truth values and integers are classes and floats are quantities.
    scale : str
        Scaling to record, applied on load: ``"standard"``, ``"minmax"`` or ``"none"``.
    split : float, optional
        Fraction of the rows that goes to `out_test` instead, drawn by `seed`.
    out_test : path, optional
        Store for the test part: of `split`, or X_test of an npz. It records the classes and the scaling of the
        training store, so that it is loaded alike.
    chunk_rows : int, optional
        Rows of a chunk, about 4096 by default.
    drop : sequence of str
        Columns of a table to leave out.
    weight : str, optional
        Column, or npz entry, with the weights of the rows.
    seed : int
        Of the split.
    overwrite : bool
        Replace existing stores. Anything else in the way is never touched.
    progress : callable, optional
        Called with the rows done and the rows in all, or None while unknown.

    Raises
    ------
    DataError, StoreError, SpecError
        A sentence about what is wrong with the data, the outputs or the settings.
    """
    check_task(task)
    check_scaling_kind(scale)
    for path in (out, *([out_test] if out_test is not None else [])):
        check_destination(Path(path), kind=FORMAT, overwrite=overwrite)
    if out_test is not None and os.path.realpath(out) == os.path.realpath(out_test):
        raise SpecError(f"{out} was given for both training and test rows; name two stores")
    found, files = find_files(sources)
    names = (target,) if isinstance(target, str) else None if target is None else tuple(target)
    scratch = Path(os.path.abspath(out)).parent
    parts = found.open(files, Request(names, weight, tuple(drop), task, scratch, count=split is not None))
    rows = _split(parts, split, out_test, seed)
    decision = decide(parts.train, task)
    test = parts.test if out_test is not None else None
    if test is not None:
        _check_test(parts.train, test, decision)

    def writer(path: PathLike, table: Table, scale: str) -> StoreWriter:
        return StoreWriter(
            Path(path),
            n_features=table.n_features,
            dtype=table.dtype,
            task=decision.task,
            n_targets=table.n_targets,
            has_weight=table.has_weight,
            feature_names=table.feature_names,
            target_names=table.target_names,
            scale=scale,
            chunk_rows=chunk_rows,
            overwrite=overwrite,
        )

    with writer(out, parts.train, scale) as train_writer:
        test_writer: AbstractContextManager[StoreWriter | None] = nullcontext()
        if out_test is not None:
            test_writer = writer(out_test, test or parts.train, "none")
        with test_writer as other:
            stream = Stream(parts.train, test, decision, rows, progress or _silent)
            stream.run(train_writer, other)
    info = open_store(Path(out)).info
    test_info = None if out_test is None else open_store(Path(out_test)).info
    return IngestReport(
        path=str(out),
        test_path=None if out_test is None else str(out_test),
        format=found.name,
        n_files=len(files),
        n_rows=info.n_rows,
        n_test_rows=None if test_info is None else test_info.n_rows,
        n_features=info.n_features,
        n_targets=info.n_targets,
        task=info.task,
        task_reason=decision.reason,
        classes=info.classes,
        class_counts=info.class_counts,
        notes=(*parts.notes, *_ignored_test(parts, out_test), *_resolution(info, parts.train)),
    )


def _silent(done: int, total: int | None) -> None:
    del done, total


def _split(parts: Parts, fraction: float | None, out_test: PathLike | None, seed: int) -> Split | None:
    """Return how rows are dealt to the test part, after checking that the settings say where it comes from."""
    if fraction is None:
        if out_test is not None and parts.test is None:
            raise SpecError(f"nothing would go to {out_test}: {parts.train.source} has no X_test; say --split 0.2")
        return None
    if out_test is None:
        raise SpecError(f"a split of {fraction:g} was asked, but not where the test rows go; say --out-test STORE")
    if parts.test is not None:
        raise SpecError(f"{parts.train.source} already has a test part (X_test); leave out --split")
    assert parts.train.n_rows is not None  # the reader was asked to count
    return Split(fraction, parts.train.n_rows, seed)


def _check_test(train: Table, test: Table, decision: Decision) -> None:
    if test.n_features != train.n_features:
        raise DataError(
            f"the test rows of {test.source} have {test.n_features} features, but the training rows have "
            f"{train.n_features}; they must have the same"
        )
    if test.n_targets != train.n_targets or (decision.task == "regression" and test.target_kind == "text"):
        raise DataError(f"the test targets of {test.source} are not like the training targets; make them alike")


def _ignored_test(parts: Parts, out_test: PathLike | None) -> tuple[str, ...]:
    if parts.test is None or out_test is not None:
        return ()
    return (f"the test part of {parts.test.source} (X_test) was not ingested; name a store for it with --out-test",)


def _resolution(info: StoreInfo, table: Table) -> tuple[str, ...]:
    """Return remarks on columns whose spread float32 barely resolves, because they lie far from 0."""
    if table.dtype.kind != "f":
        return ()
    size, std = np.abs(info.statistics.mean), np.asarray(info.statistics.std)
    spread = (std > 0) | (size >= 2**24)  # so far out, float32 may have made different values one
    coarse = np.flatnonzero(spread & (std < 100 * size * np.finfo(np.float32).eps))
    return tuple(
        f"feature column {table.feature_name(int(j))} varies by {std[j]:.3g} around {info.statistics.mean[j]:.6g}, "
        "which float32 barely resolves; subtract an offset before ingesting"
        for j in coarse[:5]
    )
