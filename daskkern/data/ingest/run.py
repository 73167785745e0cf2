"""Ingestion: decide what the targets are, stream the rows, write the stores."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from distributed import Client

from daskkern.data.columns import check_scaling_kind
from daskkern.data.encoding import check_choices
from daskkern.data.ingest.keeping import is_written
from daskkern.data.ingest.like import decide_like, like_of
from daskkern.data.ingest.outputs import check_outputs, check_split
from daskkern.data.ingest.parallel import check_parallel, ingest_parts
from daskkern.data.ingest.placing import SORTED_NOTE, Placing, staging, wants_shuffle
from daskkern.data.ingest.sources import Sources, open_source
from daskkern.data.ingest.split import TEST, TRAIN, VALIDATION, SplitSettings
from daskkern.data.ingest.stream import Progress, Stream
from daskkern.data.ingest.tables import Parts, Request, Table
from daskkern.data.ingest.targets import Decision, check_task, decide
from daskkern.data.provenance import made_now
from daskkern.data.schema import ClassLabel, StoreInfo, Task
from daskkern.data.store import Store, open_store
from daskkern.data.work_folder import put_in_place, work_folder
from daskkern.data.writer import StoreWriter
from daskkern.errors import DataError, SpecError

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class IngestReport:
    """What was made of the sources.

    `task_reason` says in a few words why the task is what it is; `notes` are remarks worth showing. The fields of
    the test and the validation store are None without one. `shuffled` tells whether the training rows were.
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


