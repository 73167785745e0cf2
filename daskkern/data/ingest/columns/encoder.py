"""The conversion of batches of Arrow columns to features.

A lake has hundreds of columns and thousands of batches, so what is done for each column of a batch is a few calls of
NumPy: numbers are read from Arrow's buffers without a copy, and texts are looked up by way of the few texts of their
dictionary.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.dates import days_of_column, refuse_other_numbers, texts_of_moments
from daskkern.data.ingest.columns.kind_survey import numbers_of_booleans
from daskkern.data.ingest.readers.arrow import (
    indices_of,
    is_plain,
    is_text,
    is_time,
    known_texts,
    refuse_missing,
    texts_of,
    to_numbers,
    to_numpy,
)
from daskkern.data.schema.encoding import (
    ColumnEncoding,
    Encoding,
    MissingChoice,
    UnknownChoice,
    feature_names_of,
)
from daskkern.errors import DataError

_COMPARED = 32  # categories up to which comparing all codes with each is faster than setting single entries
_NOWHERE = -1  # the code of a category without a feature
_LINE = 16  # float32 values of a cache line


@dataclass(frozen=True)
class Encoder:
    """Conversion of Arrow columns to features.

    Attributes
    ----------
    encoding : tuple of ColumnEncoding
        Encodings of the feature columns, in order.
    missing : MissingChoice
        Missing numbers become NaN, to be filled later, unless they are refused.
    absent : sequence of str
        Texts that stand for a missing value.
    unknown : UnknownChoice
        What becomes of categories that the encoding lacks, and of other texts than dates among dates.
    """

    encoding: Encoding
    missing: MissingChoice
    absent: tuple[str, ...]
    unknown: UnknownChoice = "refuse"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the source columns, in order."""
        return tuple(column.name for column in self.encoding)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return feature_names_of(self.encoding)

    @cached_property
    def n_features(self) -> int:
        """Number of features."""
        return sum(column.width for column in self.encoding)

    @property
    def recorded(self) -> Encoding | None:
        """The encoding that a store records: None when every column is used unchanged."""
        return None if all(column.is_plain for column in self.encoding) else self.encoding

    def features(self, batch: pa.RecordBatch, dtype: "np.dtype[np.generic]", source: str, first: int) -> HostArray:
        """Return the features (m, d) of a batch, whose first row is row `first` of `source`; columns are contiguous."""
        X = by_column(batch.num_rows, self.n_features, dtype)
        at = 0
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        for column in self.encoding:
            self.set_column(X[at : at + column.width], found[column.name], column, source, first)
            at += column.width
        return X.T  # (m, d), in column order

    def set_column(self, rows: HostArray, values: pa.Array, column: ColumnEncoding, source: str, first: int) -> None:
        """Set `rows` (k, m) to the k features of a column (m,), whose first row is row `first` of `source`."""
        if column.kind != "number":
            codes = self._codes(values, column, source, first)
            if column.kind != "onehot":
                rows[0] = codes
            else:
                _set_onehot(rows, codes)
            return
        numbers = values if is_plain(values.type) else self._numbers_of(values, column, source, first)
        if self.missing == "refuse":
            refuse_missing(numbers, column.name, source, first)
        _set_numbers(rows[0], to_numbers(numbers), column.fill)
        if column.is_date:
            refuse_other_numbers(rows[0], values.type, column.name, source, first)

    def _numbers_of(self, values: pa.Array, column: ColumnEncoding, source: str, first: int) -> pa.Array:
        """Return written dates and booleans as numbers, other columns as they are."""
        if not is_text(values.type):
            return values
        if column.is_date:
            return days_of_column(values, column, source, first, self.unknown)
        return numbers_of_booleans(texts_of(values, self.absent), column.name, source, first)

    def _codes(self, values: pa.Array, column: ColumnEncoding, source: str, first: int) -> HostArray:
        """Return the positions of texts among the categories; of codes, their number for unknown texts."""
        if pa.types.is_dictionary(values.type):
            codes = self._codes_of_dictionary(values, column)
            if codes is not None:
                return codes
        if pa.types.is_boolean(values.type):
            values = _as_written(values, column.categories)
        if is_time(values.type):
            values = texts_of_moments(values, column.categories)
        texts = texts_of(values, self.absent)
        if column.fill is not None:
            texts = pc.fill_null(texts, column.fill)
        if column.kind != "code" or self.missing == "refuse":
            refuse_missing(texts, column.name, source, first)
        codes = pc.index_in(texts, value_set=pa.array(column.categories, pa.string()))
        if column.kind == "code":
            return to_numpy(pc.fill_null(codes, len(column.categories)))
        if codes.null_count and column.kind == "onehot" and self.unknown == "ignore":
            codes = pc.fill_null(codes, _NOWHERE)
        if codes.null_count:
            raise _unknown_category(texts, codes, column, source, first)
        return to_numpy(codes)

    def _codes_of_dictionary(self, values: pa.DictionaryArray, column: ColumnEncoding) -> HostArray | None:
        """Return the codes by way of the few texts of a dictionary; None where some row needs more than that."""
        table = self.codes_of_texts(values.dictionary, column)
        indices = values.indices
        codes: HostArray = table.take(indices_of(indices, len(table) - 1))
        may_fail = table[:-1].min(initial=0) < 0 or (table[-1] < 0 and indices.null_count)
        return None if may_fail and codes.size and codes.min() < 0 else codes

    def codes_of_texts(self, dictionary: pa.Array, column: ColumnEncoding) -> HostArray:
        """Return the codes of the texts of a dictionary, then that of a missing one; -1 where they have none."""
        n_categories = len(column.categories)
        known = _positions(column.categories)
        absent = -1 if column.fill is None else known[str(column.fill)]
        unknown = -1
        if column.kind == "code":
            unknown = n_categories
            absent = unknown if column.fill is None and self.missing != "refuse" else absent
        kind = np.int8 if n_categories < 128 else np.int32
        codes = [
            absent if text is None or text in self.absent else known.get(text, unknown)
            for text in known_texts(dictionary)
        ]
        return np.array([*codes, absent], kind)


