"""Tables and Zarr arrays as rows that are read in place."""

import os
from typing import ClassVar

import zarr

from daskkern.data.direct.arrow_datasets import is_arrow_dataset
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.direct.opening import TableChoice
from daskkern.data.direct.table_files import TableFiles
from daskkern.errors import DataError
from daskkern.training.direct.kind import OF_TABLES, DirectKind, GivenRows
from daskkern.training.direct.table_source import table_source, zarr_source
from daskkern.training.feeding.row_source import RowSource

_OF_CUBES = ("sample_dims", "coords")


class HeldArrays(DirectKind):
    """A Zarr array of features, with one of targets."""

    words: ClassVar[str] = "a Zarr array"
    without: ClassVar[tuple[str, ...]] = ("target", *_OF_CUBES, "drop", *OF_TABLES)
    separate_targets: ClassVar[bool] = True

    def takes(self, given: GivenRows) -> bool:
        return isinstance(given.X, zarr.Array)

    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        return zarr_source(given.X, given.y, given.weight, given.roles.task, given.classes), ()


class StoredArrays(DirectKind):
    """The path or URL of a Zarr group with an array X and one of targets, or the opened group."""

    words: ClassVar[str] = "a group of Zarr arrays"
    without: ClassVar[tuple[str, ...]] = (*_OF_CUBES, "drop", *OF_TABLES)

    def takes(self, given: GivenRows) -> bool:
        target = given.roles.target
        return isinstance(given.X, zarr.Group) or (len(target) == 1 and {"X", *target} <= given.arrays.keys())

    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        arrays, weight, place = given.arrays, given.roles.weight, given.place
        if len(given.roles.target) != 1:
            raise DataError(f"got target={given.roles.target!r} with {self.words}; name one array of {place!r}")
        for name in ("X", *given.roles.target, *([] if weight is None else [weight])):
            if name not in arrays:
                raise DataError(f"{place!r} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
        y = arrays[given.roles.target[0]]
        task = given.roles.task_or_none or ("regression" if y.dtype.kind == "f" else "classification")
        weights = None if weight is None else arrays[weight]
        return zarr_source(arrays["X"], y, weights, task, given.classes, place), ()


class StoredTable(DirectKind):
    """The path, URL or pattern of a table in files."""

    words: ClassVar[str] = "a table"
    without: ClassVar[tuple[str, ...]] = _OF_CUBES

    def takes(self, given: GivenRows) -> bool:
        return isinstance(given.X, str | os.PathLike)

    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        return table_source(given.X, _choice(given), like=given.like)


class ChosenTable(DirectKind):
    """Table files with columns, a filter and encodings, which are not given again."""

    words: ClassVar[str] = "TableFiles, which have their own columns, filter and encodings"
    without: ClassVar[tuple[str, ...]] = (*_OF_CUBES, *OF_TABLES)

    def takes(self, given: GivenRows) -> bool:
        return isinstance(given.X, TableFiles)

    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        X, r = given.X, given.roles
        choice = TableChoice(
            r.target, r.weight, r.drop, r.task, X.categorical, X.missing, columns=tuple(X.columns), where=X.where
        )
        return table_source(X.place, choice, like=given.like)


class HeldTable(DirectKind):
    """A dataset of pyarrow, or a dask dataframe, which selects columns and rows by itself."""

    words: ClassVar[str] = "a pyarrow dataset or dask dataframe"
    without: ClassVar[tuple[str, ...]] = (*_OF_CUBES, "columns", "where")

    def takes(self, given: GivenRows) -> bool:
        return is_arrow_dataset(given.X) or is_dask_frame(given.X)

    def source(self, given: GivenRows) -> tuple[RowSource, tuple[str, ...]]:
        return table_source(given.X, _choice(given), like=given.like)


def _choice(given: GivenRows) -> TableChoice:
    r = given.roles
    return TableChoice(r.target, r.weight, r.drop, r.task, r.categorical, r.missing, r.columns, r.where)
