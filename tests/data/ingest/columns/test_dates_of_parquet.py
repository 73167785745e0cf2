"""Texts in Parquet files that are all dates become days, as in all other tables; a date is no weight."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import daskkern
from daskkern import KernelRegressor
from daskkern.data.ingest import ingest
from daskkern.errors import DataError

N = 2400


def _table(n_days: int = N, notation: str = "%Y-%m-%d %H:%M:%S") -> pd.DataFrame:
    days = pd.Series(pd.date_range("2001-02-03", periods=n_days, freq="9h").repeat(N // n_days))
    return pd.DataFrame({"day": days.dt.strftime(notation), "a": np.arange(N) % 7 / 7, "y": np.arange(N) / N})


def _features(place: Path) -> Any:
    return zarr.open_group(place, mode="r")["X"][:]


@pytest.mark.parametrize("gap", ["", "NA", None, "none"])
@pytest.mark.parametrize("n_days", [3, 60, N])
def test_dates_of_parquet_files_are_those_of_frames(tmp_path: Path, n_days: int, gap: str | None) -> None:
    table = _table(n_days)
    if gap != "none":
        table.loc[[7, N - 1], "day"] = gap
    table.to_parquet(tmp_path / "t.parquet", row_group_size=500)
    for name, source in (("frame", table), ("lake", tmp_path / "t.parquet")):
        report = ingest(source, tmp_path / name, target="y")
        assert "dates became days since 1970-01-01: day" in report.notes
    np.testing.assert_array_equal(_features(tmp_path / "lake"), _features(tmp_path / "frame"))


@pytest.mark.parametrize("missing", ["most_frequent", "constant", "mean"])
def test_missing_dates_become_what_was_asked_for(tmp_path: Path, missing: str) -> None:
    table = _table(60)
    table.loc[[7, 8], "day"] = None
    table.to_parquet(tmp_path / "t.parquet")
    for name, source in (("frame", table), ("lake", tmp_path / "t.parquet")):
        ingest(source, tmp_path / name, target="y", missing=missing)
    np.testing.assert_array_equal(_features(tmp_path / "lake"), _features(tmp_path / "frame"))
    with pytest.raises(DataError, match=r"row 7 .*no value in column 'day'"):
        ingest(tmp_path / "t.parquet", tmp_path / "refused", target="y", missing="refuse")


def test_one_other_text_far_behind_makes_no_dates(tmp_path: Path) -> None:
    table = _table()
    table.loc[N - 1, "day"] = "never"
    table.to_parquet(tmp_path / "t.parquet", row_group_size=500)
    with pytest.raises(DataError, match=r"column 'day'.*write dates as 2026-01-31 or 2026-01-31T12:00:00"):
        ingest(tmp_path / "t.parquet", tmp_path / "s", target="y")
    few = _table(3)
    few.loc[N - 1, "day"] = "never"
    few.to_parquet(tmp_path / "t.parquet", row_group_size=500)
    assert ingest(tmp_path / "t.parquet", tmp_path / "s", target="y").n_features == 5


def test_dates_in_the_names_of_folders(tmp_path: Path) -> None:
    days = ["1970-01-30", "1970-01-31", "1970-02-01"]
    table = pa.table({"day": days * 20, "a": np.arange(60) % 7 / 7, "y": np.arange(60) / 60})
    pq.write_to_dataset(table, tmp_path / "lake", partition_cols=["day"])
    assert ingest(tmp_path / "lake", tmp_path / "s", target="y").n_features == 2
    np.testing.assert_array_equal(np.unique(_features(tmp_path / "s")[:, 1]), [29, 30, 31])


def test_categories_stay_categories_in_every_format(tmp_path: Path) -> None:
    table = _table(3).astype({"day": "category"})
    table.to_parquet(tmp_path / "t.parquet")
    table.to_feather(tmp_path / "t.feather")
    for source in (table, tmp_path / "t.feather", tmp_path / "t.parquet"):
        assert ingest(source, tmp_path / "s", target="y", overwrite=True).n_features == 4
    _table(3).to_parquet(tmp_path / "t.parquet")
    assert (
        ingest(tmp_path / "t.parquet", tmp_path / "s", target="y", categorical="onehot", overwrite=True).n_features == 4
    )


def test_a_fit_where_the_files_lie_has_the_same_days(tmp_path: Path) -> None:
    table = _table(60)
    table.loc[7, "day"] = None
    table.to_parquet(tmp_path / "t.parquet", row_group_size=500)
    model = KernelRegressor(max_epochs=1, calibrate=False).fit(tmp_path / "t.parquet", target="y")
    other = KernelRegressor(max_epochs=1, calibrate=False).fit(table[["day", "a"]], table["y"])
    (ours, theirs) = (fitted.model_.encoding or () for fitted in (model, other))
    assert [(column.name, column.kind, column.is_date) for column in ours] == [
        ("day", "number", True), ("a", "number", False)
    ]  # fmt: skip
    assert ours[0].fill == pytest.approx(theirs[0].fill, rel=1e-9)
    assert daskkern.predict_table(model, tmp_path / "t.parquet").num_rows == N


@pytest.mark.parametrize("ending", ["parquet", "feather", "csv", "frame"])
def test_dates_are_refused_as_weights(tmp_path: Path, ending: str) -> None:
    table = _table(3).assign(w=pd.Timestamp("2024-01-01"))
    source: Any = table
    if ending != "frame":
        source = tmp_path / f"t.{ending}"
        write = {"parquet": table.to_parquet, "feather": table.to_feather, "csv": table.to_csv}[ending]
        write(source)
    with pytest.raises(DataError, match="w"):
        ingest(source, tmp_path / "s", target="y", weight="w")
    if ending != "csv":
        with pytest.raises(DataError, match=r"the weight 'w' .* holds timestamp.* values; expected numbers"):
            ingest(source, tmp_path / "s", target="y", weight="w")


def test_an_index_of_pandas_is_left_out_of_tables_and_files_alike(tmp_path: Path) -> None:
    table = _table(3, "%Y-%m-%d").set_index(pd.Index([f"row {n}" for n in range(N)], name="id"))
    table.to_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", pq.read_table(tmp_path / "t.parquet")):
        report = ingest(source, tmp_path / "s", target="y", overwrite=True)
        assert (report.n_features, report.notes[0]) == (2, "the index that pandas wrote was left out: id")
