"""Options that name columns or variables of rows outside a store, and the opening of such rows."""

import functools
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from daskkern.cli.console import remark, show_notes
from daskkern.cli.options.column_lists import column_list
from daskkern.data.cubes.cube_stores import is_cube_store
from daskkern.data.ingest.columns.targets import TASKS
from daskkern.data.ingest.readers.formats import CSV_SUFFIXES, TEXT_SUFFIXES
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.encoding import CATEGORICAL_CHOICES, MISSING_CHOICES
from daskkern.errors import DataError
from daskkern.evaluation.raw_tables import is_table
from daskkern.training.direct.registry import direct_rows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sources import StoreSource

ROW_OPTIONS = tuple(item.name for item in fields(RowRoles))
"""Names of the options, as records of fits have them."""


_OPTIONS = (
    column_list(
        "--target",
        text="Fit without ingestion: STORE is a table with row groups (Parquet, Arrow, ORC, JSON lines; also a "
        "folder), a Zarr store of xarray, or a Zarr group with an array X; this names the columns, variables or array "
        "to predict.",
    ),
    click.option("--weight", metavar="NAME", help="With --target: the column or variable with weights of rows."),
    column_list("--drop", text="With --target: columns or variables to leave out."),
    click.option(
        "--task",
        type=click.Choice(TASKS),
        default="auto",
        help="With --target: whether targets are labels of classes or quantities.  [default: auto]",
    ),
    click.option(
        "--categorical",
        type=click.Choice(CATEGORICAL_CHOICES),
        default="auto",
        help="With --target: how columns of text become features, as for 'daskkern ingest'.  [default: auto]",
    ),
    click.option(
        "--missing",
        type=click.Choice(MISSING_CHOICES),
        default="auto",
        help="With --target: what missing values of a table become, as for 'daskkern ingest'.  [default: auto]",
    ),
    column_list("--columns", "only_columns", text="With --target: columns of a table to use as features."),
    click.option(
        "--where",
        "row_filter",
        metavar="FILTER",
        help="With --target: only rows of a Parquet table that pass, as for 'daskkern ingest'.",
    ),
    column_list("--sample-dims", text="Of xarray: the dims whose cells are rows.  [default: the target's]"),
    column_list("--coords", text="Of xarray: coordinates that are features too, such as lat,lon,time."),
)


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name parts of tables and Datasets to a command, which receives them as one `roles`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        target: tuple[str, ...],
        weight: str | None,
        drop: tuple[str, ...],
        task: str,
        categorical: str,
        missing: str,
        only_columns: tuple[str, ...],
        row_filter: str | None,
        sample_dims: tuple[str, ...],
        coords: tuple[str, ...],
        **others: Any,
    ) -> Any:
        roles = RowRoles(
            target,
            sample_dims,
            coords,
            drop,
            weight,
            task,
            categorical,
            missing,
            only_columns,
            row_filter,
        )
        return command(*args, roles=roles, **others)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def open_rows(place: str, roles: RowRoles, like: SourceInfo | None = None) -> RowSource:
    """Return the source for rows named on the command line: a store, or with names of columns what is read directly.

    Notes about the columns are printed.

    Raises
    ------
    DataError
        If they have no targets, or cannot be read.
    """
    if not roles.given:
        return _store(place)
    if not roles.target:
        name = next(iter(roles.given))
        raise DataError(f"got --{name.replace('_', '-')} without --target, which names what is predicted")
    if not is_url(place) and not os.path.exists(place) and not any(c in place for c in "*?["):
        raise DataError(f"there is no file, folder or store at {place}; check the name")
    if _is_ours(place):
        raise DataError(f"got --target with {place}, a store, which records its targets; leave out --target")
    source, notes = direct_rows(place, roles, like=like)
    show_notes(notes)
    remark(f"reads {source.info.n_rows:,} rows x {source.info.n_features} features from {source.origin}, not ingested")
    return source


def _store(place: str) -> StoreSource:
    if not is_url(place) and is_table(place) and os.path.exists(place):
        name = place.lower()
        if name.endswith(TEXT_SUFFIXES):
            target = " --target COLUMN" if name.endswith(CSV_SUFFIXES) else ""  # a line of SVMLight begins with it
            raise DataError(
                f"{place} is a table of text and not a store; make one with 'daskkern ingest {place}{target} "
                "--out STORE'"
            )
        kind = "a Dataset of xarray" if is_cube_store(place) else "not a store"
        raise DataError(
            f"{place} is {kind}; name what is predicted with --target to read it in place, or make a store with "
            "'daskkern ingest'"
        )
    source = StoreSource.at(place)
    if source.info.task is None:
        raise DataError(f"the store {place} has no targets, so nothing can be fitted; ingest it again with --target")
    return source


def _is_ours(place: str) -> bool:
    return not is_url(place) and os.path.isdir(place) and not is_cube_store(place) and not is_table(place)