def _unknown_category(texts: pa.Array, codes: pa.Array, column: ColumnEncoding, source: str, first: int) -> DataError:
    row = pc.index(pc.is_null(codes), True).as_py()
    several = ""
    if codes.null_count > 1:
        kinds = len(pc.unique(texts.filter(pc.is_null(codes))))
        which = f"{kinds:,} different" if kinds > 1 else "the same"
        several = f" ({codes.null_count:,} of the {len(codes):,} rows read from row {first} on have one, {which})"
    ignored = " predict with --unknown ignore, which sets the features of the column to 0," * (column.kind == "onehot")
    return DataError(
        f"row {first + row} of {source} (counted from 0) has {texts[row].as_py()!r:.60} in column {column.name!r}, a "
        f"category that the training data do not have{several}; remove such rows, add them to the training data,"
        f"{ignored} or train with --categorical codes and a kernel that has categories, such as laplacian_l1, where "
        "such categories differ from all others"
    )


def _as_written(values: pa.Array, categories: tuple[str, ...]) -> pa.Array:
    """Return booleans as the texts of the training rows: CSV files of pandas have ``True``, others ``true``."""
    spelled = {category.lower(): category for category in categories}
    return pc.if_else(values, spelled.get("true", "true"), spelled.get("false", "false"))


@lru_cache(maxsize=1024)
def _positions(categories: tuple[str, ...]) -> dict[str, int]:
    return {category: code for code, category in enumerate(categories)}


def by_column(n_rows: int, n_features: int, dtype: "np.dtype[np.generic]") -> HostArray:
    """Return an array (d, m) for features by column, which can be turned into rows fast.

    Values of neighbouring columns are never a multiple of a large power of two apart in memory: these would share one
    set of the cache, and copies into rows would take ten times as long.
    """
    padded = _LINE * (n_rows // _LINE // 2 * 2 + 3)  # an odd number of cache lines
    X: HostArray = np.empty((n_features, padded), dtype)[:, :n_rows]
    return X


def _set_onehot(rows: HostArray, codes: HostArray) -> None:
    """Set `rows` (k, m) to 1 where the code of a row is the number of the category, else to 0."""
    if len(rows) <= _COMPARED:
        np.copyto(rows, codes == _numbers(len(rows), codes.dtype), casting="unsafe")
        return
    rows[:] = 0
    known = np.flatnonzero(codes != _NOWHERE)
    rows[codes[known], known] = 1


@lru_cache(maxsize=256)
def _numbers(n: int, dtype: "np.dtype[np.generic]") -> HostArray:
    """Return 0 to n - 1 as a column (n, 1)."""
    return np.arange(n, dtype=dtype)[:, None]


def _set_numbers(row: HostArray, numbers: HostArray, fill: float | str | None) -> None:
    """Set a feature (m,) to a column of numbers; missing ones, which are NaN, are `fill`, or NaN without it."""
    row[:] = numbers
    if fill is None or numbers.dtype.kind != "f":
        return
    gaps = np.isnan(row)
    if gaps.any():
        np.copyto(row, numbers.dtype.type(fill), where=gaps, casting="unsafe")
