"""The interface of the kinds of rows that are read in place, and the user's description of such rows."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import zarr
from distributed import Client

from daskkern.data.cubes.cube_stores import plain_arrays
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource, SourceInfo

OF_TABLES = ("categorical", "missing", "columns", "where")
"""The roles that only tables have."""


@dataclass(frozen=True, eq=False)
class GivenRows:
    """What a user gives.

    Attributes
    ----------
    X : Dataset, DataArray, pyarrow.dataset.Dataset, dask dataframe, Zarr array or group, TableFiles, path or URL
    roles : RowRoles
    y, weight : DataArray, Zarr array or None
    like : SourceInfo or None
        Training rows, whose classes and columns these rows get.
    client : Client or None
        A cluster that surveys a Dataset.
    """

    X: Any
    roles: RowRoles
    y: Any = None
    weight: Any = None
    like: SourceInfo | None = None
    client: Client | None = None

    @property
    def classes(self) -> tuple[ClassLabel, ...] | None:
        """The classes of the training rows."""
        return None if self.like is None else self.like.classes

    @cached_property
    def arrays(self) -> dict[str, zarr.Array[Any]]:
        """The arrays of the Zarr group `X`, or at its path or URL, which is opened once; none without a group."""
        return plain_arrays(self.X) if isinstance(self.X, str | os.PathLike | zarr.Group) else {}

    @property
    def place(self) -> str:
        """Where `X`, a path, URL or Zarr group, is."""
        return str(self.X.store_path) if isinstance(self.X, zarr.Group) else os.fspath(self.X)


class DirectKind(ABC):
    """A kind of rows that are read in place.

    Attributes
    ----------
    words : str
        What messages call it.
    without : tuple of str
        The roles that it does not have.
    separate_targets : bool
        Whether targets and weights are objects of their own, and not parts of `X`.
    """

    words: ClassVar[str]
    without: ClassVar[tuple[str, ...]]
    separate_targets: ClassVar[bool] = False

    @abstractmethod
    def takes(self, given: GivenRows) -> bool:
        """Return whether the rows are of this kind, and of no kind that is tried before it."""

    @abstractmethod
    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        """Return the rows as a source, and notes for the user. Raises DataError, SpecError for names or values that do
        not suit."""

    def check(self, given: GivenRows) -> None:
        """Raise DataError for roles that it does not have, and for targets that it does not take."""
        if not self.separate_targets and (given.y is not None or given.weight is not None):
            raise DataError(
                f"got y or sample_weight with {self.words}; name columns of it, with target= and sample_weight="
            )
        for name in self.without:
            if name in given.roles.given:
                raise DataError(
                    f"got {name}={given.roles.given[name]!r} with {self.words}, which has no such choice; leave it out"
                )
