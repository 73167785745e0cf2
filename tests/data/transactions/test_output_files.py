"""Outputs behind URLs of file systems that fsspec opens: complete or absent, and read back as they were written."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from daskkern import KernelRegressor, ingest, load, write_predictions
from daskkern.data.storage.store import open_store
from daskkern.data.transactions.output_files import output_folder
from daskkern.errors import DataError


@pytest.fixture
def rows() -> pd.DataFrame:
    X = np.random.default_rng(0).standard_normal((60, 2))
    return pd.DataFrame(X, columns=["a", "b"]).assign(y=X[:, 0] + X[:, 1])


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_stores_models_and_predictions(scheme: str, rows: pd.DataFrame, tmp_path: Path) -> None:
    rows.to_parquet(tmp_path / "rows.parquet")
    place = f"{scheme}://{tmp_path}/new/folder"
    ingest(tmp_path / "rows.parquet", f"{place}/rows.zarr", target="y")
    assert open_store(tmp_path / "new/folder/rows.zarr").info.n_rows == 60
    fitted = KernelRegressor("gaussian:2", solver="direct", alpha=1e-3, calibrate=False).fit(f"{place}/rows.zarr")
    fitted.save(f"{place}/model.zarr")
    expected = fitted.predict(rows[["a", "b"]])
    model = load(tmp_path / "new/folder/model.zarr")
    for name in ("one.parquet", "one.csv", "one.arrow"):
        write_predictions(model, rows, f"{place}/{name}")
    write_predictions(model, rows, f"{place}/many", rows_per_file=25)
    found = [
        pd.read_parquet(tmp_path / "new/folder/one.parquet"),
        pd.read_csv(tmp_path / "new/folder/one.csv"),
        pd.read_feather(tmp_path / "new/folder/one.arrow"),
        pd.concat(pd.read_parquet(part) for part in sorted((tmp_path / "new/folder/many").glob("*.parquet"))),
    ]
    for frame in found:
        np.testing.assert_allclose(frame["prediction"], expected, rtol=1e-6)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_is_complete_or_absent(scheme: str, tmp_path: Path) -> None:
    folder = output_folder(f"{scheme}{tmp_path}/out")
    with suppress(DataError), folder.writing("deep/part") as file:
        file.write(b"half")
        raise DataError("the rows end")
    assert folder.read("deep/part") is None
    with folder.writing("deep/part") as file:
        file.write(b"whole")
    assert folder.read("deep/part") == b"whole"
    assert folder.names() == ["deep/part"]
    folder.delete("deep/part")
    assert folder.read("deep/part") is None
