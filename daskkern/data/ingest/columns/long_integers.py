"""Detection of integer targets in CSV files that lost digits when they were read as float64."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.copied_columns import TextBatches
from daskkern.data.rows.exact_integers import LARGEST, REMEDY
from daskkern.errors import DataError

_INTEGER = r"^\s*[-+]?[0-9]{16,}\s*$"


def may_be_rounded(y: HostArray) -> bool:
    """Return whether targets (m,) or (m, t) hold a float so large that it may have been written as another integer."""
    return bool(y.dtype.kind == "f" and y.size and np.abs(y).max() >= LARGEST)


def refuse_rounded(batches: TextBatches, names: Sequence[str], source: str) -> None:
    """Raise DataError for the first integer beyond 2^53 in columns of a file, from a pass over their texts."""
    first = 0
    for batch in batches(dict.fromkeys(names, pa.string()), names):
        for name in names:
            texts = batch.column(name)
            for row in np.flatnonzero(np.asarray(pc.match_substring_regex(texts, _INTEGER))):
                if abs(int(texts[row].as_py())) > LARGEST:
                    raise DataError(
                        f"row {first + row} of {source} (counted from 0) has the target {texts[row].as_py().strip()}; "
                        f"{REMEDY}; write labels as text"
                    )
        first += batch.num_rows
