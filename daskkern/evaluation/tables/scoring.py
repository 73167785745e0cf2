"""Scores of stores, table files and data frames in one pass, by this process or the workers of a cluster."""

from typing import Any

import numpy as np
import zarr

from daskkern.data.schema.encoding import UnknownChoice
from daskkern.data.storage.store import open_store
from daskkern.data.storage.unseen_categories import notes_of
from daskkern.errors import DataError
from daskkern.evaluation.metrics import MetricAccumulator, Score
from daskkern.evaluation.score import score_store
from daskkern.evaluation.tables.blocks import columns_of_categories, score_block
from daskkern.evaluation.tables.opening import open_rows
from daskkern.evaluation.tables.rows import BLOCK_ROWS
from daskkern.evaluation.tables.tasks import BlockTask, ScoringPlace, in_order, scoring_jobs
from daskkern.evaluation.tables.writing import RowProgress
from daskkern.models import KernelModel


def score_rows(
    model: KernelModel,
    source: Any,
    where: ScoringPlace,
    progress: RowProgress | None = None,
    unknown: UnknownChoice = "refuse",
    weight: str | None = None,
) -> tuple[Score, tuple[str, ...]]:
    """Score `model` on all rows of `source`, and return notes on columns with categories that the training data lack.

    Rows count by their weights: those of a store, or those in the column `weight` of a table. `unknown` as in
    :func:`daskkern.evaluation.tables.opening.open_rows`. Workers compute scores; sums are made here, in
    the order of the rows, so that they are those of one process.

    Raises
    ------
    DaskkernError
        When the rows do not match the model, or have no targets.
    """
    rows = open_rows(model, source, targets=True, unknown=unknown, weight=weight).rows
    accumulator, done = MetricAccumulator(model, rows.classes), 0
    names = list(columns_of_categories(model.encoding))
    unseen = np.zeros(len(names), np.int64)
    with model.threads(where.threads, rows.n_rows or 1 << 30):
        jobs = scoring_jobs(rows, model, (BLOCK_ROWS,), where.client)
        for blocks in in_order(BlockTask(score_block), jobs, model, where):
            for block in blocks:
                accumulator.add(block.scores, block.y, block.weight)
                unseen += block.unseen
                done += len(block.y)
            if progress is not None:
                progress(done, rows.n_rows)
    if done == 0:
        raise DataError(f"{rows.source} has no rows; at least one is needed")
    found = {name: int(count) for name, count in zip(names, unseen, strict=True) if count}
    return accumulator.result(), notes_of(found)


def score_place(model: KernelModel, source: Any, unknown: UnknownChoice = "refuse") -> Score:
    """Score `model` on a store or on table files, in this process. Raises DaskkernError, as :func:`score_rows`.

    Parameters
    ----------
    model : KernelModel
    source : path, URL or zarr.Group
    unknown : UnknownChoice
        As for :func:`score_rows`.
    """
    if isinstance(source, zarr.Group):
        return score_store(model, open_store(source))
    return score_rows(model, source, ScoringPlace(), unknown=unknown)[0]
