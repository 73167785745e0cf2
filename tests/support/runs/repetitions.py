"""Cases of a test that the default run leaves to the longer one (``-m repeated``), which the checks of a change run."""

from collections.abc import Iterable
from itertools import groupby

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
