"""Values that one format writes otherwise than another, or that mean others: the same rows, or a sentence."""

import json
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr

from daskkern import KernelRegressor, ingest, load, predict_table, write_predictions
from daskkern.data.ingest import DaskArrays
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError, SpecError

N = 60


def _regressor(kernel: str = "laplacian:median") -> KernelRegressor:
    return KernelRegressor(kernel, solver="direct", alpha=1e-3, calibrate=False, device="cpu")


def _features(path: Path) -> Any:
    return open_store(path).array("X")[...]


def _dates(rows: pd.DataFrame, path: Path) -> Path:
    """Write rows with a column `when` of dates."""
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix == ".csv":
        rows.to_csv(path, index=False)
    else:
        rows.assign(when=rows["when"].dt.strftime("%Y-%m-%d")).to_json(path, orient="records", lines=True)
    return path


def _rows(kinds: int) -> pd.DataFrame:
    number = np.arange(N) % kinds
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(number, unit="D")
    return pd.DataFrame({"a": np.arange(N) / 7, "when": when, "y": np.arange(N) / 7 + 3.5 * number})


@pytest.mark.parametrize("categorical", ["onehot", "codes"])
@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".csv"])
def test_dates_that_are_categories_are_the_same_in_every_format(categorical: str, ending: str, tmp_path: Path) -> None:
    rows = _rows(4)
    ingest(_dates(rows, tmp_path / "train.csv"), tmp_path / "train.zarr", target="y", categorical=categorical)
    model = _regressor("laplacian_l1:3").fit(tmp_path / "train.zarr")
    expected = model.predict(tmp_path / "train.csv")
    np.testing.assert_allclose(model.predict(_dates(rows, tmp_path / f"later{ending}")), expected, rtol=1e-9)
    np.testing.assert_allclose(model.predict(rows[["a", "when"]]), expected, rtol=1e-9)
    rows.loc[3, "when"] = pd.Timestamp("2024-02-01")
    if categorical == "onehot":
        with pytest.raises(DataError, match=r"row 3 .* has '2024-02-01"):
            model.predict(_dates(rows, tmp_path / f"other{ending}"))


