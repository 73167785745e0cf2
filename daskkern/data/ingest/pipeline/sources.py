"""The sources of an ingestion: rows of files or dask collections, missing values filled, and a digest for resuming."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from dask.base import is_dask_collection

from daskkern.data.ingest.columns.choice import choose_columns
from daskkern.data.ingest.columns.imputing import filled_as, imputed
from daskkern.data.ingest.pipeline.resume import key_of
from daskkern.data.ingest.readers.dask_tables import DaskArrays, open_arrays, open_frame
from daskkern.data.ingest.readers.formats import Format, find_files, find_in_folders, is_lake
from daskkern.data.ingest.readers.frames import is_frame, open_table
from daskkern.data.ingest.readers.lake_tables import open_lake_table
from daskkern.data.ingest.readers.tables import Parts, Request, Table
from daskkern.data.lake import Lake
from daskkern.data.lake.listing import NoParquetError
from daskkern.data.lake.opening import TaskRunner, open_lake
from daskkern.data.remote.stores import absolute
from daskkern.data.remote.url_files import SourceFile
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.transactions.resumable import work_key
from daskkern.errors import DataError, SpecError

PathLike: TypeAlias = str | os.PathLike[str]
Sources: TypeAlias = PathLike | Sequence[PathLike] | DaskArrays | Any
"""Files or patterns, dask arrays, or a dataframe, which has no type here because its package is optional."""

_TABLES = ("csv", "parquet", "arrow", "orc", "json lines", "dask", "frame")


@dataclass(frozen=True)
class IngestSource:
    """Rows to ingest, and `names`, as given by the user.

    `key` identifies the rows and the settings; None when that is not possible.
    """

    format: str
    n_files: int
    parts: Parts
    key: str | None
    names: tuple[str, ...]


def open_source(
    sources: Sources,
    request: Request,
    settings: tuple[object, ...],
    run: TaskRunner | None = None,
    *,
    every_float: bool = False,
) -> IngestSource:
    """Return the rows of the sources of an ingestion.

    Parameters
    ----------
    sources : path or URL, sequence of them, DataFrame, Arrow table, DaskArrays or dask dataframe
    request : Request
    settings : tuple
        Settings of the store that the digest covers.
    run : callable, optional
        Runs the tasks that prepare the reading of a lake; by default they run in threads of this process.
    every_float : bool
        See :func:`daskkern.data.ingest.readers.lake_tables.open_lake_table`.
    """
    if isinstance(sources, DaskArrays) or is_dask_collection(sources):
        lazy = open_arrays(sources, request) if isinstance(sources, DaskArrays) else open_frame(sources, request)
        _check_options(request, "dask")
        return IngestSource("dask", 1, _filled(lazy, request), None, ("dask",))
    if is_frame(sources):
        _check_options(request, "frame")
        return IngestSource("frame", 1, _filled(open_table(sources, request), request), None, ("a table in memory",))
    places = _places(sources)
    named, places = tuple(places), [absolute(place) for place in places]  # workers may run in another folder
    covered = {"request": repr(request), "settings": settings}
    opened = _lake(places, request, run) if is_lake(places) else find_files(places)
    if isinstance(opened, Lake):
        _check_options(request, "parquet")
        parts = open_lake_table(opened, request, run, every_float=every_float)
        return IngestSource("parquet", len(opened.stamps), parts, work_key([*opened.stamps, covered]), named)
    found, files = opened
    _check_options(request, found.name)
    key = key_of(files, covered)
    return IngestSource(found.name, len(files), _filled(found.open(files, request), request), key, named)


def _places(sources: Any) -> list[str]:
    """Return paths and URLs as texts. Raises DataError for what is neither."""
    try:
        return [os.fspath(name) for name in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    except TypeError:
        parts = sources if isinstance(sources, tuple | list) and len(sources) < 4 else [sources]
        found = " and ".join(f"{type(part).__module__.partition('.')[0]}.{type(part).__name__}" for part in parts)
        raise DataError(
            f"got {found} to ingest; expected paths, URLs, a data frame or Arrow table, or dask arrays as "
            "DaskArrays(X, y) from daskkern.data.ingest; NumPy arrays need no store: fit them, or save them with "
            "numpy.savez"
        ) from None


def _lake(places: Sequence[str], request: Request, run: TaskRunner | None) -> Lake | tuple[Format, list[SourceFile]]:
    """Return Parquet files as a lake, or the files of another format that are in folders without Parquet files."""
    try:
        columns = partial(_needed, request, places[0])
        return open_lake(places, columns=columns, where=request.where, run=run, texts=_texts_like(request.like))
    except NoParquetError:
        found = find_in_folders(places)
        if found is None:
            raise
        return found


def _texts_like(like: TableSchema | None) -> list[str]:
    """Return the columns that the rows before had as texts: categories, and a target of classes that are texts."""
    if like is None:
        return []
    labels = like.target_names if any(isinstance(label, str) for label in like.classes or ()) else None
    return [*(column.name for column in like.encoding or () if column.kind != "number"), *(labels or ())]


def _needed(request: Request, place: str, names: Sequence[str]) -> Sequence[str]:
    return choose_columns(names, request, place).all


def _check_options(request: Request, name: str) -> None:
    """Refuse options that do not apply to files of this format."""
    for option, is_given, formats in (
        ("--features", request.features is not None, ("hdf5", "zarr")),
        ("--index-base", request.index_base is not None, ("svmlight",)),
        ("--keep", bool(request.keep), _TABLES),
        ("--categorical", request.categorical not in ("auto", "refuse"), _TABLES),
        ("--columns", request.columns is not None, _TABLES),
        ("--where", request.where is not None, ("parquet",)),
    ):
        if is_given and name not in formats:
            *others, last = [known for known in formats if known != "frame"]
            known = f"{', '.join(others)} and {last}" if others else last
            raise SpecError(f"{option} was given, but it applies to {known} files only, not to {name}; leave it out")


def _filled(parts: Parts, request: Request) -> Parts:
    """Return the rows with missing numbers replaced, as requested or as in the ``like`` store."""
    if request.like is not None:
        return replace(parts, train=_filled_like(parts.train, request), test=None)
    missing = parts.missing or ("refuse" if request.missing == "auto" else request.missing)
    train, notes = imputed(parts.train, missing)
    test = parts.test
    if test is not None and train.encoding is not None and missing != "refuse":
        test = filled_as(test, train.encoding)
    return Parts(train, test, (*parts.notes, *notes))


def _filled_like(table: Table, request: Request) -> Table:
    assert request.like is not None
    encoding = request.like.encoding
    if encoding is None or table.n_features != request.like.n_features:
        return table
    return filled_as(table, encoding)
