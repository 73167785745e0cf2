"""Predictions of stores, table files and data frames, in bounded memory, in one process or on a cluster."""

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from distributed import Client

from daskkern.data.schema.encoding import UnknownChoice
from daskkern.data.storage.unseen_categories import notes_of
from daskkern.errors import DataError, SpecError
from daskkern.evaluation.tables.blocks import PredictBlock
from daskkern.evaluation.tables.columns import RequestedColumns
from daskkern.evaluation.tables.folder import KIND as FORMAT
from daskkern.evaluation.tables.opening import open_rows
from daskkern.evaluation.tables.rows import BLOCK_ROWS
from daskkern.evaluation.tables.tasks import BlockTask, ScoringPlace, in_order, scoring_jobs
from daskkern.evaluation.tables.writing import Division, PredictionJob, PredictionReport, RowProgress, same_file
from daskkern.models.fitted import fitted_model

__all__ = ["FORMAT", "PredictionReport", "predict_table", "write_predictions"]


def predict_table(
    model: Any,
    rows: Any,
    *,
    keep: Sequence[str] = (),
    scores: bool = False,
    std: bool = False,
    confidence: float | None = None,
    unknown: UnknownChoice = "refuse",
    client: Client | None = None,
) -> pa.Table:
    """Return the predictions of `rows` as an Arrow table, in the order of the rows; it holds all of them in memory.

    ``.to_pandas()`` gives a pandas frame, and ``polars.from_arrow`` a polars frame.

    Parameters
    ----------
    model : KernelModel or fitted estimator
        A model, or an estimator after its fit.
    rows : store, path, URL or data frame
        As for :func:`write_predictions`, where the columns of the result are described too.
    keep : sequence of str
        Columns of `rows` to carry through.
    scores : bool
        Add the scores.
    std : bool
        Add standard deviations, of a calibrated regression.
    confidence : float, optional
        Add intervals, or sets of labels, that hold the true value with this probability, of a calibrated model.
    unknown : "refuse" or "ignore"
        Whether a category that the training data lack, in a column of one feature for each, is an error, or is 0 in all
        of them.
    client : distributed.Client, optional
        Workers that predict; None is this process.

    Raises
    ------
    DataError, SpecError
        For rows that do not fit the model, rows without any, and columns that the model does not offer.
    """
    model, wanted = fitted_model(model), RequestedColumns(scores, std, confidence)
    wanted.check(model)
    where = ScoringPlace(client)
    opened = open_rows(model, rows, keep=tuple(keep), unknown=unknown).rows
    with model.threads(None, opened.n_rows or 1 << 30):
        jobs = scoring_jobs(opened, model, (BLOCK_ROWS,), client)
        blocks = (block for blocks in in_order(BlockTask(PredictBlock(wanted)), jobs, model, where) for block in blocks)
        found = [block.batch for block in blocks if block.batch is not None]
    if not found:
        raise DataError(f"{opened.source} has no rows; at least one is needed")
    return pa.Table.from_batches([batch.cast(found[0].schema) for batch in found])


def write_predictions(
    model: Any,
    rows: Any,
    out: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    rows_per_file: int | None = None,
    scores: bool = False,
    std: bool = False,
    confidence: float | None = None,
    unknown: UnknownChoice = "refuse",
    overwrite: bool = False,
    progress: RowProgress | None = None,
    client: Client | None = None,
    device: str = "auto",
    threads: int | None = None,
) -> PredictionReport:
    """Write the predictions of `rows`, in their order and in bounded memory.

    Parameters
    ----------
    model : KernelModel or fitted estimator
        A model, or an estimator after its fit.
    rows : path, URL, Store, sequence of paths, data frame, or dask dataframe
        A store, or a table with the columns of the training table, as :func:`daskkern.ingest` takes it.
    out : path or URL
        The ending decides the format: ``.parquet``, ``.csv``, ``.csv.gz``, ``.arrow``, or ``.zarr``, as without one. A
        file, an object or a group appears when it is complete.
    keep : sequence of str
        Columns of the rows that come before the predictions, as they are.
    partition_by : sequence of str
        Columns of the rows, of whose values each has a folder ``day=2026-01-01`` in the folder `out`.
    rows_per_file : int, optional
        Rows of each of the files in the folder `out`. In a folder, a run with the same arguments continues after a
        kill, and writes no row twice.
    scores : bool
        Add the scores, ``score`` or one column for each output. A Zarr group always has them.
    std : bool
        Add standard deviations, ``std``.
    confidence : float, optional
        Add intervals, ``lower`` and ``upper``, or whether labels may be the true one, ``in_set_<label>``.
    unknown : "refuse" or "ignore"
        Whether a category that the training data lack, in a column of one feature for each, is an error, or is 0 in all
        of them and counted in the report.
    overwrite : bool
        Replace what is at `out`; in a folder, before anything is written.
    progress : callable, optional
        Called with rows done and rows in all, or None while unknown.
    client : distributed.Client, optional
        Workers that predict, and that read stores and Parquet files and write the files of a folder themselves. Results
        and order are those of one process.
    device : "auto", "cpu" or "gpu"
        Where to compute; see :meth:`daskkern.models.KernelModel.on`.
    threads : int, optional
        Threads on the CPU; None uses all processors that the process may use.

    Raises
    ------
    DaskkernError
        When rows, model and settings do not fit together, or `out` is taken or cannot be written.
    """
    model, place = fitted_model(model), os.fspath(out)
    if same_file(place, rows):
        raise SpecError(f"got {place} both for the rows and for their predictions; give another name")
    opened = open_rows(model, rows, keep=tuple(dict.fromkeys((*keep, *partition_by))), unknown=unknown)
    job = PredictionJob(
        model,
        opened.rows,
        place,
        RequestedColumns(scores, std, confidence),
        Division(tuple(partition_by), rows_per_file),
        opened.key,
        overwrite,
    )
    return job.run(ScoringPlace(client, device, threads), progress)


def report_notes(report: PredictionReport) -> tuple[str, ...]:
    """Return a note for each column with categories that the training data lack."""
    return notes_of(report.unseen)
