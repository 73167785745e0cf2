"""Detection of class labels among floats: a few distinct whole numbers, as in tables that write 0.0 and 1.0."""

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.ingest.readers.tables import Table

FEW = 20
"""Maximum number of different values of a float target that are taken for classes."""

_ROWS_EACH = 2  # on average; labels repeat at least this often


def n_few_whole_numbers(table: Table) -> int:
    """Return the number of different values of a float target if they look like class labels, else 0.

    They do where all are whole numbers, at least two of them differ, at most `FEW` do, and there are two rows or more
    for each. One pass over the targets, which ends at the first block that violates this. Returns 0 for tables
    whose targets cannot be read separately.
    """
    if table.targets is None:
        return 0
    found: set[float] = set()
    n_rows = 0
    for y in table.targets():
        values: FloatArray = np.unique(np.asarray(y, np.float64))
        if not is_whole(values):
            return 0
        found.update(values.tolist())
        n_rows += len(y)
        if len(found) > FEW:
            return 0
    return len(found) if len(found) >= 2 and n_rows >= _ROWS_EACH * len(found) else 0


def is_whole(values: HostArray) -> bool:
    """Return whether all floats are finite whole numbers."""
    return bool(np.isfinite(values).all() and (values == np.floor(values)).all())
