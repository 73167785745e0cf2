"""Rows of requests as features: lists of numbers, or objects by the names of columns, with one sentence on errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.models import KernelModel


class BadRowsError(ValueError):
    """Rows that the model cannot use; the message is one sentence that says what to do."""


def features_of(model: KernelModel, rows: Sequence[Any], most: int) -> npt.NDArray[np.float64]:
    """Return the features (m, d) of rows that came as JSON.

    Parameters
    ----------
    model : KernelModel
    rows : list
        Lists of the model's features in order, or objects with a value for each column of the training table.
    most : int
        Rows of a request.
    """
    if not 1 <= len(rows) <= most:
        raise BadRowsError(f"got {len(rows)} rows; expected 1 to {most}")
    if all(isinstance(row, dict) for row in rows):
        return np.array([_of_object(model, row, number) for number, row in enumerate(rows)])
    for number, row in enumerate(rows):
        if not isinstance(row, list):
            raise BadRowsError(f"got {row!r:.60} as row {number}; expected lists of numbers, or objects only")
        if len(row) != model.n_features:
            raise BadRowsError(
                f"got {len(row)} numbers in row {number}; expected the model's {model.n_features} features"
            )
    return np.array([[_number(value, f"row {n}") for value in row] for n, row in enumerate(rows)])


def _of_object(model: KernelModel, row: dict[str, Any], number: int) -> list[float]:
    columns = model.encoding or tuple(ColumnEncoding(name) for name in model.feature_names or ())
    if not columns:
        raise BadRowsError("got rows with names, but the model has no names of features; send lists of numbers")
    unknown = sorted(set(row) - {column.name for column in columns})
    if unknown:
        raise BadRowsError(f"got the unknown column {unknown[0]!r} in row {number}; leave it out")
    found: list[float] = []
    for column in columns:
        value = row.get(column.name)
        found += _features(column, column.fill if value is None else value, f"{column.name!r} of row {number}")
    return found


def _features(column: ColumnEncoding, value: Any, where: str) -> list[float]:
    """Return the features that one value of a table becomes."""
    if value is None and column.kind != "code":
        raise BadRowsError(f"got no value for {where}; expected one, because the training data miss none")
    if column.kind == "number":
        return [_number(value, where)]
    if value is not None and not isinstance(value, str):
        raise BadRowsError(f"got {value!r:.60} for {where}; expected a text")
    known = value in column.categories
    if column.kind == "code":
        return [float(column.categories.index(value) if known else len(column.categories))]
    if not known:
        some = ", ".join(column.categories[:10])
        raise BadRowsError(f"got {value!r:.60} for {where}; expected one of the model's categories: {some}")
    if column.kind == "ordinal":
        return [float(column.categories.index(value))]
    return [float(value == category) for category in column.categories]


def _number(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise BadRowsError(f"got {value!r:.60} for {where}; expected a finite number")
    return float(value)
