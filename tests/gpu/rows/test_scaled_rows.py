"""Rows that are scaled where they lie, and rows of tables and chunks in whole fits, on a GPU or on its stand-in."""

from pathlib import Path
from types import ModuleType
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest

from daskkern import KernelRegressor
from daskkern.basis import Landmarks
from daskkern.data.rows.rows import RowBlock
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.rank_tables import RankTable
from daskkern.data.storage.local_chunks import with_direct_storage
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter

N, D = 150, 3
SCALINGS = {
    "standard": Scaling("standard", (1.0, 0.0, 2.0), (2.0, 1.0, 0.5)),
    "bent": Scaling("auto", (1.0, 0.0, 2.0), (2.0, 1.0, 0.5), (0.0, 0.5, 2.0)),
    "ranks": Scaling("ranks", (0.0, 1.0, 1.0), (1.0, 2.0, 2.0), (), (RankTable(0, (0.0, 1.0, 4.0), (-1.0, 0.5, 2.0)),)),
}


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return pd.DataFrame(X, columns=list("abc")).assign(y=np.sin(2 * X[:, 0]) + X[:, 1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_on_the_device_as_on_the_host(xp: ModuleType, name: str, dtype: str) -> None:
    X = np.random.default_rng(0).normal(0, 3, (40, D)).astype(dtype)
    given = xp.asarray(X)
    for overwrite in (False, True):
        found = SCALINGS[name].apply(given, "float32", overwrite=overwrite)
        np.testing.assert_allclose(found.get(), SCALINGS[name].apply(X, "float32"), rtol=2e-6, atol=2e-6)
        assert overwrite or np.array_equal(given.get(), X)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scale", ["ranks", "robust", "auto"])
def test_tables_are_fitted_as_on_the_cpu(xp: ModuleType, scale: str, tmp_path: Path) -> None:
    table = _table()
    table.assign(k=np.where(table.a > 0, "x", "z")).to_parquet(tmp_path / "rows.parquet", row_group_size=50)
    settings: dict[str, Any] = {"kernel": "gaussian:2", "basis": Landmarks(20), "scale": scale, "max_epochs": 2}
    models = [
        KernelRegressor(device=where, calibrate=False, random_state=0, **settings).fit(tmp_path, target="y")
        for where in ("gpu", "cpu")
    ]
    X = table.drop(columns="y").assign(k="x")
    found, expected = (model.predict(X) for model in models)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_chunks_are_fitted_with_a_learned_scaling(xp: ModuleType) -> None:
    X, y = _table()[list("abc")].to_numpy(), _table().y.to_numpy()
    lazy: Any = da.from_array(X, chunks=(50, D))
    chunks = lazy.map_blocks(xp.asarray, dtype=X.dtype, meta=xp.asarray(X[:0]))
    settings: dict[str, Any] = {"kernel": "gaussian:2", "basis": Landmarks(20), "max_epochs": 2, "calibrate": False}
    found, expected = (
        KernelRegressor(device=where, random_state=0, **settings).fit(rows, y).predict(X)
        for where, rows in (("gpu", chunks), ("cpu", lazy))
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


@pytest.mark.gpu
def test_kvikio_reads_a_store(cupy: ModuleType, tmp_path: Path) -> None:
    if with_direct_storage() is None:
        pytest.skip("kvikio finds no GPUDirect Storage; install it with nvidia-fs to compare what it reads")
    X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    with StoreWriter(tmp_path / "s.zarr", n_features=D, task="regression", chunk_rows=32) as writer:
        writer.append(X, X[:, 0])
    blocks: Any = StoreRows(open_store(tmp_path / "s.zarr")).blocks_on(cupy)
    found: list[RowBlock] = list(blocks)
    np.testing.assert_array_equal(np.concatenate([block.X.get() for block in found]), X)
