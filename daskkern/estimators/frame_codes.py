"""Columns of text categories in data frames as codes: recorded by a fit, and the same for rows that are predicted."""

from typing import Any

import numpy as np

from daskkern.data.schema.encoding import ABSENT, ColumnEncoding, Encoding, code_columns
from daskkern.errors import DataError


def frame_encoding(X: Any) -> Encoding | None:
    """Return the encoding of a pandas frame with columns of the dtype ``category`` that hold texts; None without any.

    Categories are those that occur, in ascending order.

    Raises
    ------
    DataError
        For column names that are not text.
    """
    if not _is_frame(X):
        return None
    texts = [position for position, dtype in enumerate(X.dtypes) if _holds_texts(dtype)]
    if not texts:
        return None
    if not all(isinstance(name, str) for name in X.columns):
        raise DataError("X has columns of categories, and names of columns that are not text; rename these")
    return tuple(
        _learned(name, X.iloc[:, position]) if position in texts else ColumnEncoding(name)
        for position, name in enumerate(X.columns)
    )


def encoded(X: Any, encoding: Encoding | None) -> Any:
    """Return a pandas frame with codes in place of categories; other rows, and without codes to make, as they are.

    Texts that are not among the categories get their number as code.
    """
    if not code_columns(encoding) or not _is_frame(X):
        return X
    changed = {}
    for column in encoding or ():
        if column.kind == "code" and column.name in X.columns and not _is_numeric(X[column.name].dtype):
            changed[column.name] = _codes(X[column.name], column)
    return X.assign(**changed) if changed else X


def _learned(name: str, column: Any) -> ColumnEncoding:
    found = set(column.dropna().unique().tolist())
    fill = ABSENT if column.isna().any() else None
    return ColumnEncoding(name, "code", tuple(sorted(found | ({ABSENT} if fill else set()))), fill)


def _codes(column: Any, known: ColumnEncoding) -> Any:
    positions = {text: code for code, text in enumerate(known.categories)}
    beyond = len(positions)
    absent = beyond if known.fill is None else positions[str(known.fill)]
    codes = column.astype(object).map(lambda text: positions.get(text, beyond), na_action="ignore")
    return codes.fillna(absent).astype(np.float64)


def _is_frame(X: Any) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "assign") and hasattr(X, "dtypes")


def _holds_texts(dtype: Any) -> bool:
    categories = getattr(dtype, "categories", None)
    return categories is not None and len(categories) > 0 and all(isinstance(text, str) for text in categories)


def _is_numeric(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "iufb"
