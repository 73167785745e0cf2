"""Rows that are read in place are of one kind, which refuses what it does not have."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest
import xarray as xr
import zarr

from daskkern.data.direct.table_files import TableFiles
from daskkern.errors import DataError
from daskkern.training.direct.kind import GivenRows
from daskkern.training.direct.registry import KINDS, direct_rows
from daskkern.training.direct.roles import RowRoles


def _every(folder: Path) -> dict[str, Any]:
    """Return one object or place of each kind, by the name of the kind."""
    cube = xr.Dataset({"a": ("time", np.arange(4.0)), "y": ("time", np.arange(4.0))})
    cube.to_zarr(folder / "cube.zarr", consolidated=False)
    pd.DataFrame({"a": [1.0, 2.0], "y": [0.0, 1.0]}).to_parquet(folder / "table.parquet")
    group = zarr.open_group(folder / "pair.zarr", mode="w")
    for name, shape in (("X", (4, 2)), ("y", (4,))):
        group.create_array(name, data=np.ones(shape))
    return {
        "HeldCube": cube,
        "HeldArrays": group["X"],
        "HeldTable": ds.dataset(folder / "table.parquet"),
        "ChosenTable": TableFiles(str(folder / "table.parquet"), columns=("a",)),
        "StoredCube": folder / "cube.zarr",
        "StoredArrays": str(folder / "pair.zarr"),
        "StoredTable": str(folder / "table.parquet"),
    }


def test_each_kind_is_recognised(tmp_path: Path) -> None:
    every = _every(tmp_path)
    assert set(every) == {type(kind).__name__ for kind in KINDS}
    for name, X in every.items():
        given = GivenRows(X, RowRoles(("y",)))
        assert next(type(kind).__name__ for kind in KINDS if kind.takes(given)) == name


@pytest.mark.parametrize(
    ("name", "role", "words"),
    [
        ("HeldCube", {"where": "a > 1"}, "got where='a > 1' with a Dataset, which has no such choice"),
        ("StoredCube", {"columns": ("a",)}, "with a Dataset, which"),
        ("HeldTable", {"coords": ("time",)}, "with a pyarrow dataset or dask dataframe, which"),
        ("HeldTable", {"columns": ("a",)}, "with a pyarrow dataset or dask dataframe, which"),
        ("StoredArrays", {"drop": ("a",)}, "with a group of Zarr arrays, which"),
        ("HeldArrays", {"target": ("y",)}, "with a Zarr array, which"),
    ],
)
def test_a_kind_refuses_what_it_does_not_have(name: str, role: dict[str, Any], words: str, tmp_path: Path) -> None:
    X = _every(tmp_path)[name]
    roles = RowRoles(**({} if name == "HeldArrays" else {"target": ("y",)}) | role)
    with pytest.raises(DataError, match=words):
        direct_rows(X, roles)


@pytest.mark.parametrize("name", ["HeldTable", "StoredTable", "StoredArrays", "StoredCube"])
def test_parts_of_rows_are_named_and_not_given_apart(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="name columns of it, with target="):
        direct_rows(_every(tmp_path)[name], RowRoles(("y",)), y=np.ones(4))


def test_other_objects_are_refused_in_one_sentence() -> None:
    with pytest.raises(DataError, match="got X of type int; expected a Dataset"):
        direct_rows(3, RowRoles(("y",)))
