"""``-`` in place of a table: CSV on stdin, copied to a temporary file, because tables are read more than once."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daskkern.errors import DataError, SpecError

STDIN = "-"


@contextmanager
def read_from_stdin(place: str, *, elsewhere: bool = False) -> Iterator[str]:
    """Yield `place`, or where it is ``-`` the path of a temporary file with what standard input has.

    Raises
    ------
    SpecError
        Where the file would be read `elsewhere`, by the workers of a running cluster.
    DataError
        Where standard input is empty.
    """
    if place != STDIN:
        yield place
        return
    if elsewhere:
        raise SpecError("got - with a running cluster, but workers elsewhere cannot read stdin; give a file or a URL")
    with tempfile.TemporaryDirectory(prefix="daskkern-") as folder:
        file = Path(folder) / "stdin.csv"
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        if not file.stat().st_size:
            raise DataError("got -, but stdin is empty; pipe a CSV table with a line of column names to this command")
        yield str(file)


@contextmanager
def each_from_stdin(places: tuple[str, ...], *, elsewhere: bool) -> Iterator[tuple[str, ...]]:
    """Yield `places`, with one ``-`` among them replaced as by :func:`read_from_stdin`. Raises SpecError for two."""
    if places.count(STDIN) > 1:
        raise SpecError("got - twice, but there is one stdin; give it once")
    if STDIN not in places:
        yield places
        return
    with read_from_stdin(STDIN, elsewhere=elsewhere) as file:
        yield tuple(file if place == STDIN else place for place in places)
