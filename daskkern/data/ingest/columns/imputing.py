"""Imputation of missing numbers: NaN in features, replaced by values from a first pass over the rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.ingest.readers.tables import Piece, Table
from daskkern.data.schema.encoding import ColumnEncoding, Encoding, MissingChoice
from daskkern.errors import DataError, SpecError

_MOST_VALUES = 100_000  # different values of a column up to which the most frequent one is determined


def imputed(table: Table, missing: MissingChoice) -> tuple[Table, tuple[str, ...]]:
    """Return `table` with missing numbers replaced and their replacements in its encoding, and notes for the user.

    ``"mean"`` is the mean of the values present, ``"most_frequent"`` the one that occurs most often (the smallest
    of ties), ``"constant"`` 0. Columns without missing values get a replacement, too, because later rows may miss
    some.
    """
    if missing == "refuse":
        return table, ()
    if table.is_sparse:
        raise SpecError(f"got --missing {missing} for sparse rows, whose missing entries are zeros; leave it out")
    if table.dtype.kind != "f":  # whole numbers have no NaN
        return table, ()
    encoding = table.encoding or tuple(ColumnEncoding(name) for name in _names(table))
    numbers, at = [], 0
    for column in encoding:
        if column.kind == "number":
            numbers.append(at)
        at += len(column.feature_names)
    places = np.asarray(numbers, np.int64)
    fills, gaps = _survey(table, places, missing)
    values = iter(fills.tolist())
    filled = tuple(replace(c, fill=next(values)) if c.kind == "number" else c for c in encoding)
    return filled_as(table, filled), note_on_gaps(gaps.tolist(), missing)


def note_on_gaps(gaps: Sequence[int], missing: MissingChoice) -> tuple[str, ...]:
    """Return a note on the missing numbers of each column, where there are some."""
    total, columns = sum(gaps), sum(count > 0 for count in gaps)
    if not total:
        return ()
    numbers = "1 missing number" if total == 1 else f"{total} missing numbers"
    places = "1 column" if columns == 1 else f"{columns} columns"
    return (f"{numbers} in {places} {'was' if total == 1 else 'were'} replaced ({missing})",)


def filled_as(table: Table, encoding: Encoding) -> Table:
    """Return `table` with missing numbers replaced as recorded in an encoding; columns without one refuse them."""
    fills: list[float] = []
    for column in encoding:
        known = column.kind == "number" and column.fill is not None
        fills += [float(column.fill or 0.0) if known else np.nan] * len(column.feature_names)
    vector = np.asarray(fills)

    def pieces_from(start: int) -> Iterator[Piece]:
        for piece in table.rows_from(start):
            X = _filled(piece.X, vector)
            yield replace(piece, X=X, moments=piece.moments if X is piece.X else None)

    return replace(table, pieces=lambda: pieces_from(0), pieces_from=pieces_from, encoding=encoding, exact=None)


def _names(table: Table) -> tuple[str, ...]:
    return table.feature_names or tuple(f"column {j}" for j in range(table.n_features))


def _filled(X: HostArray, fills: FloatArray) -> HostArray:
    gaps = np.isnan(X)
    return np.where(gaps, fills.astype(X.dtype), X) if gaps.any() else X


def _survey(table: Table, places: HostArray, missing: MissingChoice) -> tuple[FloatArray, HostArray]:
    """Return the replacement of missing values for each of the columns at `places`, and how many each misses."""
    gaps, n, sums = np.zeros(len(places), np.int64), 0, np.zeros(len(places))
    counts: list[Counter[float]] = [Counter() for _ in places]
    for piece in table.pieces():
        X = np.asarray(piece.X)[:, places].astype(np.float64)
        absent = np.isnan(X)
        gaps += absent.sum(axis=0)
        n += len(X)
        if missing == "mean":
            sums += np.where(absent, 0.0, X).sum(axis=0)
        elif missing == "most_frequent":
            for j, counter in enumerate(counts):
                values, times = np.unique(X[~absent[:, j], j], return_counts=True)
                counter.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
                _refuse_many(table, int(places[j]), counter)
    empty = np.flatnonzero(gaps == n)
    if n and empty.size and missing != "constant":
        raise DataError(
            f"feature column {table.feature_name(int(places[empty[0]]))} of {table.source} has no values at all; leave "
            "it out with --drop, or use --missing constant"
        )
    if missing == "mean":
        return sums / np.maximum(n - gaps, 1), gaps
    if missing == "most_frequent":
        return np.array([min(c, key=lambda value: (-c[value], value)) if c else 0.0 for c in counts]), gaps
    return np.zeros(len(places)), gaps


def _refuse_many(table: Table, column: int, counter: Counter[float]) -> None:
    if len(counter) > _MOST_VALUES:
        raise DataError(
            f"feature column {table.feature_name(column)} of {table.source} has more than {_MOST_VALUES} different "
            "values, so its most frequent one is not meaningful; use --missing mean"
        )
