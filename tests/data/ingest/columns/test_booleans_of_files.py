"""Booleans that one file writes as text and another as truth values are the same categories."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from daskkern import KernelRegressor, ingest, load
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError


def _rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.standard_normal(60), "new": rng.random(60) > 0.5})
    return frame.assign(y=frame["a"] + frame["new"])


@pytest.mark.parametrize("categorical", ["onehot", "ordinal", "codes"])
def test_a_model_of_truth_values_as_texts_predicts_truth_values(categorical: str, tmp_path: Path) -> None:
    rows = _rows()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.astype({"new": str}).to_parquet(tmp_path / "texts.parquet")
    ingest(tmp_path / "texts.parquet", tmp_path / "rows.zarr", target="y", categorical=categorical)
    model = KernelRegressor("laplacian_l1:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(tmp_path / "rows.zarr")
    expected = model.predict(tmp_path / "rows.csv")
    np.testing.assert_array_equal(model.predict(tmp_path / "rows.parquet"), expected)
    np.testing.assert_array_equal(model.predict(rows[["a", "new"]]), expected)


def test_numbers_that_are_stored_as_text_are_called_so(tmp_path: Path) -> None:
    _rows().astype({"y": str}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"the target holds numbers that are stored as text, such as '.*store them as"):
        ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", target="y")


@pytest.mark.parametrize("written", ["as they are", "upper", "lower"])
def test_a_model_of_truth_values_predicts_a_csv_file(written: str, tmp_path: Path) -> None:
    rows = _rows()
    model = KernelRegressor("gaussian:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(rows[["a", "new"]], rows["y"])
    assert model.model_.encoding is None
    texts = rows["new"].astype(str)
    rows.assign(new=texts if written == "as they are" else getattr(texts.str, written)()).to_csv(
        tmp_path / "rows.csv", index=False
    )
    expected = model.predict(rows[["a", "new"]])
    np.testing.assert_allclose(model.predict(tmp_path / "rows.csv"), expected, atol=1e-6)
    as_texts = pd.read_csv(tmp_path / "rows.csv", dtype={"new": str})[["a", "new"]]
    np.testing.assert_allclose(model.predict(as_texts), expected, atol=1e-6)
    rows.assign(new="maybe").to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(DataError, match="'maybe' in column 'new', where a number is expected"):
        model.predict(tmp_path / "other.csv")


def test_missing_truth_values_are_refused_as_missing_numbers_are(tmp_path: Path) -> None:
    rows = _rows()
    model = KernelRegressor("gaussian:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(rows[["a", "new"]], rows["y"])
    rows.assign(new=rows["new"].astype(object).where(rows.index != 7, None)).to_csv(tmp_path / "gap.csv", index=False)
    with pytest.raises(DataError, match="row 7"):
        model.predict(tmp_path / "gap.csv")


def test_the_name_of_a_series_of_targets_is_known_later(tmp_path: Path) -> None:
    rows = _rows()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    model = KernelRegressor("gaussian:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(rows[["a", "new"]], rows["y"]).save(tmp_path / "model.zarr")
    assert model.model_.target_names == ("y",)
    assert load(tmp_path / "model.zarr").target_names == ("y",)
    assert model.fit(rows[["a", "new"]], rows["y"].to_numpy()).model_.target_names is None
    both = rows[["y", "a"]]
    assert model.fit(rows[["a", "new"]], both).model_.target_names == ("y", "a")


@pytest.mark.parametrize("gaps", ["none", "at first", "in between"])
def test_truth_values_of_csv_files_are_the_numbers_of_parquet(gaps: str, tmp_path: Path) -> None:
    n_rows = 200_000 if gaps == "at first" else 60  # more than a block of text
    rng = np.random.default_rng(1)
    flags = pd.Series(rng.random(n_rows) > 0.5, dtype=object)
    flags[: n_rows - 30 if gaps == "at first" else 0] = None
    flags[20:22] = None if gaps == "in between" else flags[20:22]
    rows = pd.DataFrame({"a": rng.standard_normal(n_rows).round(3), "new": flags, "y": np.arange(n_rows) / 2})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.astype({"new": "boolean"}).to_parquet(tmp_path / "rows.parquet")
    stores = [tmp_path / f"{kind}.zarr" for kind in ("csv", "parquet")]
    for store in stores:
        ingest(tmp_path / f"rows.{store.stem}", store, target="y")
    csv, parquet = (open_store(store) for store in stores)
    assert csv.info.feature_names == parquet.info.feature_names == ("a", "new")
    np.testing.assert_array_equal(csv.array("X")[...], parquet.array("X")[...])
    again = tmp_path / "again.zarr"
    ingest(tmp_path / "rows.csv", again, target="y", like=stores[1])
    np.testing.assert_array_equal(open_store(again).array("X")[...], parquet.array("X")[...])
