"""Texts that stand for quantities: percentages, amounts of money, grouped digits, decimal commas, dates and times."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SHARE = 0.9  # of the rows of a column that must be written so
_NUMBER = r"[-+]?(\d+([.,]\d+)?|\d{1,3}([,. ]\d{3})+([.,]\d+)?)"
_CURRENCY = r"[$€£¥]|USD|EUR|GBP|JPY|CHF"
_DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
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
            "write them as numbers, such as days since the first one",
        ),
    )
)


def written_as(counts: Mapping[str, int]) -> WrittenAs | None:
    """Return the way in which nine in ten of the texts are written, or None.

    Parameters
    ----------
    counts : mapping from str to int
        The texts of a column, and how often each of them occurs.
    """
    total = sum(counts.values())
    for way in _WAYS:
        if sum(count for text, count in counts.items() if way.pattern.fullmatch(text)) >= _SHARE * total > 0:
            return way
    return None
