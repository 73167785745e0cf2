"""Places and objects that rows are read from directly: which kind of source each is."""

import os
from dataclasses import dataclass, replace
from typing import Any

import zarr
from distributed import Client

from daskkern.data.cubes.cube_opening import CubeChoice
from daskkern.data.cubes.cube_stores import is_cube_store, open_cube, plain_arrays
from daskkern.data.cubes.packages import is_cube
from daskkern.data.direct.arrow_datasets import is_arrow_dataset
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.direct.opening import TableChoice
from daskkern.data.direct.table_files import TableFiles
from daskkern.errors import DataError
from daskkern.training.direct.cube_source import cube_source
from daskkern.training.direct.table_source import table_source, zarr_source
from daskkern.training.feeding.row_source import RowSource, SourceInfo

_OF_TABLES = ("categorical", "missing", "columns", "where")


@dataclass(frozen=True)
class RowRoles:
    """What a user names of rows that are read where they lie: columns of a table, or parts of a Dataset.

    Attributes
    ----------
    target : tuple of str
        What is predicted: variables, columns, or the array of a Zarr group.
    sample_dims, coords : tuple of str
        Of Datasets, see :class:`daskkern.data.cubes.cube_opening.CubeChoice`.
    drop : tuple of str
        Variables or columns that are not features.
    weight : str or None
        The variable, column or array with the weights of rows.
    task : "auto", "classification" or "regression"
    categorical, missing : str
        Of tables, see :func:`daskkern.data.ingest.ingest`.
    columns : tuple of str
        Of tables: the columns that are features; empty for all others than the target and the weight.
    where : str or None
        Of Parquet: a filter of rows.
    """

    target: tuple[str, ...] = ()
    sample_dims: tuple[str, ...] = ()
    coords: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    weight: str | None = None
    task: str = "auto"
    categorical: str = "auto"
    missing: str = "auto"
    columns: tuple[str, ...] = ()
    where: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Return what differs from the defaults, by name."""
        usual = RowRoles()
        return {name: value for name, value in vars(self).items() if value != getattr(usual, name)}

    @property
    def task_or_none(self) -> str | None:
        """Return the task; None for "auto"."""
        return None if self.task == "auto" else self.task


def direct_rows(
    X: Any,
    roles: RowRoles,
    *,
    y: Any = None,
    weight: Any = None,
    like: SourceInfo | None = None,
    client: Client | None = None,
) -> tuple[RowSource, tuple[str, ...]]:
    """Return rows as a source that reads them where they lie, and notes for the user.

    Parameters
    ----------
    X : Dataset, DataArray, pyarrow.dataset.Dataset, dask dataframe, Zarr array, TableFiles, path or URL
        A path is that of a Zarr store of xarray, of a Zarr group with arrays ``X`` and `target`, or of a table.
    roles : RowRoles
    y, weight : DataArray or Zarr array
        Where `X` is of that kind.
    like : SourceInfo or None
        Training rows, whose classes and columns these rows get.
    client : Client or None
        A cluster that surveys a Dataset.

    Raises
    ------
    DataError, SpecError
        When names or values do not suit.
    """
    if isinstance(X, TableFiles):
        roles = replace(roles, columns=tuple(X.columns), where=X.where, categorical=X.categorical, missing=X.missing)
        X = X.place
    classes = None if like is None else like.classes
    if is_cube(X):
        _refuse(roles, _OF_TABLES, "a Dataset")
        choice = _cube_choice(roles)
        return cube_source(X, choice, roles.task_or_none, y=y, weight=weight, classes=classes, client=client), ()
    if isinstance(X, zarr.Array):
        _refuse(roles, ("target", "sample_dims", "coords", "drop", *_OF_TABLES), "a Zarr array")
        return zarr_source(X, y, weight, roles.task, classes), ()
    if y is not None or weight is not None:
        raise DataError(
            f"got y or sample_weight with X={_named(X)}; name columns of it, with target= and sample_weight="
        )
    held = is_arrow_dataset(X) or is_dask_frame(X)
    if not held and (roles.sample_dims or roles.coords or is_cube_store(X)):
        _refuse(roles, _OF_TABLES, "a Dataset")
        place, choice = os.fspath(X), _cube_choice(roles)
        return cube_source(open_cube(X), choice, roles.task_or_none, classes=classes, client=client, place=place), ()
    _refuse(roles, ("sample_dims", "coords"), "a table")
    pair = {} if held or len(roles.target) != 1 else plain_arrays(X)
    if "X" in pair and roles.target[0] in pair:
        _refuse(roles, ("drop", *_OF_TABLES), "a group of Zarr arrays")
        y = pair[roles.target[0]]
        if roles.weight is not None and roles.weight not in pair:
            raise DataError(f"{_named(X)} has no array {roles.weight!r}; it has {', '.join(pair)}")
        task = roles.task_or_none or ("regression" if y.dtype.kind == "f" else "classification")
        weights = None if roles.weight is None else pair[roles.weight]
        return zarr_source(pair["X"], y, weights, task, classes, os.fspath(X)), ()
    if held:
        _refuse(roles, ("columns", "where"), "a dataset or data frame in memory, which selects by itself")
    table = TableChoice(
        roles.target, roles.weight, roles.drop, roles.task, roles.categorical, roles.missing, roles.columns, roles.where
    )
    return table_source(X, table, like=like)


def _cube_choice(roles: RowRoles) -> CubeChoice:
    return CubeChoice(roles.target, roles.sample_dims or None, roles.coords, roles.drop, roles.weight)


def _refuse(roles: RowRoles, names: tuple[str, ...], what: str) -> None:
    for name in names:
        if name in roles.given:
            raise DataError(f"got {name}={roles.given[name]!r} with {what}, which has no such choice; leave it out")


def _named(X: Any) -> str:
    if is_dask_frame(X):
        return "a dask dataframe"
    return "a pyarrow dataset" if is_arrow_dataset(X) else repr(os.fspath(X))
