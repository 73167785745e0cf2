"""Pieces of rows from Arrow batches, for the readers of CSV and Parquet."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.choice import ColumnRoles
from daskkern.data.ingest.readers.tables import Piece
from daskkern.data.rows.exact_integers import REMEDY, first_rounded
from daskkern.errors import DataError

_LABEL_LENGTH = 256  # longer texts are not class labels, and NumPy would pad every label to their length
_PLAIN = frozenset(
    kind.id
    for kind in (
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    )
)
"""Types of numbers that NumPy has: batches of a lake have thousands of columns, and asking for each kind takes time."""


def piece_of(batch: pa.RecordBatch, X: HostArray, columns: ColumnRoles, source: str, first: int) -> Piece:
    """Return the rows of a batch, whose first row is row `first` of `source` and whose features `X` are (m, d)."""
    for name in (*columns.targets, *([columns.weight] if columns.weight else [])):
        _refuse_gaps(batch.column(name), name, source, first)
    targets = [to_numpy(batch.column(name), f"column {name!r} of {source}") for name in columns.targets]
    for name, values in zip(columns.targets, targets, strict=True):
        at = first_rounded(values) if len(targets) > 1 else None  # stacked next to floats, integers become floats
        if at is not None:
            raise DataError(
                f"row {first + at} of {source} (counted from 0) has the target {values[at]} in column {name!r}; "
                f"{REMEDY}"
            )
    return Piece(
        source=source,
        first=first,
        X=X,
        y=None if not targets else targets[0] if len(targets) == 1 else np.stack(targets, axis=1),
        weight=to_numpy(batch.column(columns.weight)) if columns.weight else None,
        kept=pa.RecordBatch.from_pydict({name: _plain(batch.column(name)) for name in columns.kept})
        if columns.kept
        else None,
    )


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def is_plain(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type are numbers that NumPy has: neither booleans, nor dates, nor texts."""
    return kind.id in _PLAIN


def to_numbers(array: pa.Array) -> HostArray:
    """Return a column of numbers, booleans, or dates and times, which become days since 1970-01-01; NaN for missing."""
    if is_plain(array.type):
        values: HostArray = array.to_numpy(zero_copy_only=False)
        return values
    return to_numpy(array) if not is_time(array.type) else _days(array)


def _days(array: pa.Array) -> HostArray:
    if pa.types.is_date32(array.type):
        return to_numpy(array.view(pa.int32())).astype(np.float64, copy=False)
    unit = "ms" if pa.types.is_date64(array.type) else array.type.unit
    ticks = to_numpy(array.view(pa.int64())).astype(np.float64, copy=False)
    return ticks / (86400.0 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit])


def to_numpy(array: pa.Array, name: str = "") -> HostArray:
    """Return the values of a column: numbers, booleans, or strings of a fixed width. Missing numbers become NaN."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type) or (array.null_count and pa.types.is_boolean(array.type)):
        array = array.cast(pa.float64())
    if not is_text(array.type):
        values: HostArray = array.to_numpy(zero_copy_only=False)
        return values
    coded = array.dictionary_encode()
    labels = coded.dictionary.to_pylist()
    longest = max(labels, key=len, default="")
    if len(longest) > _LABEL_LENGTH:
        raise DataError(
            f"{name} holds a text of {len(longest)} characters ({longest[:40]!r}...), which is not a class label"
        )
    return np.asarray(labels, dtype=str)[coded.indices.to_numpy(zero_copy_only=False)]


def indices_of(indices: pa.Array, absent: int) -> HostArray:
    """Return the indices of a dictionary, `absent` of missing values.

    Arrow's own functions take several times as long for the few thousand rows of a batch.
    """
    if not indices.null_count:
        return np.asarray(indices.to_numpy(zero_copy_only=False))
    validity, data = indices.buffers()
    start, m = indices.offset, len(indices)
    values = np.frombuffer(data, indices.type.to_pandas_dtype(), m, start * indices.type.byte_width)
    if absent > np.iinfo(values.dtype).max:
        values = values.astype(np.int64)
    bits = np.frombuffer(validity, np.uint8)[start // 8 :]
    present = np.unpackbits(bits, count=start % 8 + m, bitorder="little")[start % 8 :]
    return np.where(present.view(bool), values, values.dtype.type(absent))


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type are strings, dictionary-encoded or plain."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type are real numbers or booleans."""
    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(check(kind) for check in known)


def is_time(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type are dates, or dates with times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def known_texts(dictionary: pa.Array) -> list[str | None]:
    """Return the texts of a dictionary, which may hold them in any of Arrow's types of strings."""
    texts = dictionary if pa.types.is_string(dictionary.type) else dictionary.cast(pa.string())
    found: list[str | None] = texts.to_pylist()
    return found


def texts_of(values: pa.Array, absent: Sequence[str]) -> pa.Array:
    """Return a column as strings, null where the text stands for a missing value."""
    texts = values.cast(pa.string()) if not pa.types.is_dictionary(values.type) else values.dictionary_decode()
    texts = texts.cast(pa.string())
    return pc.if_else(pc.is_in(texts, value_set=pa.array(absent, pa.string())), pa.scalar(None, pa.string()), texts)


def refuse_missing(array: pa.Array, name: str, source: str, first: int) -> None:
    """Raise DataError naming the row when a column of features misses a value."""
    where = _gap(array)
    if where >= 0:
        raise DataError(
            f"row {first + where} of {source} (counted from 0) has no value in column {name!r}; fill in missing "
            "values or remove such rows; 'daskkern ingest --missing mean' fills in features of training rows"
        )


def _refuse_gaps(array: pa.Array, name: str, source: str, first: int) -> None:
    """Raise DataError naming the row when a target or weight is missing: nothing fills these in."""
    where = _gap(array)
    if where >= 0:
        raise DataError(
            f"row {first + where} of {source} (counted from 0) has no value in column {name!r}, which is a target or "
            "weight; remove such rows"
        )


def _gap(array: pa.Array) -> int:
    """Return the first row without a value, -1 where there is none."""
    if not array.null_count and not is_text(array.type):
        return -1
    missing = pc.is_null(array)
    if is_text(array.type):
        texts = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        missing = pc.or_(missing, pc.equal(pc.fill_null(texts, ""), ""))
    return int(pc.index(missing, True).as_py())
