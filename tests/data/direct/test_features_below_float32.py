"""Features smaller than any number of float32 count like others, or are reported where they are lost."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from daskkern import KernelRegressor, ingest
from daskkern.data.schema.schema import Scaling


def _rows(unit: float) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((300, 2)), columns=["a", "b"])
    return rows.assign(y=rows["a"] + rows["b"], a=rows["a"] * unit)


def _regressor() -> KernelRegressor:
    return KernelRegressor("gaussian:median", solver="direct", alpha=1e-3, calibrate=False, device="cpu")


@pytest.mark.parametrize("unit", [1e-40, 1e-50, 1e-150])
def test_files_and_arrays_are_fitted_in_any_unit(unit: float, tmp_path: Path) -> None:
    rows, plain = _rows(unit), _rows(1.0)
    expected = _regressor().fit(plain[["a", "b"]], plain["y"]).predict(plain[["a", "b"]])
    rows.to_parquet(tmp_path / "rows.parquet")
    model = _regressor().fit(tmp_path / "rows.parquet", target="y")
    np.testing.assert_allclose(model.predict(tmp_path / "rows.parquet"), expected, atol=2e-3)
    np.testing.assert_allclose(model.predict(rows[["a", "b"]]), expected, atol=2e-3)
    arrays = _regressor().fit(rows[["a", "b"]].to_numpy(), rows["y"])
    np.testing.assert_allclose(arrays.predict(rows[["a", "b"]].to_numpy()), expected, atol=2e-3)


def test_rows_that_lost_a_feature_stay_finite() -> None:
    scaling = Scaling("standard", (1e-51, 0.0), (1e-50, 2.0))
    found = scaling.apply(np.array([[0.0, 4.0]], np.float32), np.float32)
    np.testing.assert_allclose(found, [[-0.1, 2.0]], rtol=1e-6)


def test_a_store_reports_columns_that_became_zero(tmp_path: Path) -> None:
    _rows(1e-50).to_csv(tmp_path / "rows.csv", index=False)
    report = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", target="y")
    assert any("0 in every row" in note and "feature column 'a'" in note for note in report.notes)
    _rows(1.0).to_csv(tmp_path / "plain.csv", index=False)
    assert not ingest(tmp_path / "plain.csv", tmp_path / "plain.zarr", target="y").notes
