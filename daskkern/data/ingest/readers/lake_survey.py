"""The first pass over a lake: categories of text columns, and statistics of numbers with missing values.

Only these columns are read, in tasks of fixed size, and their results are merged in the order of the rows: the
outcome does not depend on who runs the tasks.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import FloatArray
from daskkern.data.ingest.columns.categories import TextCounts
from daskkern.data.ingest.readers.arrow import to_numbers
from daskkern.data.lake.lake import Lake, LakePiece
from daskkern.data.lake.opening import TaskRunner
from daskkern.data.schema.encoding import CategoricalChoice, MissingChoice
from daskkern.errors import DataError

_TASK_BYTES = 128 << 20  # of all columns, compressed
BLOCK_ROWS = 1 << 16
_PROBED, _PROBED_ROWS = 8, 4096
_MOST_VALUES = 100_000  # different values of a column up to which the most frequent one is determined


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
class NumberCounts:
    """The values of a column of numbers: their sum, how many are present and missing, and how often each occurs."""

    total: float = 0.0
    present: int = 0
    gaps: int = 0
    values: Counter[float] = field(default_factory=Counter)

    def add(self, other: "NumberCounts") -> None:
        """Count the rows that follow."""
        self.total += other.total
        self.present += other.present
        self.gaps += other.gaps
        self.values.update(other.values)

    def fill(self, missing: MissingChoice) -> float | None:
        """Return the replacement of missing values; None for a column without values."""
        if missing == "constant":
            return 0.0
        if not self.present:
            return None
        if missing == "mean":
            return self.total / self.present
        return min(self.values, key=lambda value: (-self.values[value], value))


@dataclass
class LakeSurvey:
    """What a pass found, by column."""

    numbers: dict[str, NumberCounts]
    texts: TextCounts


def survey(job: SurveyJob, run: TaskRunner) -> LakeSurvey:
    """Examine columns of a whole lake. Raises DataError for texts that are no categories."""
    found = _empty(job)
    if not job.numbers and not job.texts:
        return found
    jobs = [
        SurveyJob(job.lake.of(pieces), job.numbers, job.texts, job.missing, job.categorical, job.absent)
        for pieces in _tasks(job.lake.pieces)
    ]
    for part in run(_survey, jobs):
        for name, counts in part.numbers.items():
            found.numbers[name].add(counts)
        found.texts.add(part.texts)
    return found


def columns_with_nan(lake: Lake, names: Sequence[str]) -> tuple[str, ...]:
    """Return those columns of floats that have NaN among the first rows of some row groups, without reading all."""
    floats = [name for name in names if pa.types.is_floating(lake.schema.field(name).type)]
    if not floats:
        return ()
    every = max(1, len(lake.pieces) // _PROBED)
    found: set[str] = set()
    for piece in lake.pieces[::every]:
        for batch in lake.batches(piece, floats, _PROBED_ROWS):
            found.update(name for name in floats if _has_nan(batch.rows.column(name)))
            break
    return tuple(floats) if found else ()


def _has_nan(column: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(column)).as_py())


def _empty(job: SurveyJob) -> LakeSurvey:
    texts = TextCounts(job.texts, job.categorical, job.absent, job.lake.name)
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
        for batch in lake.batches(piece, columns, BLOCK_ROWS):
            for name, counts in found.numbers.items():
                _count(batch.rows.column(name), counts, job.missing, f"column {name!r} of {batch.source}")
            found.texts.update(batch.rows)
    return found


def _count(column: pa.Array, counts: NumberCounts, missing: MissingChoice, name: str) -> None:
    if missing == "mean" and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        total = pc.sum(column.cast(pa.float64(), safe=False), min_count=0).as_py()
        if not math.isnan(total):  # gaps are nulls alone
            counts.total += total
            counts.present += len(column) - column.null_count
            counts.gaps += column.null_count
            return
    values: FloatArray = to_numbers(column.drop_null() if column.null_count else column).astype(np.float64, copy=False)
    holes = np.isnan(values)
    if holes.any():
        values = values[~holes]
    counts.present += len(values)
    counts.gaps += len(column) - len(values)
    if missing == "mean":
        counts.total += float(values.sum())
    elif missing == "most_frequent":
        found, times = np.unique(values, return_counts=True)
        counts.values.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
        if len(counts.values) > _MOST_VALUES:
            raise DataError(
                f"{name} has more than {_MOST_VALUES} different values, so its most frequent one is not meaningful; "
                "use --missing mean"
            )
