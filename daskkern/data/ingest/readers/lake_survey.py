"""The first pass over a lake: categories of text columns, and statistics of numbers with missing values.

Only these columns are read, in tasks of fixed size, and their results are merged in the order of the rows: the
outcome does not depend on who runs the tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.data.ingest.columns.categories import TextCounts
from daskkern.data.ingest.columns.value_counts import NumberCounts
from daskkern.data.ingest.readers.arrow import is_plain, to_numpy
from daskkern.data.lake.lake import Lake
from daskkern.data.lake.lake_piece import LakePiece
from daskkern.data.lake.opening import TaskRunner, decode_here
from daskkern.data.schema.encoding import CategoricalChoice, MissingChoice

_TASK_BYTES = 128 << 20  # of all columns, compressed
BLOCK_ROWS = 1 << 16
_PROBED, _PROBED_SHARE, _PROBED_ROWS, _WHOLE_ROWS = 8, 16, 4096, 16384


@dataclass(frozen=True, eq=False)
class SurveyJob:
    """Pieces of a lake, and the columns that are examined."""

    lake: Lake
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    missing: MissingChoice
    categorical: CategoricalChoice
    absent: tuple[str, ...]


@dataclass
class LakeSurvey:
    """What a pass found, by column."""

    numbers: dict[str, NumberCounts]
    texts: TextCounts


def survey(job: SurveyJob, run: TaskRunner | None) -> LakeSurvey:
    """Examine columns of a whole lake. Raises DataError for texts that are not categories."""
    found = _empty(job)
    if not job.numbers and not job.texts:
        return found
    jobs = [
        SurveyJob(job.lake.of(pieces), job.numbers, job.texts, job.missing, job.categorical, job.absent)
        for pieces in _tasks(job.lake.pieces)
    ]
    for part in (run or decode_here(job.lake))(_survey, jobs):
        for name, counts in part.numbers.items():
            found.numbers[name].add(counts)
        found.texts.add(part.texts)
    return found


def columns_with_nan(lake: Lake, names: Sequence[str]) -> tuple[str, ...]:
    """Return those columns of floats that have NaN among the first rows of some row groups, without reading all."""
    floats = [name for name in names if pa.types.is_floating(lake.schema.field(name).type)]
    if not floats:
        return ()
    every = max(_PROBED_SHARE, len(lake.pieces) // _PROBED)  # the pass over all rows finds what is missed here
    found: set[str] = set()
    for piece in lake.pieces[::every]:
        # A small row group is decoded whole, which takes less time than its first rows.
        whole = lake.where is None and piece.n_rows <= _WHOLE_ROWS
        rows = piece.n_rows if whole else _PROBED_ROWS
        for batch in lake.batches(piece, floats, rows):
            columns = batch.rows.slice(0, _PROBED_ROWS).columns
            found.update(name for name, column in zip(floats, columns, strict=True) if _has_nan(column))
            break
    return tuple(floats) if found else ()


def _has_nan(column: pa.Array) -> bool:
    if not column.null_count and is_plain(column.type):
        return bool(np.isnan(to_numpy(column)).any())  # in a third of the time of Arrow's functions
    return bool(pc.any(pc.is_nan(column)).as_py())


def _empty(job: SurveyJob) -> LakeSurvey:
    dates = [name for name in job.texts if name not in job.lake.categories] if job.categorical == "auto" else []
    texts = TextCounts(job.texts, job.categorical, job.absent, job.lake.name, dates, job.missing)
    return LakeSurvey({name: NumberCounts() for name in job.numbers}, texts)


def _tasks(pieces: Sequence[LakePiece]) -> list[list[LakePiece]]:
    tasks: list[list[LakePiece]] = [[]]
    size = 0
    for piece in pieces:
        if tasks[-1] and size + piece.n_bytes > _TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.n_bytes
    return tasks


def _survey(job: SurveyJob) -> LakeSurvey:
    lake, columns = job.lake, [*job.numbers, *job.texts]
    found = _empty(job)
    for piece in lake.pieces:
        batches = lake.batches(piece, columns, BLOCK_ROWS)
        for batch in batches if lake.decoded is None else lake.decoded.keep(piece, batches):
            for name, counts in found.numbers.items():
                counts.update(batch.rows.column(name), job.missing, f"column {name!r} of {batch.source}")
            found.texts.update(batch.rows)
    return found
