"""Dates in another notation than in the training rows: as text, as in CSV files, or as numbers."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.written_values import is_number
from daskkern.data.ingest.readers.arrow import is_time, texts_of, to_numbers
from daskkern.data.schema.encoding import MISSING_TEXTS, ColumnEncoding, UnknownChoice
from daskkern.errors import DataError

_MOST_DAYS = 3_000_000  # the end of the year 9999 is day 2,932,896
_WRITTEN = r"^\s*\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[-+]\d{2}(:?\d{2})?)?)?\s*$"
_WITH_TIME, _WITH_ZONE = r":\d{2}", r":.*(Z|[-+]\d{2}(:?\d{2})?)$"
_KINDS = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


def are_dates(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether all texts are dates that exist, in the notation of ISO 8601 with or without a time."""
    if not pc.all(pc.match_substring_regex(texts, _WRITTEN), min_count=0).as_py():
        return False
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return _of_several_notations(pc.utf8_trim_whitespace(whole)) is not None


class DateSurvey:
    """Whether all texts of a column that were seen so far are dates."""

    def __init__(self) -> None:
        self._all: bool | None = None

    @property
    def are_dates(self) -> bool:
        """Whether there were texts, and every one is a date."""
        return bool(self._all)

    @property
    def is_excluded(self) -> bool:
        """Whether a text was no date, which later ones do not change."""
        return self._all is False

    def update(self, present: pa.Array | pa.ChunkedArray) -> None:
        """Look at the texts of a chunk, without missing ones."""
        if not self.is_excluded and len(present):
            self._all = are_dates(present)

    def add(self, other: "DateSurvey") -> None:
        """Look at the texts that another survey has seen."""
        if not self.is_excluded and other._all is not None:
            self._all = other._all


def days_of_column(
    values: pa.Array, column: ColumnEncoding, source: str, first: int, unknown: UnknownChoice = "refuse"
) -> pa.Array:
    """Return days since 1970-01-01, float64, of a column of written dates; null where a text stands for no value.

    With `unknown` ``"ignore"``, other texts than dates are missing, too, where the encoding replaces missing values.
    Else as :func:`days_of_texts`; texts may be a dictionary.
    """
    if pa.types.is_dictionary(values.type):
        days = _of_several_notations(pc.utf8_trim_whitespace(texts_of(values.dictionary, MISSING_TEXTS)))
        if days is not None:
            return days.take(values.indices)
    texts = texts_of(values, MISSING_TEXTS)
    if column.fill is None:
        return days_of_texts(texts, column.name, source, first)
    try:
        return days_of_texts(texts, column.name, source, first, ignores=unknown == "ignore")
    except DataError as error:
        raise DataError(f"{error}, or predict with --unknown ignore, which takes it for a missing value") from None


def days_of_texts(texts: pa.Array, name: str, source: str, first: int, *, ignores: bool = False) -> pa.Array:
    """Return days since 1970-01-01, float64, of dates in the notation of ISO 8601; null where a text is null.

    Times without an offset from UTC count as UTC, as those of typed files do. Numbers are days already.

    Parameters
    ----------
    texts : array of strings (m,)
    name, source : str
        Of the column and its file, for messages.
    first : int
        Number of the first row.
    ignores : bool
        Whether other texts are null.

    Raises
    ------
    DataError
        For a text that is neither a date nor a number, which the message names, unless these are ignored.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    found = _of_several_notations(trimmed)
    if found is not None:
        return found
    coded = trimmed.dictionary_encode()  # one notation a text, or a wrong one
    each = [_days(coded.dictionary.slice(code, 1)) for code in range(len(coded.dictionary))]
    bad = [code for code, days in enumerate(each) if days is None]
    if bad and not ignores:
        row = pc.index(pc.is_in(coded.indices, pa.array(bad, coded.indices.type)), True).as_py()
        raise DataError(
            f"row {first + row} of {source} (counted from 0) has {trimmed[row].as_py()!r:.60} in column {name!r}, "
            "where the training rows had dates; write it as 2026-01-31, 2026-01-31T12:00:00 or days since 1970-01-01"
        )
    absent = pa.nulls(1, pa.float64())
    return pa.concat_arrays([absent if days is None else days.cast(pa.float64()) for days in each]).take(coded.indices)


def refuse_other_numbers(days: HostArray, kind: pa.DataType, name: str, source: str, first: int) -> None:
    """Raise DataError where numbers of Arrow type `kind`, NaN where missing, are not days: years, seconds, 20260131."""
    if is_time(kind):
        return
    far = np.abs(np.nan_to_num(days)) > _MOST_DAYS
    if far.any():
        row = int(np.argmax(far))
        raise DataError(
            f"row {first + row} of {source} (counted from 0) has {days[row]:.15g} in column {name!r}, where the "
            "training rows had dates: numbers count as days since 1970-01-01, and that is beyond the year 9999; write "
            "dates, such as 2026-01-31T12:00:00"
        )


def note_on_dates(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on the columns that hold dates."""
    return (f"dates became days since 1970-01-01: {', '.join(names)}",) if names else ()


def texts_of_moments(values: pa.Array, categories: Sequence[str]) -> pa.Array:
    """Return dates and times as texts: those of the categories that are the same moment, else in ISO notation."""
    known = {}
    for category in categories:
        days = None if is_number(category) else _days(pa.array([category]))
        if days is not None:
            known[days[0].as_py()] = category
    moments, texts = to_numbers(values).tolist(), values.cast(pa.string()).to_pylist()
    found = [known.get(moment, text) for moment, text in zip(moments, texts, strict=True)]
    return pa.array(found, pa.string())


def _of_several_notations(texts: pa.Array) -> pa.Array | None:
    """Return days of texts that are dates, with or without a time and a zone, or numbers; None where one is neither."""
    found = _days(texts)
    if found is not None:
        return found
    has_time, has_zone = (pc.match_substring_regex(texts, pattern) for pattern in (_WITH_TIME, _WITH_ZONE))
    masks = (has_zone, pc.and_not(has_time, has_zone), pc.invert(has_time))
    for mask in masks:
        part = _days(texts.filter(mask))
        if part is None:
            return None
        found = part.cast(pa.float64()) if found is None else pa.concat_arrays([found, part.cast(pa.float64())])
    rows = pa.concat_arrays([pc.indices_nonzero(mask) for mask in (*masks, pc.is_null(texts))])
    assert found is not None
    every = pa.concat_arrays([found, pa.nulls(texts.null_count, pa.float64())])
    return every.take(pc.sort_indices(rows))


def _days(texts: pa.Array) -> pa.Array | None:
    """Return days where all texts are of one notation."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        pass
    for kind in _KINDS:
        try:
            return pa.array(to_numbers(texts.cast(kind)), from_pandas=True)
        except pa.ArrowInvalid:
            continue
    return None