def ingest(
    sources: Sources,
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
    shuffle: bool | None = None,
    stratify: bool = True,
    split_validation: float | None = None,
    out_validation: PathLike | None = None,
    features: str | None = None,
    index_base: int | None = None,
    categorical: str = "refuse",
    missing: str = "refuse",
    like: PathLike | None = None,
    client: Client | None = None,
) -> IngestReport:
    """Turn files into a store, in bounded memory. Either everything is written, or nothing remains.

    Parameters
    ----------
    sources : path, sequence of paths, DaskArrays or dask dataframe
        Files or patterns of one format, see :mod:`daskkern.data.ingest.formats`; a folder stands for the Parquet files
        in it. Several are concatenated. An ingestion that was killed is taken up when it is called alike again.
        Dask collections are computed a block at a time, where the active Dask client likes.
    out : path
        The store to write.
    target : str or sequence of str, optional
        Target columns of a table, or the entry of an npz. Required for tables; ``()`` says there is none.
    task : str
        ``"auto"``, ``"classification"`` or ``"regression"``. Auto: an npz entry ``task`` decides; else strings,
        truth values and integers are classes and floats are quantities.
    scale : str
        Scaling to record, applied on load: ``"standard"``, ``"minmax"``, ``"maxabs"``, ``"unit_variance"`` or
        ``"none"``. Sparse rows allow the last three, which shift nothing.
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
        Of the split and the shuffle.
    overwrite : bool
        Replace existing stores. Anything else in the way is never touched.
    progress : callable, optional
        Called with the rows done and the rows in all, or None while unknown. A split or a shuffle counts anew.
    shuffle : bool, optional
        Write the training rows in a random order. None does so when a target is sorted, see
        :mod:`daskkern.data.shuffle_detection`.
    stratify : bool
        Split every class in the same proportions, within one row.
    split_validation : float, optional
        Fraction of the rows that goes to `out_validation` instead.
    out_validation : path, optional
        Store for the rows of `split_validation`, loaded like the training store.
    features : str, optional
        Key of the features in HDF5, Zarr and AnnData files: ``X`` by default.
    index_base : 0, 1 or None
        Number of the first feature in SVMLight files; None guesses as scikit-learn does.
    categorical : str
        What becomes of feature columns of text: ``"refuse"``, ``"onehot"`` or ``"ordinal"`` (positions among the
        sorted categories).
    missing : str
        What becomes of missing values of features: ``"refuse"``, ``"mean"`` (of categories the most frequent),
        ``"most_frequent"`` or ``"constant"`` (0; of categories one of their own, ``missing``). What was decided is
        recorded in the store.
    like : path, optional
        A store whose columns, categories, filled values, scaling and classes these rows get.
    client : distributed.Client, optional
        Workers that read and write the training rows in parallel; they must share the files with this process. Such
        an ingestion is not taken up after a kill. A split or a shuffle still happens in this process.

    Raises
    ------
    DataError, StoreError, SpecError
        A sentence about what is wrong with the data, the outputs or the settings.
    """
    check_task(task)
    check_scaling_kind(scale)
    split_settings = SplitSettings(split, split_validation, stratify, seed)
    outputs = {part: path for part, path in ((TRAIN, out), (TEST, out_test), (VALIDATION, out_validation)) if path}
    check_outputs(outputs, overwrite)
    known = None if like is None else like_of(like, scale, categorical, missing, drop)
    choices = check_choices(categorical, missing)
    names = (target,) if isinstance(target, str) else None if target is None else tuple(target)
    scratch = Path(os.path.abspath(out)).parent
    request = Request(
        names, weight, tuple(drop), task, scratch, client is not None, features, index_base, *choices, known
    )
    source = open_source(sources, request, (scale, chunk_rows))
    parts = source.parts
    check_split(parts, split_settings, outputs)
    decision = decide(parts.train, task) if known is None else decide_like(parts.train, known)
    test = parts.test if out_test is not None else None
    if client is not None:
        check_parallel(parts.train)
        if test is not None or source.key is None:
            raise SpecError(
                f"{parts.train.source} was to be ingested on a cluster, which is not known for files with a test part "
                "(X_test) or for dask collections; leave out the cluster"
            )
    if test is not None:
        _check_test(parts.train, test, decision)

    record = made_now("ingest", source.names)

    def writer(
        path: PathLike, table: Table, scale: str = "none", overwrite: bool = overwrite, key: str | None = None
    ) -> StoreWriter:
        made = StoreWriter(
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
            sparse=table.is_sparse,
            encoding=table.encoding,
            resume_key=key,
        )
        made.set_provenance(record)
        if known is not None:
            made.set_scaling(known.scaling)
        return made

    tell = progress or _silent
    with staging(out) as staged, ExitStack() as aside:
        # The writers of the other parts end after the training store has its name: all of them appear, or none.
        others = {
            part: aside.enter_context(writer(path, test if part == TEST and test else parts.train))
            for part, path in outputs.items()
            if part != TRAIN
        }
        if test is not None or not is_written(staged, source.key):  # else by a process that was killed later
            key = source.key if client is None else None
            with writer(staged, parts.train, scale, overwrite=True, key=key) as staged_writer:
                classes = None if known is None else known.classes
                stream = Stream(parts.train, test, decision, tell, classes)
                if client is None:
                    stream.run(staged_writer, others.get(TEST))
                else:
                    ingest_parts(client, staged_writer, parts.train, decision, classes, tell)
        whole = open_store(staged)
        shuffled = wants_shuffle(shuffle, whole)
        if shuffled or split_settings.is_wanted:
            placing = Placing(whole, split_settings, seed if shuffled else None)
            with work_folder(out) as folder:
                with writer(folder / "store", parts.train, scale) as train:
                    from_train = {part: other for part, other in others.items() if part != TEST or test is None}
                    _set_classes({TRAIN: train, **from_train}, whole)
                    if shuffled:
                        train.set_provenance({**record, "shuffled with seed": seed})
                    placing.run(folder, {TRAIN: train, **from_train}, tell)
                put_in_place(folder / "store", out, overwrite=overwrite)
        else:
            put_in_place(staged, out, overwrite=overwrite)
        for other in others.values():
            other.set_scaling(open_store(Path(out)).info.scaling)
    info = open_store(Path(out)).info
    test_info = None if out_test is None else open_store(Path(out_test)).info
    return IngestReport(
        path=str(out),
        test_path=None if out_test is None else str(out_test),
        format=source.format,
        n_files=source.n_files,
        n_rows=info.n_rows,
        n_test_rows=None if test_info is None else test_info.n_rows,
        n_features=info.n_features,
        n_targets=info.n_targets,
        task=info.task,
        task_reason=decision.reason,
        classes=info.classes,
        class_counts=info.class_counts,
        notes=(
            *parts.notes,
            *_ignored_test(parts, out_test),
            *_resolution(info, parts.train),
            *((SORTED_NOTE,) if shuffled and shuffle is None else ()),
        ),
        validation_path=None if out_validation is None else str(out_validation),
        n_validation_rows=None if out_validation is None else open_store(Path(out_validation)).info.n_rows,
        shuffled=shuffled,
    )


def _silent(done: int, total: int | None) -> None:
    del done, total


def _set_classes(writers: Mapping[int, StoreWriter], whole: Store) -> None:
    for writer in writers.values():
        if whole.info.classes is not None:
            writer.set_classes(whole.info.classes)


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
