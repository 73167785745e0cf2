"""Checks of arrays and data frames before scikit-learn converts them, where its errors would not name the cause."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.written_values import is_number
from daskkern.data.rows.finite import refuse_masks
from daskkern.data.schema.encoding import feature_names_of
from daskkern.errors import DataError
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sources import ArraySource

_GAPS = ("NAType", "NaTType")
_DATES = (np.datetime64, np.timedelta64, date, timedelta)


def check_raw(X: Any, y: Any = None) -> None:
    """Raise DataError for rows and targets that have no numbers, naming the column or row.

    Refused are masked entries, whose values would be used otherwise, columns of dates and of texts, column names that
    occur twice, missing values among objects, dates as targets, missing labels, and labels that are partly text and
    partly numbers.

    Parameters
    ----------
    X : array-like or data frame (n, d)
    y : array-like (n,), (n, t) or None
    """
    refuse_masks(X, "X")
    refuse_masks(y, "y")
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        _check_frame(X)
    elif (kind := getattr(getattr(X, "dtype", None), "kind", "")) in "mM" and kind:
        raise DataError(
            f"got X of dtype {X.dtype}; expected numbers, such as days since the first one, or a data frame, whose "
            "columns of dates are converted"
        )
    elif kind == "O" and X.ndim == 2:
        for number, column in enumerate(np.asarray(X).T):
            _check_gaps(column, number)
    if y is not None:
        _check_labels(y)


def as_table(X: Any) -> Any:
    """Return a record batch as a table, whose names scikit-learn reads; others as they are.

    DataError for a lazy frame of polars.
    """
    if type(X).__name__ == "LazyFrame" and type(X).__module__.startswith("polars"):
        raise DataError("got a LazyFrame of polars, whose rows are not in memory; call its method collect() first")
    return pa.Table.from_batches([X]) if isinstance(X, pa.RecordBatch) else X


def named(source: RowSource, names: Sequence[str] | None) -> RowSource:
    """Return the source with these names of its features, where it is of arrays, which have none."""
    if names is None or not isinstance(source, ArraySource):
        return source
    names = names if source.info.encoding is None else feature_names_of(source.info.encoding)
    return replace(source, info=replace(source.info, feature_names=tuple(names)))


def _check_frame(frame: Any) -> None:
    names = list(frame.columns)
    if not frame.columns.is_unique:
        twice = names[int(np.argmax(frame.columns.duplicated()))]
        raise DataError(f"X has more than one column {twice!r}; give every column a name of its own")
    for i, (name, dtype) in enumerate(zip(names, frame.dtypes, strict=True)):
        if getattr(dtype, "kind", "O") in "Mm":
            raise DataError(
                f"column {name!r} of X holds dates or durations ({dtype}); convert it to numbers, such as days since "
                "the first one, or drop it"
            )
        if getattr(dtype, "kind", "O") == "O":
            text = next((value for value in frame.iloc[:, i] if isinstance(value, str) and not is_number(value)), None)
            if text is not None:
                raise DataError(
                    f"column {name!r} of X holds text such as {text!r:.40}; make it a column of categories with "
                    f"X.astype({{{name!r}: 'category'}}), encode it as numbers, or drop it"
                )
            _check_gaps(frame.iloc[:, i], name)


def _check_gaps(column: Iterable[object], name: object) -> None:
    """Raise DataError for a value without a number: one that is missing, other than NaN or None, such as
    ``pandas.NA``, or a date."""
    for row, value in enumerate(column):
        if type(value).__name__ in _GAPS:
            raise DataError(f"X has no value in row {row}, column {name!r}; remove or fill such rows first")
        if isinstance(value, _DATES):
            raise DataError(
                f"X holds {value!r:.60} in row {row}, column {name!r}; convert dates to numbers, such as days since "
                "the first one"
            )


def _check_labels(y: Any) -> None:
    labels: HostArray = np.asarray(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    first = labels.flat[0] if labels.dtype == object and labels.size else None
    if labels.dtype.kind in "mM" or isinstance(first, _DATES):
        raise DataError(
            "y holds dates or durations; give numbers, such as days since the first one, or strings as class labels"
        )
    if labels.dtype != object or labels.ndim != 1:
        return
    gaps = [i for i, label in enumerate(labels) if _is_missing(label)]
    if gaps:
        raise DataError(
            f"y has no value in {len(gaps):,} of {len(labels):,} rows, the first of which is row {gaps[0]} (counted "
            "from 0); remove such rows"
        )
    text = next((label for label in labels if isinstance(label, str)), None)
    other = next((label for label in labels if not isinstance(label, str)), None)
    if text is not None and other is not None:
        raise DataError(f"y holds text such as {text!r:.40} and {other!r:.40}; make all of them text, or all numbers")


def _is_missing(label: object) -> bool:
    return label is None or type(label).__name__ in _GAPS or (isinstance(label, float) and label != label)
