"""Type inference for the columns of CSV files: booleans, integers, numbers, dates or text."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from daskkern.data.ingest.columns.copied_columns import TextBatches
from daskkern.data.ingest.columns.dates import DateSurvey
from daskkern.data.ingest.readers.tables import TargetKind
from daskkern.data.schema.encoding import MISSING_TEXTS
from daskkern.errors import DataError

TYPES: dict[TargetKind, pa.DataType] = {
    "text": pa.string(),
    "truth": pa.bool_(),
    "integer": pa.int64(),
    "float": pa.float64(),
}


_SPELLED = ("false", "true")  # by value
_AS_ARROW = ("true", "True", "TRUE", "false", "False", "FALSE")  # what Arrow reads as booleans
_PADDED = r"^\s*[-+]?0\d+\s*$"


class KindSurvey:
    """The kinds that fit all values of a column seen so far, and the number of missing ones.

    Parameters
    ----------
    labels : bool
        Whether values are labels: ``007`` and ``07`` are then two texts, rather than the number 7.
    """

    def __init__(self, labels: bool = False) -> None:
        self._possible: list[TargetKind] = ["truth", "integer", "float"]
        self._labels = labels
        self._dates = DateSurvey()
        self.gaps = 0

    @property
    def is_number(self) -> bool:
        """Whether every value is a number."""
        return "integer" in self._possible or "float" in self._possible

    @property
    def is_text(self) -> bool:
        """Whether a value was neither number nor boolean, so that the kind is final."""
        return not self._possible

    @property
    def is_date(self) -> bool:
        """Whether every value is a date in the notation of ISO 8601, with or without a time."""
        return self._dates.are_dates

    @property
    def kind(self) -> TargetKind:
        """The narrowest kind that fits every value."""
        return self._possible[0] if self._possible else "text"

    def update(self, values: pa.Array | pa.ChunkedArray) -> None:
        present = values.filter(pc.invert(pc.is_in(values, pa.array(MISSING_TEXTS))))
        self.gaps += len(values) - len(present)
        if self._labels and self._possible and pc.any(pc.match_substring_regex(present, _PADDED)).as_py():
            self._possible = []
        self._possible = [kind for kind in self._possible if _fits(present, kind, self._labels)]
        self._dates.update(present)


def booleans_of(batches: TextBatches, names: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the type, texts, of those columns whose first values are "true" and "false" alone.

    Data frames and Parquet files have booleans, which are the numbers 1 and 0; a CSV file of the same rows has texts,
    which :func:`numbers_of_booleans` converts. A column is decided by the first block in which it has a value.
    """
    types = dict.fromkeys(names, pa.string())
    undecided, found = list(names), list[str]()
    for block in batches(types, list(types)) if types else ():
        present = [name for name in undecided if _has_values(block.column(name))]
        found += [name for name in present if are_booleans(block.column(name))]
        undecided = [name for name in undecided if name not in present]
        if not undecided:
            break
    return dict.fromkeys(found, pa.string())


def numbers_of_booleans(texts: pa.Array, name: str, source: str, first: int) -> pa.Array:
    """Return "true" as 1 and "false" as 0, in any case; null where a text is null. DataError for other texts."""
    spelled = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    found = pc.index_in(spelled, value_set=pa.array(_SPELLED))
    other = pc.index(pc.and_(pc.is_null(found), pc.is_valid(texts)), True).as_py()
    if other >= 0:
        raise DataError(
            f"row {first + other} of {source} (counted from 0) has {texts[other].as_py()!r:.60} in column {name!r}, "
            "where true or false is expected; correct it, or leave the column out with --drop"
        )
    return found


def _has_values(texts: pa.Array | pa.ChunkedArray) -> bool:
    return not pc.all(pc.is_in(texts, pa.array(MISSING_TEXTS)), min_count=0).as_py()


def are_booleans(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether texts are "true" and "false", in any case, and missing values; not where all are missing."""
    survey = KindSurvey()
    survey.update(texts.cast(pa.string()).drop_null())
    return survey.kind == "truth" and not survey.is_number


def _fits(values: pa.Array | pa.ChunkedArray, kind: TargetKind, as_written: bool) -> bool:
    trimmed = pc.utf8_trim_whitespace(values)
    if kind == "truth":
        spelled = (
            pc.is_in(values, pa.array(_AS_ARROW))
            if as_written
            else pc.is_in(pc.utf8_lower(trimmed), pa.array(_SPELLED))
        )
        return bool(pc.all(spelled, min_count=0).as_py())
    try:
        trimmed.cast(TYPES[kind])
    except pa.ArrowInvalid:
        return False
    return True
