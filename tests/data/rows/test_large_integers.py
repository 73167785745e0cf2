"""Integers beyond 2^53, which float64 rounds: refused as quantities, and kept as class labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr

from daskkern import KernelClassifier, KernelRegressor, TableFiles, ingest
from daskkern.errors import DataError

_ODD = 2**53 + 1
_X = np.random.default_rng(0).standard_normal((40, 2))
_QUANTITIES = _ODD + 2 * np.arange(40)
_LABELS = np.where(_X[:, 0] > 0, _ODD, _ODD + 1)
_REFUSED = "target 9007199254740993.*; expected integers up to 2\\^53"


def _frame(y: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": _X[:, 0], "b": _X[:, 1], "y": y})


def _parquet(y: Any, folder: Path) -> str:
    _frame(y).to_parquet(folder / "rows.parquet")
    return str(folder / "rows.parquet")


_ROWS: dict[str, Callable[[Any, Path], tuple[Any, ...]]] = {
    "array": lambda y, _: (_X, y),
    "list": lambda y, _: (_X, y.tolist()),
    "objects": lambda y, _: (_X, y.astype(object)),
    "unsigned": lambda y, _: (_X, y.astype(np.uint64)),
    "series": lambda y, _: (_frame(y)[["a", "b"]], pd.Series(y)),
    "nullable": lambda y, _: (_frame(y)[["a", "b"]], pd.Series(y, dtype="Int64")),
    "arrow": lambda y, _: (_frame(y)[["a", "b"]], pd.Series(y, dtype="int64[pyarrow]")),
    "dask": lambda y, _: (da.from_array(_X, chunks=20), da.from_array(y, chunks=20)),
    "zarr": lambda y, _: (zarr.array(_X, chunks=(20, 2)), zarr.array(y)),
    "files": lambda y, folder: (TableFiles(_parquet(y, folder)),),
}


def _named(rows: str) -> dict[str, str]:
    return {"target": "y"} if rows == "files" else {}


@pytest.mark.parametrize("rows", _ROWS)
def test_quantities_that_would_be_rounded_are_refused(rows: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=_REFUSED):
        KernelRegressor("gaussian:1", device="cpu").fit(*_ROWS[rows](_QUANTITIES, tmp_path), **_named(rows))


@pytest.mark.parametrize("rows", sorted(_ROWS.keys() - {"objects"}))  # which scikit-learn refuses as labels
def test_class_labels_are_exact(rows: str, tmp_path: Path) -> None:
    model = KernelClassifier("gaussian:1", device="cpu").fit(*_ROWS[rows](_LABELS, tmp_path), **_named(rows))
    assert model.classes_.tolist() == [_ODD, _ODD + 1]
    assert {*model.model_.predict(_X).tolist()} <= {_ODD, _ODD + 1}


@pytest.mark.parametrize("rows", ["array", "dask", "zarr"])
def test_labels_that_float64_has_merged_are_refused(rows: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"label 90071992547409\d\d\.0, .*; expected integers or text"):
        KernelClassifier(device="cpu").fit(*_ROWS[rows](_LABELS + 0.0 + 4 * (_X[:, 1] > 0), tmp_path))


def test_quantities_up_to_the_limit_and_floats_are_fitted() -> None:
    for y in (2**53 - np.arange(40), 1e18 * (1 + np.arange(40.0)), -(2**53) + np.arange(40)):
        assert np.isfinite(KernelRegressor("gaussian:1", device="cpu").fit(_X, y).predict(_X)).all()


def test_validation_targets_are_checked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=_REFUSED):
        KernelRegressor("gaussian:1", device="cpu").fit(_X, _X[:, 0], validation=(_X, _QUANTITIES))


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "zarr", "csv of several"])
def test_an_ingestion_names_the_row(kind: str, tmp_path: Path) -> None:
    y = np.where(np.arange(40) == 7, _ODD, np.arange(40))
    place, target = tmp_path / f"rows.{kind[:7].split()[0]}", ("y",)
    if kind == "csv":
        _frame(y).to_csv(place, index=False)
    elif kind == "csv of several":
        _frame(y).assign(z=0).to_csv(place, index=False)
        target = ("z", "y")
    elif kind == "parquet":
        _frame(y).to_parquet(place)
    elif kind == "npz":
        np.savez(place, X=_X, y=y)
    else:
        group = zarr.open_group(place, mode="w")
        group.create_array("X", data=_X)
        group.create_array("y", data=y)
    with pytest.raises(DataError, match=f"row 7 of .* has the {_REFUSED}"):
        ingest(place, tmp_path / "store.zarr", target=target, task="regression")


def test_floats_of_a_csv_file_may_be_large(tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    place.write_text("a,y\n" + "".join(f"{i},{i}e17\n{i},9007199254740994.0\n" for i in range(20)))
    assert ingest(place, tmp_path / "store.zarr", target="y", task="regression").n_rows == 40
