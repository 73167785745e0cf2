"""Cells of a store whose categories do not occur in the training data, and their codes."""

from collections.abc import Mapping

import numpy as np

from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import Fields
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.encoding import code_columns, feature_names_of
from daskkern.data.storage.store import Store
from daskkern.data.storage.store_rows import StoreRows


def unseen_cells(store: Store) -> dict[str, int]:
    """Return the columns with such cells, and how many; rows are read only where there are some."""
    encoding, most = store.info.encoding or (), store.info.statistics.max
    counts = {column.name: len(column.categories) for column in encoding if column.kind == "code"}
    names = feature_names_of(encoding)
    found = {at: counts[names[at]] for at in code_columns(encoding) if most[at] >= counts[names[at]]}
    if not found:
        return {}
    columns, codes, total = list(found), np.array(list(found.values())), np.zeros(len(found), np.int64)
    rows = StoreRows(store, np.float64, Scaling())
    for part in slices(rows.n_rows, max(1, rows.chunk_rows)):
        X = rows.read(part.start, part.stop, Fields.X).X
        assert isinstance(X, np.ndarray)
        total += (X[:, columns] >= codes).sum(axis=0)
    return {names[at]: int(count) for at, count in zip(columns, total, strict=True)}


def unseen_notes(store: Store) -> tuple[str, ...]:
    """Return a note for each column with such cells."""
    return notes_of(unseen_cells(store))


def notes_of(unseen: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note for each column, by its number of such cells."""
    return tuple(
        f"column {name!r}: {count:,} {'cells have' if count > 1 else 'cell has'} a category that the training data "
        f"lack, and {'count' if count > 1 else 'counts'} as different from all of theirs"
        for name, count in unseen.items()
    )