@pytest.mark.parametrize("written", ["milliseconds", "compact"])
def test_numbers_that_are_no_days_are_refused_among_dates(written: str, tmp_path: Path) -> None:
    rows = _rows(N)
    model = _regressor().fit(rows[["a", "when"]], rows["y"])
    other = rows["when"].dt.strftime("%Y%m%d").astype(int)
    if written == "milliseconds":
        other = rows["when"].astype("datetime64[ms]").astype("int64")
    for path in (tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        changed = rows.assign(when=other)
        changed.to_csv(path, index=False) if path.suffix == ".csv" else changed.to_parquet(path)
        with pytest.raises(DataError, match=r"row 0 .* in column 'when', .* beyond the year 9999"):
            model.predict(path)
    with pytest.raises(DataError, match=r"row 0 .* in column 'when', .* beyond the year 9999"):
        model.predict(rows.assign(when=other)[["a", "when"]])
    days = rows["when"].astype("datetime64[s]").astype("int64") / 86400
    expected = model.predict(rows[["a", "when"]])
    np.testing.assert_allclose(model.predict(rows.assign(when=days)[["a", "when"]]), expected, atol=1e-6)


def test_integers_of_64_bits_in_json_lines_stay_exact(tmp_path: Path) -> None:
    ids = [2**64 - 1 - 7 * k if k % 2 else k for k in range(N)]
    lines = [json.dumps({"id": number, "a": k / 7, "y": k / 3}) for k, number in enumerate(ids)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    model = _regressor().fit(pd.DataFrame({"a": np.arange(N) / 7}), np.arange(N) / 3)
    model.save(tmp_path / "model.zarr")
    found = predict_table(load(tmp_path / "model.zarr"), tmp_path / "rows.jsonl", keep=["id"])
    assert found.column("id").to_pylist() == ids
    lines = [json.dumps({"a": k / 7, "y": 10**19 + k % 3}) for k in range(N)]
    (tmp_path / "labels.jsonl").write_text("\n".join(lines) + "\n")
    ingest(tmp_path / "labels.jsonl", tmp_path / "labels.zarr", target="y")
    assert open_store(tmp_path / "labels.zarr").info.classes == (10**19, 10**19 + 1, 10**19 + 2)


def test_kept_dates_of_json_lines_are_as_they_are_written(tmp_path: Path) -> None:
    keys = ["2024-01-01", "2024-01-02T03:04:05Z"]
    lines = [json.dumps({"key": keys[k % 2], "a": k / 7}) for k in range(N)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    model = _regressor().fit(pd.DataFrame({"a": np.arange(N) / 7}), np.arange(N) / 3)
    found = predict_table(model, tmp_path / "rows.jsonl", keep=["key"])
    assert found.column("key").to_pylist()[:2] == keys


def test_empty_labels_are_missing_in_parquet_as_in_other_formats(tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.arange(N) / 7, "y": ["" if k % 9 == 3 else "uv"[k % 2] for k in range(N)]})
    rows.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"row 3 .* has no value in column 'y'"):
        ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", target="y")


@pytest.mark.parametrize("name", ["X", "y", "weight"])
def test_masks_of_dask_arrays_are_refused(name: str, tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((N, 3))
    parts = {"X": da.from_array(X, chunks=(20, 3)), "y": da.from_array(X[:, 0], chunks=20)}
    parts["weight"] = da.ones(N, chunks=20)
    model = _regressor().fit(X, X[:, 0])
    parts[name] = da.ma.masked_greater(parts[name], 0.5)
    with pytest.raises(DataError, match=f"{name} is a dask array of masked chunks"):
        ingest(DaskArrays(**parts), tmp_path / "rows.zarr")
    with pytest.raises(DataError, match="is a dask array of masked chunks"):
        _regressor().fit(parts["X"], parts["y"], parts["weight"])
    if name == "X":
        with pytest.raises(DataError, match="X is a dask array of masked chunks"):
            model.predict(parts["X"])


@pytest.mark.parametrize("kind", ["h5", "zarr"])
@pytest.mark.parametrize(
    ("attributes", "packed"),
    [
        ({"scale_factor": 0.1}, True),
        ({"add_offset": 3.0}, True),
        ({"_FillValue": -999.0}, True),
        ({"missing_value": 7}, True),
        ({"_FillValue": float("nan")}, False),
        ({"units": "K"}, False),
    ],
)
def test_packed_values_are_refused(kind: str, attributes: dict[str, Any], packed: bool, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    X = np.arange(2.0 * N).reshape(N, 2)
    if kind == "h5":
        with h5py.File(path, "w") as file:
            file["X"], file["y"] = X, X[:, 0] / 3
            file["X"].attrs.update(attributes)
    else:
        group = zarr.open_group(path, mode="w")
        group.create_array("X", data=X).attrs.update(attributes)
        group.create_array("y", data=X[:, 0] / 3)
    if not packed:
        ingest(path, tmp_path / "store")
        return
    with pytest.raises(DataError, match=f"'X' of .* holds packed values .attribute {next(iter(attributes))}"):
        ingest(path, tmp_path / "store")


def test_texts_in_the_names_of_folders_stay_texts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.standard_normal(90), "k": ["01", "02", "x"] * 30})
    rows["y"] = rows["a"] + rows["k"].map({"01": 0.0, "02": 2.0, "x": 5.0})
    rows.to_parquet(tmp_path / "train", partition_cols=["k"])
    ingest(tmp_path / "train", tmp_path / "train.zarr", target="y")
    model = _regressor().fit(tmp_path / "train.zarr")
    rows[rows["k"] != "x"].to_parquet(tmp_path / "later", partition_cols=["k"])
    assert model.score(tmp_path / "later") > 0.9


@pytest.mark.parametrize("ending", ["csv.GZ", "CSV"])
def test_endings_in_capitals(ending: str, tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.arange(N) / 7, "y": np.arange(N) / 3})
    rows.to_csv(tmp_path / f"rows.{ending}", index=False, compression="gzip" if ending.endswith("GZ") else None)
    ingest(tmp_path / f"rows.{ending}", tmp_path / "rows.zarr", target="y")
    np.testing.assert_allclose(_features(tmp_path / "rows.zarr")[:, 0], np.arange(N) / 7, rtol=1e-6)


def test_truth_values_in_any_case_and_with_blanks(tmp_path: Path) -> None:
    rows = pd.DataFrame({"k": [" True", "tRue", "false ", "FALSE", ""] * 12, "y": np.arange(N) / 3})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", target="y")
    np.testing.assert_array_equal(_features(tmp_path / "rows.zarr")[:5, 0], [1, 1, 0, 0, 0.5])


def test_columns_beside_like_are_refused(tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.arange(N) / 7, "b": 1.0, "y": np.arange(N) / 3})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    ingest(tmp_path / "rows.csv", tmp_path / "first", target="y")
    with pytest.raises(SpecError, match="got --columns together with --like"):
        ingest(tmp_path / "rows.csv", tmp_path / "second", like=tmp_path / "first", columns=["a"])


def test_nested_columns_are_not_kept_in_csv(tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.arange(N) / 7, "tags": [["x"]] * N})
    rows.to_parquet(tmp_path / "rows.parquet")
    model = _regressor().fit(rows[["a"]], np.arange(N) / 3)
    with pytest.raises(DataError, match=r"column 'tags' holds list<.*> values, which CSV cannot hold"):
        write_predictions(model, tmp_path / "rows.parquet", tmp_path / "out.csv", keep=["tags"])
    assert not (tmp_path / "out.csv").exists()
    write_predictions(model, tmp_path / "rows.parquet", tmp_path / "out.parquet", keep=["tags"])
    assert pq.read_table(tmp_path / "out.parquet").column("tags")[0].as_py() == ["x"]
