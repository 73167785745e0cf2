"""Dates that are written as texts, as CSV files have them, where the training rows had a column of dates."""

import pyarrow as pa
import pyarrow.compute as pc

from daskkern.data.ingest.readers.arrow import to_numbers
from daskkern.errors import DataError

_KINDS = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


def days_of_texts(texts: pa.Array, name: str, source: str, first: int) -> pa.Array:
    """Return days since 1970-01-01, float64, of dates in the notation of ISO 8601; null where a text is null.

    Times without an offset from UTC count as UTC, as those of typed files do. Numbers are days already.

    Parameters
    ----------
    texts : array of strings (m,)
    name, source : str
        Of the column and its file, for messages.
    first : int
        Number of the first row.

    Raises
    ------
    DataError
        For a text that is neither a date nor a number, which the message names.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    found = _days(trimmed)
    if found is not None:
        return found
    each = [_days(trimmed.slice(row, 1)) for row in range(len(trimmed))]  # one notation a row, or a wrong one
    bad = next((row for row, value in enumerate(each) if value is None), None)
    if bad is not None:
        raise DataError(
            f"row {first + bad} of {source} (counted from 0) has {trimmed[bad].as_py()!r:.60} in column {name!r}, "
            "where the training rows had dates; write it as 2026-01-31, 2026-01-31T12:00:00 or days since 1970-01-01"
        )
    return pa.concat_arrays([value for value in each if value is not None])


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
