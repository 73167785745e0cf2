"""A batch of Arrow columns as float32 features and their moments, by compiled loops where there are some."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.allocator import reuse_large_arrays
from daskkern.data.ingest.columns.compiled.column_words import ColumnMemory, divisor_of, fill_bits, kind_of
from daskkern.data.ingest.columns.compiled.kinds import CALL, COLUMN
from daskkern.data.ingest.columns.encoder import Encoder, by_column
from daskkern.data.ingest.readers.arrow import is_text, is_time
from daskkern.data.schema.encoding import ColumnEncoding

try:
    from daskkern.backend.machine_code.compiler import register_bytes
    from daskkern.data.ingest.columns.compiled.functions import conversion
except ModuleNotFoundError as error:  # llvmlite is missing
    if error.name is None or not error.name.startswith("llvmlite"):
        raise
    _available = False
else:
    _available = register_bytes() > 0

LEAST_VALUES = 1 << 25
"""Values of a table from which on loops are compiled for it, which takes about 0.2 s."""


@dataclass(frozen=True)
class EncodedRows:
    """Features (m, d), in column order.

    `moments` (4, d) are minimum, maximum, mean and sum of squared deviations of each, NaN where a value is not finite;
    None where they have not been taken.
    """

    X: HostArray
    moments: FloatArray | None = None

    @property
    def is_finite(self) -> bool:
        """Whether all features are known to be finite."""
        return self.moments is not None and bool(np.isfinite(self.moments[0]).all())


def is_worthwhile(n_rows: int | None, n_features: int, dtype: "np.dtype[np.generic]") -> bool:
    """Return whether there are compiled loops for features of this dtype, and rows enough for them."""
    return _available and dtype == np.float32 and (n_rows or 0) * n_features >= LEAST_VALUES


class RowConverter:
    """Converts the batches of a table, one after the other: in compiled loops where these are worthwhile.

    Parameters
    ----------
    encoder : Encoder
    dtype : dtype
        Of the features.
    n_rows : int or None
        Rows of the table.
    """

    def __init__(self, encoder: Encoder, dtype: "np.dtype[np.generic]", n_rows: int | None) -> None:
        self._encoder, self._dtype = encoder, dtype
        self._compiles = is_worthwhile(n_rows, encoder.n_features, dtype)
        self._known: tuple[pa.Schema, BatchConverter] | None = None
        if self._compiles:
            reuse_large_arrays()

    def rows(self, batch: pa.RecordBatch, source: str, first: int) -> EncodedRows:
        """Return the rows of a batch, whose first one is row `first` of `source`."""
        if not self._compiles:
            return EncodedRows(self._encoder.features(batch, self._dtype, source, first))
        if self._known is None or not self._known[0].equals(batch.schema):
            self._known = batch.schema, BatchConverter(self._encoder, batch.schema)
        return self._known[1].rows(batch, source, first)


@dataclass(frozen=True)
class _Column:
    """A column, its place in the batch, its first feature, and the words that are the same for all batches."""

    encoding: ColumnEncoding
    place: int
    at: int
    kind: str | None
    """The loop that converts it; None for the plain conversion."""
    fill: int
    divisor: int


class BatchConverter:
    """Converts batches of one schema.

    Columns without a compiled loop, and those with a value that is to be refused, are converted by the encoder.

    Parameters
    ----------
    encoder : Encoder
    schema : pyarrow.Schema
    """

    def __init__(self, encoder: Encoder, schema: pa.Schema) -> None:
        self._encoder = encoder
        self._columns, at = [], 0
        known = {name: (place, kind) for place, (name, kind) in enumerate(zip(schema.names, schema.types, strict=True))}
        fills = fill_bits([None if isinstance(column.fill, str) else column.fill for column in encoder.encoding])
        for column, fill in zip(encoder.encoding, fills, strict=True):
            place, kind = known[column.name]
            loop = _loop(column, kind)
            self._columns.append(_Column(column, place, at, loop, fill, divisor_of(kind) if loop == "time" else 0))
            at += column.width

    def rows(self, batch: pa.RecordBatch, source: str, first: int) -> EncodedRows:
        """Return the rows of a batch, whose first one is row `first` of `source`."""
        m, d = batch.num_rows, self._encoder.n_features
        X, found = by_column(m, d, np.dtype(np.float32)), np.empty((d, 4))
        if not m:
            return EncodedRows(X.T)
        arrays, memory, tables = batch.columns, ColumnMemory(), []
        words: dict[str, list[tuple[int, ...]]] = {}
        base, stride, moments = X.ctypes.data, X.strides[0], found.ctypes.data
        for column in self._columns:
            array, width, name = arrays[column.place], column.encoding.width, column.encoding.name
            places = base + column.at * stride, moments + column.at * found.strides[0]
            kind = None if array.null_count and self._refuses(column) else column.kind
            if kind in ("onehot", "code"):
                table = self._table(array, column)
                if table is not None:
                    tables.append(table)
                    indices = memory.of(array.indices, "int32", name)
                    words.setdefault(kind, []).append((*indices, 0, 0, *places, table.ctypes.data, len(table), width))
                    continue
                kind = None
            if kind is None:
                self._encoder.set_column(X[column.at : column.at + width], array, column.encoding, source, first)
                words.setdefault("features", []).append((0, 0, 0, 0, *places, 0, 0, width))
                continue
            values = memory.of(array, kind, name)
            words.setdefault(kind, []).append((*values, column.fill, column.divisor, *places, 0, 0, 1))
        if not all(_call(each, columns, m, stride // 4) for each, columns in words.items()):
            return EncodedRows(self._encoder.features(batch, X.dtype, source, first))  # says which index is wrong
        return EncodedRows(X.T, np.ascontiguousarray(found.T))

    def _refuses(self, column: _Column) -> bool:
        return column.encoding.kind == "number" and self._encoder.missing == "refuse"

    def _table(self, array: pa.DictionaryArray, column: _Column) -> IntArray | None:
        """Return the codes of a dictionary by index, then that of a missing value; None where one is not known."""
        table = self._encoder.codes_of_texts(array.dictionary, column.encoding)
        if table[:-1].min(initial=0) < 0 or (table[-1] < 0 and array.null_count):
            return None
        return table.astype(np.int32)


def _loop(column: ColumnEncoding, kind: pa.DataType) -> str | None:
    """Return the compiled loop for a column of an Arrow type."""
    if column.kind != "number":
        known = pa.types.is_dictionary(kind) and pa.types.is_int32(kind.index_type) and is_text(kind)
        return None if not known else "onehot" if column.kind == "onehot" else "code"
    return None if column.is_date and not is_time(kind) else kind_of(kind)


def _call(kind: str, columns: list[tuple[int, ...]], m: int, stride: int) -> bool:
    """Call the loop of a kind for its columns, and return whether every index was within its dictionary."""
    table = np.array(columns, np.int64)
    assert table.shape[1] == len(COLUMN)
    codes = np.empty(m if kind in ("onehot", "code") else 0, np.int32)
    beyond = np.zeros(1, np.int64)
    call = np.array([table.ctypes.data, len(table), m, stride, codes.ctypes.data, beyond.ctypes.data], np.int64)
    assert len(call) == len(CALL)
    conversion(kind)(call.ctypes.data)
    return not beyond[0]
