"""The roles of table columns or Dataset parts that are read in place: features, targets, weights."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RowRoles:
    """What a user names of rows that are read in place: columns of a table, or parts of a Dataset.

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
