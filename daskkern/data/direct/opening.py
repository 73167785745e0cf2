"""Opening tables without ingesting them: which columns are features, how they are encoded, and what the targets are."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskkern.data.direct.arrow_datasets import dataset_stamps, is_arrow_dataset, open_dataset
from daskkern.data.direct.dask_frames import frame_key, is_dask_frame, open_dask_frame
from daskkern.data.ingest.columns.imputing import filled_as, imputed
from daskkern.data.ingest.columns.match_schema import decide_like
from daskkern.data.ingest.columns.targets import Decision, check_task, decide
from daskkern.data.ingest.pipeline.sources import open_source
from daskkern.data.ingest.readers.tables import Parts, Request, Table
from daskkern.data.schema.encoding import check_choices
from daskkern.data.schema.table_schema import TableSchema
from daskkern.errors import DataError, SpecError


@dataclass(frozen=True)
class TableChoice:
    """What a user names of a table; see :func:`daskkern.data.ingest.ingest` for the meaning.

    Attributes
    ----------
    target : tuple of str
        Columns to be predicted.
    weight : str or None
    drop : tuple of str
    task : str
        "auto", "classification" or "regression".
    categorical, missing : str
        How columns of text, and missing values, become numbers.
    columns : tuple of str
        The features; empty for all other columns.
    where : str or None
        A filter of rows.
    """

    target: tuple[str, ...]
    weight: str | None = None
    drop: tuple[str, ...] = ()
    task: str = "auto"
    categorical: str = "auto"
    missing: str = "auto"
    columns: tuple[str, ...] = ()
    where: str | None = None


@dataclass(frozen=True)
class OpenedTable:
    """A table with its encoding decided, and what its targets are.

    Attributes
    ----------
    table : Table
    decision : Decision
    notes : tuple of str
        For the user.
    key : str
        A digest that differs where files or choices do.
    """

    table: Table
    decision: Decision
    notes: tuple[str, ...]
    key: str


def open_table(X: Any, choice: TableChoice, like: TableSchema | None = None) -> OpenedTable:
    """Open a path, a pattern, a folder, a ``pyarrow.dataset.Dataset`` or a dask dataframe.

    As in an ingestion, columns of text are read once to find their categories, and columns of numbers to find gaps and,
    where there are some, means. Nothing is written.

    Parameters
    ----------
    X : path, pyarrow.dataset.Dataset or dask dataframe
    choice : TableChoice
    like : TableSchema or None
        Columns, encoding and classes of training rows, which these rows get.

    Raises
    ------
    DataError, SpecError
        When columns or values do not suit; the message is one sentence.
    """
    check_task(choice.task)
    choices = check_choices(choice.categorical, choice.missing)
    if not choice.target:
        raise DataError(f"which column of {_place(X)} is the target? Name it with target=, or --target")
    scratch = Path(tempfile.gettempdir())
    request = Request(
        choice.target, choice.weight, choice.drop, choice.task, scratch, count=False, like=like,
        categorical=choices[0], missing=choices[1], columns=choice.columns or None, where=choice.where,
    )  # fmt: skip
    parts, key = _opened(X, request)
    decision = decide(parts.train, choice.task) if like is None else decide_like(parts.train, like)
    return OpenedTable(parts.train, decision, parts.notes, key)


def _opened(X: Any, request: Request) -> tuple[Parts, str]:
    if is_arrow_dataset(X):
        parts = open_dataset(X, request)
        return _filled(parts, request), _digest([*dataset_stamps(X), repr(request)])
    if is_dask_frame(X):
        return _filled(open_dask_frame(X, request), request), _digest([frame_key(X), repr(request)])
    place = os.fspath(X)
    source = open_source(place, request, (), every_float=True)
    if source.format in ("csv", "svmlight"):
        raise SpecError(
            f"got {place}, a {source.format} file, which is read line by line and has no row groups to draw batches "
            "from; ingest it with 'daskkern ingest', or write it as Parquet"
        )
    return source.parts, source.key or _digest([place, repr(request)])


def _filled(parts: Parts, request: Request) -> Parts:
    """Return the rows with missing numbers replaced, as an ingestion does."""
    if request.like is not None:
        encoding = request.like.encoding
        return parts if encoding is None else Parts(filled_as(parts.train, encoding), None, parts.notes)
    missing = parts.missing or ("refuse" if request.missing == "auto" else request.missing)
    table, notes = imputed(parts.train, missing)
    return Parts(table, None, (*parts.notes, *notes))


def _digest(words: list[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _place(X: Any) -> str:
    if is_dask_frame(X):
        return "the dask dataframe"
    return "the pyarrow dataset" if is_arrow_dataset(X) else os.fspath(X)
