"""Ingestion: checks the settings, opens the sources, decides the task, makes the stores and reports on them."""

from collections.abc import Sequence

from distributed import Client

from daskkern.data.ingest.columns.match_schema import decide_like, like_of
from daskkern.data.ingest.columns.targets import Decision, check_task, decide
from daskkern.data.ingest.pipeline.in_place import InPlace
from daskkern.data.ingest.pipeline.outputs import check_begun, check_outputs, check_split, is_begun
from daskkern.data.ingest.pipeline.parallel import JobsOnWorkers, check_parallel
from daskkern.data.ingest.pipeline.report import IngestReport, report
from daskkern.data.ingest.pipeline.resume import parts_key
from daskkern.data.ingest.pipeline.settings import IngestSettings, PathLike
from daskkern.data.ingest.pipeline.sources import IngestSource, Sources, open_source
from daskkern.data.ingest.pipeline.split import TEST, TRAIN, VALIDATION, SplitSettings
from daskkern.data.ingest.pipeline.staging import Staging
from daskkern.data.ingest.pipeline.stream import Progress
from daskkern.data.ingest.readers.lake_tables import UnsurveyedGapError
from daskkern.data.ingest.readers.tables import Request, Table
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.column_scaling import check_scaling_kind
from daskkern.data.schema.encoding import check_choices
from daskkern.data.schema.provenance import made_now
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.transactions.atomic import working_place
from daskkern.data.transactions.resumable import work_key
from daskkern.errors import DataError, SpecError


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
    categorical: str = "auto",
    missing: str = "auto",
    like: PathLike | TableSchema | None = None,
    client: Client | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> IngestReport:
    """Turn files into a store, in bounded memory. Either everything is written, or nothing remains.

    Parameters
    ----------
    sources : path or URL, sequence of them, DataFrame, Arrow table, DaskArrays or dask dataframe
        Files or patterns of one format, see :mod:`daskkern.data.ingest.readers.formats`; a folder stands for the
        Parquet files in it, or the Delta Lake or Iceberg table. Parquet is read from any URL, see
        :mod:`daskkern.data.lake`. Several are concatenated. A killed ingestion is resumed when it is called again with
        the same arguments. Dask collections are computed a block at a time, by the active Dask client. DataFrames are
        those of pandas and Polars, and others that hand out Arrow data.
    out : path or URL
        The store to write. At a URL there is no local copy: rows that are split or shuffled are first written to a
        store next to it, see :mod:`daskkern.data.ingest.pipeline.in_place`.
    target : str or sequence of str, optional
        Target columns of a table, or the entry of an npz. Required for tables; ``()`` means none.
    task : str
        ``"auto"``, ``"classification"`` or ``"regression"``. Auto: an npz entry ``task`` decides; else strings,
        booleans and integers are classes, and so are floats that are at most 20 different whole numbers; other
        floats, and all floats of dask collections, are quantities. Values that hardly repeat are refused as classes,
        even for ``"classification"``.
    scale : str
        Scaling to record, applied on load: ``"standard"``, ``"common"``, ``"minmax"``, ``"maxabs"``,
        ``"unit_variance"`` or ``"none"``. Sparse rows allow the last three, which have no shift.
    split : float, optional
        Fraction of the rows that goes to `out_test` instead, drawn by `seed`.
    out_test : path, optional
        Store for the test part: of `split`, or X_test of an npz. It records the classes and the scaling of the
        training store, so that both are loaded the same way.
    chunk_rows : int, optional
        Rows of a chunk, about 4096 by default.
    drop : sequence of str
        Columns of a table to leave out.
    weight : str, optional
        Column, or npz entry, with the weights of the rows.
    seed : int
        Seed of the split and the shuffle.
    overwrite : bool
        Replace existing stores. Other files and folders are never touched.
    progress : callable, optional
        Called with the rows done and the rows in all, or None while unknown. A split or a shuffle starts again from 0.
    shuffle : bool, optional
        Write the training rows in a random order. None does so when a target is sorted, see
        :mod:`daskkern.data.shuffle.detection`.
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
        Encoding of text columns among the features: ``"refuse"``, ``"onehot"``, ``"ordinal"`` (positions among the
        sorted categories, which are numbers for a fit), or ``"codes"`` (the same positions, of which kernels see only
        whether two rows have the same one; for columns of many categories). ``"auto"`` is one-hot, and refuses columns
        in which most texts are different.
    missing : str
        Treatment of missing feature values: ``"refuse"``, ``"mean"`` (of categories the most frequent),
        ``"most_frequent"`` or ``"constant"`` (0; of categories one of their own, ``missing``). In tables
        with named columns, ``"auto"`` uses the mean of numbers and a separate category; arrays with missing values
        are refused. It detects missing values in a separate pass. The decision is recorded in the store.
    like : path or TableSchema, optional
        A store, or the schema of a model, whose columns, categories, filled values, scaling and classes these rows get.
    client : distributed.Client, optional
        Workers that read and write the training rows in parallel; they must share the files with this process, or
        reach the URLs. The store is the same, its statistics up to rounding. At a URL they split and shuffle, too; to
        a folder that happens in this process.
    columns : sequence of str, optional
        Columns of a table to use as features; all others but targets and weight are not read.
    where : str, optional
        A filter of the rows of Parquet files, such as ``"day >= 3 and region = 'north'"``; its grammar:
        :mod:`daskkern.data.lake.where`. Files and row groups in which no row passes are not read.

    Raises
    ------
    DataError, StoreError, SpecError
        When the data, the outputs or the settings are invalid; the message is one sentence.
    """
    check_task(task)
    check_scaling_kind(scale)
    split_settings = SplitSettings(split, split_validation, stratify, seed)
    outputs = {part: path for part, path in ((TRAIN, out), (TEST, out_test), (VALIDATION, out_validation)) if path}
    begun = not overwrite and is_begun(outputs, shuffle)
    check_outputs(outputs, overwrite or begun)
    known = None if like is None else like_of(like, scale, categorical, missing, drop, columns)
    choices = check_choices(categorical, missing)
    names = (target,) if isinstance(target, str) else None if target is None else tuple(target)
    scratch = working_place(out).parent
    request = Request(
        names,
        weight,
        tuple(drop),
        task,
        scratch,
        client is not None,
        features,
        index_base,
        *choices,
        known,
        columns=None if columns is None else tuple(columns),
        where=where,
    )
    settings = IngestSettings(
        split_settings,
        outputs,
        known,
        task,
        shuffle,
        seed,
        scale,
        chunk_rows,
        overwrite,
        begun,
        client,
        progress or _silent,
    )
    try:
        return _run(sources, request, settings, every_float=False)
    except UnsurveyedGapError:
        return _run(sources, request, settings, every_float=True)


