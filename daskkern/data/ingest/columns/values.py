"""Checks of values before they enter a store; errors name file, row and column."""

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.ingest.readers.tables import Piece, Table
from daskkern.data.rows.csr import CsrRows, FeatureRows, as_csr
from daskkern.data.rows.exact_integers import REMEDY, first_merged, first_rounded
from daskkern.errors import DataError

_LARGEST_TARGET = 1e145
"""Squares of targets are summed: of 1e18 rows, the sum of these is less than 1.8e308."""


def features_of(piece: Piece, table: Table) -> FeatureRows:
    """Return the features of a piece in the dtype of the store, dense or CSR, all finite."""
    if table.is_sparse:
        return _sparse_features(piece, table)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are refused below
        X = np.asarray(piece.X, dtype=table.dtype)
    if not piece.is_finite and not all_finite(X):
        row, column = (int(i) for i in np.argwhere(~np.isfinite(X))[0])
        raise _unusable(piece, table, row, column, float(piece.X[row, column]))
    return X


def _sparse_features(piece: Piece, table: Table) -> CsrRows:
    X = as_csr(piece.X)
    with np.errstate(over="ignore"):
        rows = X.astype(table.dtype, copy=False)
    if not all_finite(rows.data):
        entry = int(np.flatnonzero(~np.isfinite(rows.data))[0])
        row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
        raise _unusable(piece, table, row, int(X.indices[entry]), float(X.data[entry]))
    return rows


def _unusable(piece: Piece, table: Table, row: int, column: int, found: float) -> DataError:
    if np.isfinite(found):
        problem, remedy = f"{found:g}, which {table.dtype} cannot hold", "rescale the column"
    else:
        problem = f"{found}, which is not a finite number"
        gaps = "fill in such values (--missing) or remove the rows"
        remedy = gaps if np.isnan(found) else "correct such values or remove the rows; --missing fills gaps only"
    return DataError(f"{_place(piece, row)} has {problem}, in feature column {table.feature_name(column)}; {remedy}")


def quantities_of(piece: Piece, table: Table) -> FloatArray:
    """Return regression targets (m,) or (m, t) as float64, all finite, none of them an integer that it rounds."""
    assert piece.y is not None
    at = first_rounded(piece.y)
    if at is not None:
        row = at // (piece.y.size // len(piece.y))
        raise DataError(f"{_place(piece, row)} has the target {piece.y.flat[at]}; {REMEDY}")
    y = piece.y.astype(np.float64)
    _refuse_unusable(piece, y, table)
    if y.size and max(y.max(), -y.min()) > _LARGEST_TARGET:
        at = int(np.abs(y).argmax())
        row, found = at // (y.size // len(y)), y.flat[at]
        raise DataError(
            f"{_place(piece, row)} has the target {found:g}, whose square float64 cannot hold; rescale the targets"
        )
    return y


def labels_of(piece: Piece, table: Table) -> HostArray:
    """Return class labels (m,), none of them NaN, infinite, or so large that float64 merges it with others."""
    assert piece.y is not None
    if piece.y.dtype.kind == "f":
        _refuse_unusable(piece, piece.y, table)
        row = first_merged(piece.y)
        if row is not None:
            raise DataError(
                f"{_place(piece, row)} has the label {piece.y[row]:g}, which is one of several whole numbers that are "
                "the same in float64; write labels as text"
            )
    return piece.y


def weights_of(piece: Piece) -> FloatArray | None:
    """Return the weights (m,) as float64, finite and not negative; None when the rows have none."""
    if piece.weight is None:
        return None
    weight = piece.weight.astype(np.float64)
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{_place(piece, row)} has weight {weight[row]:g}; weights are finite and 0 or more")
    return weight


def _refuse_unusable(piece: Piece, y: HostArray, table: Table) -> None:
    if all_finite(y):
        return
    where = np.argwhere(~np.isfinite(y))[0]
    column = int(where[1]) if len(where) > 1 else 0
    name = repr(table.target_names[column]) if table.target_names else f"column {column}"
    raise DataError(
        f"{_place(piece, int(where[0]))} has {float(y[tuple(where)])}, which is not a finite number, in target {name}; "
        "remove such rows"
    )


def all_finite(values: HostArray) -> bool:
    """Return whether all values are finite, determined from the extremes, without an array of booleans."""
    if values.size == 0 or values.dtype.kind != "f":
        return True
    return bool(np.isfinite(values.min()) and np.isfinite(values.max()))


def _place(piece: Piece, row: int) -> str:
    return f"row {piece.first + row} of {piece.source} (counted from 0)"
