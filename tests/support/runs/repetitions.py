"""Cases of a test that the default run leaves to the longer one (``-m repeated``), and the shares of that run."""

from collections.abc import Iterable
from itertools import groupby
from zlib import crc32

import pytest


def mark_repetitions(items: Iterable[pytest.Item]) -> None:
    """Mark as ``repeated`` all cases but each n-th of a test that carries ``one_in(n, first=0)``.

    Choose an n without a common divisor with the number of values of the last parameter: each of them comes up then.
    Tests of one table begin with different cases, so that each row of it is in some of them.
    """
    for _, cases in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        for number, item in enumerate(cases):
            marker = item.get_closest_marker("one_in")
            if marker is None:
                continue
            n, first = (*marker.args, 0)[:2]
            if number % n != first:
                item.add_marker(pytest.mark.repeated)


def share(text: str) -> tuple[int, int]:
    """Read ``K/N``: the K-th of N shares of the cases.

    Raises
    ------
    ValueError
        When it is none.
    """
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"got the share {text!r}; expected K/N with K from 1 to N, such as 1/3")
    return int(part), int(parts)


def in_share(nodeid: str, part: int, parts: int) -> bool:
    """Return whether a case belongs to the `part`-th of `parts` shares. It depends on its name only."""
    return crc32(nodeid.encode()) % parts == part - 1
