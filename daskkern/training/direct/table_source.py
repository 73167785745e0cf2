"""Tables in files, and Zarr arrays, as sources of rows that are read in place."""

import os
import zlib
from typing import Any

import numpy as np

from daskkern.data.direct.arrow_datasets import held_bytes, is_arrow_dataset
from daskkern.data.direct.opening import TableChoice, open_table
from daskkern.data.direct.table_reader import table_reader
from daskkern.data.direct.zarr_pairs import ZarrPair, read_values, zarr_pair
from daskkern.data.remote.stores import name_of_place, public
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.data.schema.table_schema import TableSchema
from daskkern.training.direct.group_source import GroupSource
from daskkern.training.feeding.row_source import SourceInfo

_CHECKED_ROWS = 256


def table_source(X: Any, choice: TableChoice, *, like: SourceInfo | None = None) -> tuple[GroupSource, tuple[str, ...]]:
    """Return the rows of a table that lies in files, and notes for the user.

    Parameters
    ----------
    X : path, pattern, folder or pyarrow.dataset.Dataset
        Of a format with row groups: Parquet, Arrow, Zarr.
    choice : TableChoice
    like : SourceInfo or None
        Training rows, whose columns, encoding and classes these rows get.

    Raises
    ------
    DataError, SpecError
        When columns or values do not suit.
    """
    opened = open_table(X, choice, None if like is None else _schema(like))
    table = opened.table
    held = held_bytes(X) if is_arrow_dataset(X) else 0
    reader = table_reader(table, opened.decision, None if like is None else like.classes, held)
    info = SourceInfo(
        sum(reader.sizes),
        table.n_features,
        opened.decision.task,
        reader.classes,
        Scaling(),
        table.feature_names,
        table.n_targets,
        table.n_targets == 1,
        target_names=table.target_names,
        encoding=table.encoding,
        index_base=table.index_base,
    )
    place = table.source if not isinstance(X, str | os.PathLike) else public(os.fspath(X))
    source = GroupSource(reader, info, place, name_of_place(place), {"table": opened.key})
    return source, opened.notes


def zarr_source(
    X: Any,
    y: Any,
    weight: Any,
    task: str,
    classes: tuple[ClassLabel, ...] | None = None,
    place: str | None = None,
) -> GroupSource:
    """Return the rows of Zarr arrays `X` (n, d), `y` and `weight`. Raises DataError where they do not suit."""
    reader = zarr_pair(X, y, weight, task, classes)
    width = 1 if y.ndim == 1 else int(y.shape[1])
    info = SourceInfo(int(X.shape[0]), int(X.shape[1]), task, reader.classes, Scaling(), None, width, y.ndim == 1)
    where = public(str(X.store_path)) if place is None else public(place)
    return GroupSource(reader, info, where, name_of_place(where), _identity(reader))


def _identity(reader: ZarrPair) -> dict[str, Any]:
    """Return an identity of arrays: places, shapes, types, and checksums of some rows.

    Those where the first, the middle and the last group begin: other values are usually new values everywhere.
    """
    arrays = (reader.X, reader.y, reader.weight)
    places = [None if a is None else [str(a.store_path), list(a.shape), str(a.dtype)] for a in arrays]
    last = len(reader.sizes) - 1
    starts = [number * reader.sizes[0] for number in sorted({0, last // 2, last})]
    return {"arrays": places, "checksums": [[_checksum(a, start) for start in starts] for a in arrays if a is not None]}


def _checksum(array: Any, start: int) -> int:
    rows = np.ascontiguousarray(read_values(array, start, min(start + _CHECKED_ROWS, array.shape[0])))
    return zlib.crc32(rows.view(np.uint8).data)


def _schema(info: SourceInfo) -> TableSchema:
    task: Any = info.task
    return TableSchema(
        info.n_features,
        info.feature_names,
        info.target_names,
        info.encoding,
        info.scaling,
        task,
        info.n_targets,
        info.classes,
        info.index_base,
    )
