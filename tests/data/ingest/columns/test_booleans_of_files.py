"""Booleans that one file writes as text and another as truth values are the same categories."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from daskkern import KernelRegressor, ingest
from daskkern.errors import DataError


def _rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.standard_normal(60), "new": rng.random(60) > 0.5})
    return frame.assign(y=frame["a"] + frame["new"])


@pytest.mark.parametrize("categorical", ["onehot", "ordinal", "codes"])
def test_a_model_of_a_csv_file_predicts_truth_values(categorical: str, tmp_path: Path) -> None:
    rows = _rows()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", target="y", categorical=categorical)
    model = KernelRegressor("laplacian_l1:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(tmp_path / "rows.zarr")
    expected = model.predict(tmp_path / "rows.csv")
    np.testing.assert_array_equal(model.predict(tmp_path / "rows.parquet"), expected)
    np.testing.assert_array_equal(model.predict(rows[["a", "new"]]), expected)


def test_numbers_that_are_stored_as_text_are_called_so(tmp_path: Path) -> None:
    _rows().astype({"y": str}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"the target holds numbers that are stored as text, such as '.*store them as"):
        ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", target="y")
