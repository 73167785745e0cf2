"""Texts that denote quantities: percentages, amounts of money, grouped digits, decimal commas, dates and times."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MOST_WRITTEN = 10
"""Different texts of a column up to which they are categories or classes, however they are written."""
_SHARE, _LEAST = 0.9, 0.1  # of the rows of a column: with plain numbers, and without
_NUMBER = r"[-+]?(\d+([.,]\d+)?|\d{1,3}([,. ]\d{3})+([.,]\d+)?)"
_CURRENCY = r"[$€£¥]|USD|EUR|GBP|JPY|CHF"
_DAY = r"(0?[1-9]|[12]\d|3[01])"
_DATE = "|".join(
    rf"\d{{4}}{mark}{_DAY}{mark}{_DAY}|{_DAY}{mark}{_DAY}{mark}(\d{{4}}|\d{{2}})" for mark in ("-", "/", r"\.")
)
_TIME = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*(Z|[-+]\d{2}:?\d{2}|[AaPp]\.?[Mm]\.?)?"


@dataclass(frozen=True)
class WrittenAs:
    """A way in which quantities are written: its name, its pattern, and what to write instead."""

    name: str
    pattern: re.Pattern[str]
    remedy: str


_WAYS = tuple(
    WrittenAs(name, re.compile(rf"\s*({pattern})\s*"), remedy)
    for name, pattern, remedy in (
        ("percentages", rf"{_NUMBER}\s*%", "write plain numbers"),
        (
            "amounts of money",
            rf"[-+]?({_CURRENCY})\s*{_NUMBER}|{_NUMBER}\s*({_CURRENCY})",
            "write plain numbers",
        ),
        ("numbers with separators", _NUMBER, "write plain numbers such as 3000.5"),
        (
            "dates or times",
            rf"({_DATE})([T ]\s*({_TIME}))?|{_TIME}",
            "write dates as 2026-01-31 or 2026-01-31T12:00:00 in every row (as dates in Parquet), times as numbers",
        ),
    )
)


def written_as(texts: Mapping[str, int], n_rows: int) -> WrittenAs | None:
    """Return the way in which nine in ten of the values are written, plain numbers included, or None.

    Parameters
    ----------
    texts : mapping from str to int
        The texts of a column that are not plain numbers, and how often each of them occurs.
    n_rows : int
        Values of the column, plain numbers included: at least a tenth of them must be written in this way.
    """
    plain = n_rows - sum(texts.values())
    for way in _WAYS:
        found = sum(count for text, count in texts.items() if way.pattern.fullmatch(text))
        if found >= _LEAST * n_rows and found + plain >= _SHARE * n_rows > 0:
            return way
    return None


def is_number(text: str | bytes) -> bool:
    """Return whether Python reads `text` as a number, NaN and infinity included."""
    try:
        float(text)
    except ValueError:
        return False
    return True
