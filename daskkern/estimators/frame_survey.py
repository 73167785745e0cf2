"""The encodings of the columns of a data frame, from a pass over its chunks."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.data.ingest.columns.categories import survey_categories
from daskkern.data.ingest.columns.dates import DateSurvey, days_of_texts
from daskkern.data.ingest.readers.arrow import is_text, texts_of, to_numpy
from daskkern.data.schema.encoding import ABSENT, MISSING_TEXTS, ColumnEncoding, Encoding, UnknownChoice

NO_TEXT = ("",)
_BATCH_ROWS = 1 << 16
Chunks: TypeAlias = Callable[[], Iterator[pa.Table]]


class _Numbers:
    """Number, sum and gaps of the values of a column."""

    def __init__(self) -> None:
        self.count, self.gaps, self.sum = 0, 0, 0.0

    def add(self, values: np.ndarray) -> None:
        """Add values, NaN where there is none."""
        present = values[~np.isnan(values)]
        self.count += present.size
        self.gaps += values.size - present.size
        self.sum += float(present.sum())


class _Texts:
    """Whether all texts of a column are dates, and the days that they are."""

    def __init__(self) -> None:
        self._survey, self.days = DateSurvey(), _Numbers()

    @property
    def are_dates(self) -> bool:
        """Whether every text is a date in the notation of ISO 8601."""
        return self._survey.are_dates

    def add(self, texts: pa.Array, name: str) -> None:
        """Add the texts of a chunk, null where there is none."""
        known = texts_of(texts, MISSING_TEXTS)
        self._survey.update(known.drop_null())
        if not self._survey.is_excluded:
            self.days.add(to_numpy(days_of_texts(known, name, "X", 0)).astype(np.float64))


def survey(chunks: Chunks, unknown: UnknownChoice = "refuse") -> Encoding:
    """Return the encodings of all columns. Texts that are all dates, as in a CSV file, are dates.

    With `unknown` ``"ignore"`` these record their mean, which then stands for later texts that are not dates.
    """
    numbers: defaultdict[str, _Numbers] = defaultdict(_Numbers)
    coded: dict[str, set[str]] = {}
    gaps: defaultdict[str, int] = defaultdict(int)
    texts: defaultdict[str, _Texts] = defaultdict(_Texts)
    names: list[str] = []
    for table in chunks():
        names = table.schema.names
        for name, column in zip(names, table.columns, strict=True):
            values = pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
            if pa.types.is_dictionary(column.type):
                coded.setdefault(name, set()).update(pc.unique(values.cast(pa.string())).drop_null().to_pylist())
                gaps[name] += values.null_count
            elif is_text(column.type):
                texts[name].add(texts_of(values, NO_TEXT).cast(pa.string()), name)
            else:
                numbers[name].add(to_numpy(values).astype(np.float64))
    written = {name: found for name, found in texts.items() if name not in coded}
    dates = {name: found.days for name, found in written.items() if found.are_dates}
    plain = [name for name in written if name not in dates]
    known = survey_categories(_batches(chunks, plain), plain, "auto", "auto", NO_TEXT, "X") if plain else {}
    quantities = {name: found for name, found in numbers.items() if name not in coded and name not in texts} | dates
    fills = any(found.gaps for found in quantities.values())
    for name, each in quantities.items():  # a column without any value is constant, and a scaling leaves it out
        fill = each.sum / max(each.count, 1) if fills or (unknown == "ignore" and name in dates) else None
        known[name] = ColumnEncoding(name, fill=fill, is_date=name in dates)
    for name, categories in coded.items():
        absent = ABSENT if gaps[name] else None
        every = tuple(sorted(categories | ({ABSENT} if absent else set())))
        known[name] = ColumnEncoding(name, "code", every, absent)
    return tuple(known[name] for name in names)


def _batches(chunks: Chunks, names: list[str]) -> Iterator[pa.RecordBatch]:
    for table in chunks():
        columns = [table.column(name).cast(pa.string()) for name in names]
        yield from pa.table(columns, names=names).to_batches(max_chunksize=_BATCH_ROWS)
