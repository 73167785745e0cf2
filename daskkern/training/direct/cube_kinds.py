"""xarray Datasets as rows that are read in place: in memory, and in a Zarr store."""

import os
from typing import ClassVar

import zarr

from daskkern.data.cubes.cube_opening import CubeChoice
from daskkern.data.cubes.cube_stores import is_cube_store, open_cube
from daskkern.data.cubes.packages import is_cube
from daskkern.training.direct.cube_source import cube_source
from daskkern.training.direct.kind import OF_TABLES, DirectKind, GivenRows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource


class HeldCube(DirectKind):
    """A Dataset or DataArray."""

    words: ClassVar[str] = "a Dataset"
    without: ClassVar[tuple[str, ...]] = OF_TABLES
    separate_targets: ClassVar[bool] = True

    def takes(self, given: GivenRows) -> bool:
        return is_cube(given.X)

    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        choice, task = _choice(given.roles), given.roles.task_or_none
        targets = {"y": given.y, "weight": given.weight}
        return cube_source(given.X, choice, task, **targets, classes=given.classes, client=given.client), ()


class StoredCube(DirectKind):
    """The path or URL of a Dataset in a Zarr store, or the opened group."""

    words: ClassVar[str] = "a Dataset"
    without: ClassVar[tuple[str, ...]] = OF_TABLES

    def takes(self, given: GivenRows) -> bool:
        if not isinstance(given.X, str | os.PathLike | zarr.Group):
            return False
        return bool(given.roles.sample_dims or given.roles.coords or is_cube_store(given.X))

    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        place, choice, task = given.place, _choice(given.roles), given.roles.task_or_none
        ds = open_cube(given.X)
        return cube_source(ds, choice, task, classes=given.classes, client=given.client, place=place), ()


def _choice(roles: RowRoles) -> CubeChoice:
    return CubeChoice(roles.target, roles.sample_dims or None, roles.coords, roles.drop, roles.weight)
