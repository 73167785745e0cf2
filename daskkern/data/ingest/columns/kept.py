"""Columns of CSV files that are carried through unchanged: which Arrow types keep their values as they are written."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"  # what int64 holds, and writes the same way

TextBatches: TypeAlias = Callable[[dict[str, pa.DataType], Sequence[str]], Iterator[pa.RecordBatch]]
"""A pass over columns of a file, which takes the types and the names of the columns."""


def kept_types(files: Sequence[TextBatches], names: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types of columns, from a pass over all files: whole numbers written as such, and texts otherwise.

    ``007`` is a text, because as a number it would lose its zeros, and so is a column with an empty cell.
    """
    whole = dict.fromkeys(names, True)
    texts = dict.fromkeys(names, pa.string())
    for batches in files if whole else ():
        for batch in batches(texts, list(texts)):
            for name in whole:
                whole[name] &= bool(pc.all(pc.match_substring_regex(batch.column(name), _WHOLE)).as_py())
    return {name: pa.int64() if found else pa.string() for name, found in whole.items()}
