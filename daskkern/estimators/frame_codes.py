"""Encoding of data frame columns as features, as on the command line, recorded with the fit.

Texts become one feature for each category, columns of the dtype ``category`` codes, dates (also those that are written
as 2026-01-31 or 2026-01-31T12:00:00) days since 1970-01-01, and missing numbers the mean of their column. A frame of
numbers without gaps has no encoding and stays as it is.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dask.base import is_dask_collection

from daskkern.arrays import HostArray
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.ingest.columns.categories import missing_like, plain_encoding
from daskkern.data.ingest.columns.dates import days_of_column, refuse_other_numbers
from daskkern.data.ingest.columns.encoder import Encoder
from daskkern.data.ingest.columns.kind_survey import are_booleans
from daskkern.data.ingest.readers.arrow import is_number, is_text, is_time, to_numbers, to_numpy
from daskkern.data.ingest.readers.frames import arrow_table, is_frame
from daskkern.data.schema.encoding import (
    ABSENT,
    ColumnEncoding,
    Encoding,
    UnknownChoice,
    feature_names_of,
)
from daskkern.errors import DataError
from daskkern.estimators.frame_survey import NO_TEXT, survey
from daskkern.models import KernelModel


def frame_encoding(X: Any, unknown: UnknownChoice = "refuse") -> Encoding | None:
    """Return the encoding of a data frame of pandas, polars, Arrow or dask; None where all columns are plain numbers.

    Categories are those that occur, in ascending order. A dask dataframe is computed partition by partition, twice.
    `unknown` is what later rows with other values get.

    Raises
    ------
    DataError
        For column names that are not text, and for columns that hold neither numbers, dates nor categories.
    """
    if is_dask_frame(X):

        def chunks() -> Iterator[pa.Table]:
            for number in range(X.npartitions):
                yield _table(X.partitions[number].compute())

    elif is_frame(X) and (not hasattr(X, "iloc") or _is_mixed(X)):
        whole = _table(X)

        def chunks() -> Iterator[pa.Table]:
            yield whole

    else:
        return None
    try:
        found = survey(chunks, unknown)
    except DataError as error:
        raise DataError(_in_python(str(error))) from None
    dates = _date_columns(X)
    found = tuple(replace(column, is_date=True) if column.name in dates else column for column in found)
    plain = all(column.is_plain for column in found) and not is_dask_frame(X)
    return None if plain and all(is_number(kind) for kind in arrow_table(X).schema.types) else found


def encoding_of(model: KernelModel, X: Any) -> Encoding | None:
    """Return how columns of `X` become features of a model: its encoding, or by name where `X` has dates or "true".

    A store or a table of numbers and dates has no encoding, because readers make numbers of dates by themselves.
    """
    if model.encoding is not None or model.feature_names is None or not is_frame(X) or is_dask_frame(X):
        return model.encoding
    if hasattr(X, "iloc") and not any(getattr(dtype, "kind", "O") in "MO" for dtype in X.dtypes):
        return None
    columns = arrow_table(X).columns
    is_written = any(is_time(column.type) or (is_text(column.type) and are_booleans(column)) for column in columns)
    return plain_encoding(model.feature_names, {}) if is_written else None


def needs_encoding(X: Any, encoding: Encoding | None) -> bool:
    """Return whether `X` is a frame whose columns `encoding` describes, rather than features made from them."""
    if encoding is None or not is_frame(X) or is_dask_collection(X):
        return False
    names = set(map(str, X.columns if not isinstance(X, pa.Table | pa.RecordBatch) else X.schema.names))
    made = [name for column in encoding if column.kind == "onehot" for name in column.feature_names]
    return not any(name in names for name in made) or any(c.name in names for c in encoding if c.kind == "onehot")


def encoded(X: Any, encoding: Encoding, unknown: UnknownChoice | None = None) -> HostArray:
    """Return the features (n, d) float64 of a frame, columns by name; columns of codes may hold codes already.

    Raises
    ------
    DataError
        For a missing column, a missing value where the training rows had none, and a text that they did not have in a
        column of one feature for each category, unless `unknown` ignores it: all features of the column are then 0. In
        a column of codes such texts differ from all others. None refuses them, for estimators without the choice.
    """
    table = _table(X, [column.name for column in encoding if column.kind != "number"])
    features = np.empty((table.num_rows, len(feature_names_of(encoding))))
    at = 0
    for column in encoding:
        if column.name not in table.schema.names:
            raise DataError(f"X has no column {column.name!r}, which the model was trained with; add it")
        width = len(column.feature_names)
        try:
            features[:, at : at + width] = _features(table.column(column.name), column, unknown or "refuse")
        except DataError as error:
            raise DataError(_in_python(str(error), chooses=unknown is not None)) from None
        at += width
    return features


def check_columns(expected: tuple[str, ...], X: Any) -> None:
    """Raise DataError unless the columns of a frame are those of the training rows, in their order."""
    names = tuple(map(str, X.schema.names if isinstance(X, pa.Table | pa.RecordBatch) else X.columns))
    if names == expected:
        return
    if missing := [name for name in expected if name not in names]:
        raise DataError(f"X has no column {missing[0]!r}, which the model was trained with; add it")
    if other := [name for name in names if name not in expected]:
        raise DataError(f"X has a column {other[0]!r}, which the training rows did not have; leave it out")
    first = next(pair for pair in zip(expected, names, strict=False) if pair[0] != pair[1])
    raise DataError(f"X has column {first[1]!r} where the training rows had {first[0]!r}; keep the order of columns")


def _is_mixed(frame: Any) -> bool:
    """Return whether a pandas frame has other columns than complete numbers, which need no conversion.

    Without names that are texts, only columns of categories count.
    """
    if not all(isinstance(name, str) for name in frame.columns):
        return any(isinstance(text, str) for dtype in frame.dtypes for text in getattr(dtype, "categories", ()))
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        numbers = getattr(getattr(dtype, "categories", None), "dtype", dtype)
        if getattr(numbers, "kind", "O") not in "iufb":
            return True
        if frame.columns.is_unique and frame[name].isna().any():
            return True
    return False


def _table(X: Any, categories: Collection[str] = ()) -> pa.Table:
    """Return a frame as a table of numbers, booleans, and texts, plain or dictionaries; `categories` may be dates."""
    if hasattr(X, "iloc") and not X.columns.is_unique:
        raise DataError(f"X has more than one column {X.columns[X.columns.duplicated()][0]!r}; give each its own name")
    table = arrow_table(X)
    names = table.schema.names
    columns = [_plain(table.column(at).combine_chunks(), name, categories) for at, name in enumerate(names)]
    return pa.table(columns, names=names)


def _plain(column: Any, name: str, categories: Collection[str]) -> pa.Array:
    column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    kind = column.type
    if is_time(kind):
        return column if name in categories else pa.array(to_numbers(column))
    if pa.types.is_dictionary(kind) and not is_text(kind):
        return _plain(column.dictionary_decode(), name, categories)
    if pa.types.is_null(kind):
        return column.cast(pa.float64())
    if not is_number(kind) and not is_text(kind):
        raise DataError(f"column {name!r} of X holds {kind} values; convert it to numbers or texts, or drop it")
    return column


def _date_columns(X: Any) -> frozenset[str]:
    schema = arrow_table(X._meta if is_dask_frame(X) else X).schema
    return frozenset(field.name for field in schema if is_time(field.type))


def _features(column: pa.ChunkedArray, known: ColumnEncoding, unknown: UnknownChoice) -> HostArray:
    """Return the features (n, width) of one column."""
    values = column.combine_chunks()
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    if known.is_date and is_text(values.type):
        values = days_of_column(values, known, "X", 0, unknown)
    if known.kind in ("code", "ordinal") and is_number(values.type):
        texts = _texts_of_numbers(values, known)
        if texts is None:
            return _checked_codes(values, known)
        values = texts
    if known.kind == "number":
        numbers = to_numpy(_written_numbers(values, known.name)).astype(np.float64)
        if known.is_date:
            refuse_other_numbers(numbers, column.type, known.name, "X", 0)
        gaps = np.isnan(numbers)
        if gaps.any():
            if known.fill is None:
                row = int(np.argmax(gaps))
                raise DataError(
                    f"X has no value in row {row}, column {known.name!r}, where no training row missed one; remove or "
                    "fill such rows first"
                )
            numbers[gaps] = float(known.fill)
        return numbers[:, None]
    if not (is_text(values.type) or is_time(values.type) or pa.types.is_boolean(values.type)):
        values = values.cast(pa.string())
    batch = pa.RecordBatch.from_arrays([values], [known.name])
    return Encoder((known,), missing_like((known,)), NO_TEXT, unknown).features(batch, np.dtype(np.float64), "X", 0)


def _texts_of_numbers(values: pa.Array, known: ColumnEncoding) -> pa.Array | None:
    """Return the categories of a column of numbers as texts, where categories are numbers; else None."""
    texts = {}
    for text in known.categories:
        if text == ABSENT:
            continue
        try:
            texts[float(text)] = text
        except ValueError:
            return None
    numbers = to_numpy(values.cast(pa.float64())).tolist()
    return pa.array([None if x != x else texts.get(x, repr(x)) for x in numbers], pa.string())


def _checked_codes(values: pa.Array, known: ColumnEncoding) -> HostArray:
    """Return codes (n, 1) as they are. DataError for numbers that are none."""
    codes, most = to_numpy(values.cast(pa.float64())), len(known.categories)
    wrong = ~((codes >= 0) & (codes <= most) & (codes == np.round(codes)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"X has {codes[row]:g} in row {row}, column {known.name!r}, where the training rows had categories such as "
            f"{known.categories[0]!r}; give a category, or its code from 0 to {most - 1}, or {most} for an unknown one"
        )
    return codes[:, None]


def _written_numbers(values: pa.Array, name: str) -> pa.Array:
    """Return a column of numbers or booleans; those that are written as texts are converted."""
    if is_number(values.type):
        return values
    texts = values.cast(pa.string())
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid as error:
        if are_booleans(texts):
            return pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), "true")
        raise DataError(
            f"column {name!r} of X holds texts where the training rows had numbers; convert them"
        ) from error


def _in_python(message: str, *, chooses: bool = False) -> str:
    """Return a message about a table with what to do here, in place of options of the command line."""
    name = re.search(r"column '([^']*)'", message)
    made = "" if name is None else f", or make it a column of categories with X.astype({{{name[1]!r}: 'category'}})"
    way = f"drop it{made}"
    message = re.sub(r"leave it out with --drop.*$", way, message)
    if chooses:
        message = message.replace("predict with --unknown ignore", "set handle_unknown='ignore'")
    message = message.replace(", or predict with --unknown ignore, which takes it for a missing value", "")
    message = message.replace(" predict with --unknown ignore, which sets the features of the column to 0,", "")
    if name is not None:
        message = message.replace("--categorical codes", f"X.astype({{{name[1]!r}: 'category'}})")
    return re.sub(r"; 'daskkern ingest.*$", "", message)