def _run(sources: Sources, request: Request, wanted: IngestSettings, *, every_float: bool) -> IngestReport:
    """Open the sources, write the stores, and report."""
    client, outputs, like = wanted.client, wanted.outputs, wanted.like
    run = None if client is None else JobsOnWorkers(client)
    source = open_source(sources, request, (wanted.scale, wanted.chunk_rows), run, every_float=every_float)
    parts = source.parts
    check_split(parts, wanted.split, outputs)
    decision = decide(parts.train, wanted.task) if like is None else decide_like(parts.train, like)
    test = parts.test if TEST in outputs else None
    if client is not None:
        _check_cluster(source, test)
    if test is not None:
        _check_test(parts.train, test, decision)
    places = sorted(map(str, outputs.values()))
    key = source.key and work_key([source.key, repr(wanted.split), wanted.shuffle, wanted.seed, places])
    if wanted.begun:
        check_begun(outputs, key, parts_key(source.key, wanted.shuffle))
    making = (InPlace if is_url(outputs[TRAIN]) else Staging)(
        source=source,
        decision=decision,
        test=test,
        settings=wanted,
        key=key,
        record=made_now("ingest", source.names),
    )
    shuffled = making.run()
    return report(source, outputs, decision.reason, shuffled=shuffled, requested=wanted.shuffle)


def _silent(done: int, total: int | None) -> None:
    del done, total


def _check_cluster(source: IngestSource, test: Table | None) -> None:
    """Refuse what workers cannot ingest in parallel."""
    check_parallel(source.parts.train)
    if test is not None or source.key is None:
        raise SpecError(
            f"got a cluster to ingest {source.parts.train.source}, which is not supported for files with a test part "
            "(X_test) or for dask collections; leave out the cluster"
        )


def _check_test(train: Table, test: Table, decision: Decision) -> None:
    if test.n_features != train.n_features:
        raise DataError(
            f"the test rows of {test.source} have {test.n_features} features, but the training rows have "
            f"{train.n_features}; they must have the same"
        )
    if test.n_targets != train.n_targets or (decision.task == "regression" and test.target_kind == "text"):
        raise DataError(
            f"the test targets of {test.source} differ in kind from the training targets; make them the same"
        )
