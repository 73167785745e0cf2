"""The table of kinds of rows that are read in place, and the choice among them by place or object."""

from typing import Any

from distributed import Client

from daskkern.errors import DataError
from daskkern.training.direct.cube_kinds import HeldCube, StoredCube
from daskkern.training.direct.kind import DirectKind, GivenRows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.direct.table_kinds import ChosenTable, HeldArrays, HeldTable, StoredArrays, StoredTable
from daskkern.training.feeding.row_source import RowSource, SourceInfo

KINDS: tuple[DirectKind, ...] = (
    HeldCube(),
    HeldArrays(),
    HeldTable(),
    ChosenTable(),
    StoredCube(),
    StoredArrays(),
    StoredTable(),
)
"""The kinds, in the order in which they are asked: a path is that of a table where it is of no other kind."""


def direct_rows(
    X: Any,
    roles: RowRoles,
    *,
    y: Any = None,
    weight: Any = None,
    like: SourceInfo | None = None,
    client: Client | None = None,
) -> tuple[RowSource, tuple[str, ...]]:
    """Return rows as a source that reads them in place, and notes for the user.

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
    given = GivenRows(X, roles, y, weight, like, client)
    for kind in KINDS:
        if kind.takes(given):
            kind.check(given)
            return kind.source(given)
    raise DataError(
        f"got X of type {type(X).__name__}; expected a Dataset, a pyarrow dataset, a dask dataframe, a Zarr array, "
        "TableFiles, or the path or URL of a Dataset, a group of Zarr arrays or a table"
    )
