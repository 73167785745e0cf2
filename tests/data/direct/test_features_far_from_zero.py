"""Features far from 0, such as time stamps, keep their digits wherever a fit or a prediction reads them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster

from daskkern import KernelRegressor
from daskkern.data.schema.rank_tables import RankTable
from daskkern.data.schema.schema import Scaling

NAMES = list("abc")


def regressor(dtype: str = "float32", **parameters: Any) -> KernelRegressor:
    return KernelRegressor(
        kernel="laplacian:median", alpha=1e-3, max_epochs=3, dtype=dtype, calibrate=False, **parameters
    )


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """300 rows, of which one feature has mean 1.7e9 and spread 1, and the target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=NAMES)
    frame["y"] = np.sin(2 * frame.a) + frame.b * frame.c
    frame["a"] += 1.7e9
    return frame


@pytest.fixture(scope="module")
def expected(rows: pd.DataFrame) -> Any:
    model = regressor().fit(rows[NAMES], rows.y)
    assert model.score(rows[NAMES], rows.y) > 0.8
    return model.predict(rows[NAMES])


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_files_are_predicted_as_frames(rows: pd.DataFrame, tmp_path: Path, suffix: str, dtype: str) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix == ".csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_parquet(path)
    model = regressor(dtype).fit(rows[NAMES], rows.y)
    np.testing.assert_allclose(model.predict(path), model.predict(rows[NAMES]), atol=1e-4)


def test_parquet_files_are_fitted_as_frames(rows: pd.DataFrame, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows.to_parquet(path)
    model = regressor().fit(path, target="y")
    np.testing.assert_allclose(model.predict(rows[NAMES]), expected, atol=1e-4)


def test_zarr_arrays_are_fitted_as_arrays(rows: pd.DataFrame, expected: Any, tmp_path: Path) -> None:
    X = zarr.create_array(tmp_path / "X.zarr", data=rows[NAMES].to_numpy(), chunks=(64, 3))
    y = zarr.create_array(tmp_path / "y.zarr", data=rows.y.to_numpy(), chunks=(64,))
    model = regressor().fit(X, y)
    np.testing.assert_allclose(model.predict(rows[NAMES].to_numpy()), expected, atol=1e-4)


def test_datasets_are_fitted_as_frames(rows: pd.DataFrame, expected: Any) -> None:
    ds = xr.Dataset({name: ("row", rows[name].to_numpy()) for name in rows})
    model = regressor().fit(ds, target="y")
    np.testing.assert_allclose(np.asarray(model.predict(ds[NAMES])).ravel(), expected, atol=1e-4)


@pytest.mark.long
def test_rows_that_are_sent_to_workers_keep_their_digits(rows: pd.DataFrame, expected: Any) -> None:
    store = zarr.storage.MemoryStore()
    X = zarr.create_array(store, name="X", data=rows[NAMES].to_numpy(), chunks=(64, 3))
    y = zarr.create_array(store, name="y", data=rows.y.to_numpy(), chunks=(64,))
    settings: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(processes=False, **settings) as cluster, Client(cluster) as client:
        model = regressor(client=client).fit(X, y)
    np.testing.assert_allclose(model.predict(rows[NAMES].to_numpy()), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("scaling", "far"),
    [
        (Scaling(), False),
        (Scaling("standard", (2000.0,), (10.0,)), False),
        (Scaling("standard", (0.0, -1e7), (1.0, 1.0)), True),
        (Scaling("standard", (0.0,), (1.0,), ranks=(RankTable(0, (1e7, 1e7 + 1), (-1.0, 1.0)),)), True),
    ],
)
def test_only_columns_far_from_zero_are_read_in_float64(scaling: Scaling, far: bool) -> None:
    assert scaling.is_far == far


@pytest.mark.long
def test_persisted_datasets_keep_their_digits(rows: pd.DataFrame, expected: Any) -> None:
    settings: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(processes=False, **settings) as cluster, Client(cluster) as client:
        ds = xr.Dataset({name: ("row", rows[name].to_numpy()) for name in rows}).chunk({"row": 64}).persist()
        for chosen in (client, None):
            model = regressor(client=chosen).fit(ds, target="y")
            np.testing.assert_allclose(model.predict(rows[NAMES]), expected, atol=1e-3)
            np.testing.assert_allclose(np.asarray(model.predict(ds[NAMES])).ravel(), expected, atol=1e-3)
