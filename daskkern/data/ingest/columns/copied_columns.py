"""Columns of CSV files that are copied unchanged, and the Arrow types that preserve their values."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = r"^(0|-?[1-9][0-9]{0,17})?$"  # what int64 holds, and writes the same way, or an empty cell
_NUMBER = r"^(-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,17})?([eE][-+]?[0-9]{1,3})?)?$"  # or an empty cell

TextBatches: TypeAlias = Callable[[dict[str, pa.DataType], Sequence[str]], Iterator[pa.RecordBatch]]
"""A pass over columns of a file, which takes the types and the names of the columns."""


def kept_types(files: Sequence[TextBatches], names: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types of columns, from a pass over all files: those of numbers where none loses by it, else texts.

    Whole numbers stay whole, also where cells are empty. ``007`` is a text, because as a number it would lose its
    zeros, and so is a number with more digits than float64 has.
    """
    kinds = {name: [(pa.int64(), _WHOLE), (pa.float64(), _NUMBER)] for name in names}
    texts = dict.fromkeys(names, pa.string())
    for batches in files if kinds else ():
        for batch in batches(texts, list(texts)):
            for name, left in kinds.items():
                kinds[name] = [kind for kind in left if _all_match(batch.column(name), kind[1])]
    return {name: left[0][0] if left else pa.string() for name, left in kinds.items()}


def _all_match(values: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())
