"""Dates as texts, where the training rows had a column of dates."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import daskkern
from daskkern import KernelRegressor, Landmarks
from daskkern.data.ingest import ingest
from daskkern.data.ingest.columns.dates import days_of_texts
from daskkern.data.schema.encoding import ColumnEncoding, encoding_from_json
from daskkern.errors import DataError


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-02", 1.0),
        (" 1969-12-31 ", -1.0),
        ("1970-01-01 12:00:00", 0.5),
        ("1970-01-01T06:00:00Z", 0.25),
        ("1970-01-01T06:00:00+06:00", 0.0),
        ("1970-01-01T00:00:00.500000", 0.5 / 86400),
        ("1970-01-01 00:00:00.000000001", 1e-9 / 86400),
        ("20120.5", 20120.5),
    ],
)
def test_notations(text: str, days: float) -> None:
    found = days_of_texts(pa.array([text, None]), "day", "t.csv", 0).to_pylist()
    assert found == [pytest.approx(days, rel=1e-12), None]


def test_each_row_may_have_its_notation_and_a_wrong_one_is_named() -> None:
    mixed = pa.array(["1970-01-02", "2.5", "1970-01-01T00:00:00Z"])
    assert days_of_texts(mixed, "day", "t.csv", 0).to_pylist() == [1.0, 2.5, 0.0]
    with pytest.raises(DataError, match=r"row 8 of t\.csv \(counted from 0\) has '31/12/2020' in column 'day'"):
        days_of_texts(pa.array(["1970-01-02", "31/12/2020"]), "day", "t.csv", 7)


def test_that_a_column_has_dates_is_recorded() -> None:
    column = ColumnEncoding("day", is_date=True)
    assert encoding_from_json([column.to_json()]) == (column,)
    assert "date" not in ColumnEncoding("age").to_json()
    assert not column.is_plain
    assert (
        encoding_from_json([{"name": "a", "kind": "onehot", "categories": ["x"], "fill": None, "date": True}]) is None
    )
    assert encoding_from_json([{**column.to_json(), "date": 1}]) is None


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """A model of a Parquet file with dates, and its rows."""
    folder = tmp_path_factory.mktemp("dates")
    rng = np.random.default_rng(0)
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=int(n)) for n in rng.integers(0, 300, 60)]
    moments = [dt.datetime(2021, 1, 1, 6) + dt.timedelta(hours=int(n)) for n in rng.integers(0, 900, 60)]
    frame = pd.DataFrame({"day": days, "at": moments, "a": rng.normal(size=60)})
    frame["y"] = frame["a"] + np.arange(60) / 60
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "t.parquet")
    ingest(folder / "t.parquet", folder / "s", target="y", scale="standard", shuffle=False)
    KernelRegressor("gaussian:2", basis=Landmarks(20), max_epochs=1).fit(str(folder / "s")).save(folder / "m.zarr")
    return folder, frame


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_a_model_of_parquet_dates_predicts_tables_with_written_dates(
    ending: str, learned: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    folder, frame = learned
    model = daskkern.load(folder / "m.zarr")
    assert [column.is_date for column in model.encoding or ()] == [True, True, False]
    expected = daskkern.predict_table(model, str(folder / "t.parquet"))["prediction"].to_pylist()
    assert np.ptp(expected) > 0
    written = frame.assign(day=frame["day"].astype(str), at=frame["at"].dt.strftime("%Y-%m-%dT%H:%M:%S"))
    rows: object = written
    if ending != "frame":
        rows = str(tmp_path / f"t.{ending}")
        (written.to_csv if ending == "csv" else written.to_parquet)(rows, index=False)
        ingest(rows, tmp_path / "s", target="y", like=folder / "s", shuffle=False)
        stores = (zarr.open_group(str(place), mode="r") for place in (tmp_path / "s", folder / "s"))
        ours, theirs = (np.asarray(store["X"]) for store in stores)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    assert daskkern.predict_table(model, rows)["prediction"].to_pylist() == pytest.approx(expected, rel=1e-5)


def test_missing_dates_and_other_texts_are_refused(learned: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    folder, _ = learned
    model = daskkern.load(folder / "m.zarr")
    (tmp_path / "t.csv").write_text("day,at,a\n2020-01-01,2020-01-01,1\n,2020-01-01,1\n")
    with pytest.raises(DataError, match=r"row 1 of .*column 'day'"):
        daskkern.predict_table(model, str(tmp_path / "t.csv"))
    (tmp_path / "t.csv").write_text("day,at,a\nsoon,2020-01-01,1\n")
    with pytest.raises(DataError, match="has 'soon' in column 'day', where the training rows had dates"):
        daskkern.predict_table(model, str(tmp_path / "t.csv"))


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("n_days", [3, 60])
@pytest.mark.parametrize("notation", ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])
def test_dates_of_csv_files_are_those_of_typed_files(tmp_path: Path, notation: str, n_days: int, gap: bool) -> None:
    days = pd.Series(pd.date_range("2024-02-27", periods=n_days).repeat(60 // n_days))
    if gap:
        days[7] = pd.NaT
    y = np.arange(60) / 60
    pd.DataFrame({"day": days.dt.strftime(notation), "y": y}).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame({"day": days, "y": y}).to_parquet(tmp_path / "t.parquet")
    for kind in ("csv", "parquet"):
        report = ingest(tmp_path / f"t.{kind}", tmp_path / f"{kind}.zarr", target="y")
        assert "dates became days since 1970-01-01: day" in report.notes
    first, second = (zarr.open_group(tmp_path / f"{kind}.zarr", mode="r")["X"][:] for kind in ("csv", "parquet"))
    np.testing.assert_array_equal(first, second)


def test_other_notations_and_categories_by_choice_are_no_dates(tmp_path: Path) -> None:
    days = [f"2024-01-{day:02d}" for day in range(1, 21)] * 3
    y = np.arange(60) / 60
    pd.DataFrame({"day": days, "y": y}).to_csv(tmp_path / "t.csv", index=False)
    assert ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y", categorical="onehot").n_features == 20
    for other in ("unknown", "2024-01-01 10", "2024-1-1", "01/02/2024", "20240101", "2024-01"):
        pd.DataFrame({"day": [*days[:-1], other], "y": y}).to_csv(tmp_path / "t.csv", index=False)
        with pytest.raises(DataError, match=r"column 'day'.*write dates as 2026-01-31 or 2026-01-31T12:00:00"):
            ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y", overwrite=True)


@pytest.mark.parametrize(
    "texts", [["1234-56-78", "2234-56-78", "9999-99-99"], ["0000-00-00", "2024-01-01", "2024-01-02"]]
)
def test_texts_of_the_form_of_dates_that_do_not_exist_are_categories(tmp_path: Path, texts: list[str]) -> None:
    table = pd.DataFrame({"code": texts * 20, "y": np.arange(60) / 60})
    table.to_csv(tmp_path / "t.csv", index=False)
    assert ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y").n_features == 3
    model = KernelRegressor(max_epochs=1).fit(table[["code"]], table["y"])
    assert [column.kind for column in model.model_.encoding or ()] == ["onehot"]


def test_gaps_are_written_as_in_csv_files_everywhere(tmp_path: Path) -> None:
    days = pd.Series(["2024-01-01", "2024-06-01", "2025-01-01"] * 20)
    days[5] = "NA"
    table = pd.DataFrame({"day": days, "y": np.arange(60) / 60})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    found = []
    for source in (tmp_path / "t.csv", tmp_path / "t.jsonl", table, pa.Table.from_pandas(table)):
        ingest(source, tmp_path / "s.zarr", target="y", overwrite=True)
        found.append(zarr.open_group(tmp_path / "s.zarr", mode="r")["X"][:])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    model = KernelRegressor(max_epochs=1).fit(table[["day"]], table["y"])
    (column,) = model.model_.encoding or ()
    assert column.is_date
    assert column.fill == pytest.approx(float(found[0][5, 0]), rel=1e-6)
    np.testing.assert_array_equal(model.predict(table[["day"]].iloc[[5]]), model.predict(table[["day"]].iloc[5:6]))


def test_fractions_of_a_second_in_json_lines_are_dates(tmp_path: Path) -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=60, freq="7h"))
    table = pd.DataFrame({"day": days, "y": np.arange(60) / 60})
    table.to_json(tmp_path / "t.jsonl", orient="records", lines=True, date_format="iso")
    assert "T07:00:00.000" in (tmp_path / "t.jsonl").read_text()
    table.to_parquet(tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.parquet"):
        assert ingest(tmp_path / name, tmp_path / f"{name}.zarr", target="y").notes == (
            "dates became days since 1970-01-01: day",
        )
    first, second = (zarr.open_group(tmp_path / f"t.{kind}.zarr", mode="r")["X"][:] for kind in ("jsonl", "parquet"))
    np.testing.assert_array_equal(first, second)


def test_many_rows_of_several_notations_are_read_together() -> None:
    texts = pa.array(["2024-01-01", None, "2024-01-01T12:00:00Z", "2024-01-01 06:00", "2024-01-01T00:00:00+06:00", "5"])
    found = days_of_texts(pa.concat_arrays([texts] * 3), "day", "t.csv", 0).to_pylist()
    assert found == [19723.0, None, 19723.5, 19723.25, 19722.75, 5.0] * 3


def test_other_texts_among_dates_are_missing_where_unknown_values_are_ignored() -> None:
    days = pd.Series(["2024-01-01", "2024-06-01", "2025-01-01"] * 20)
    table = pd.DataFrame({"day": days, "a": np.arange(60) % 7 / 7})
    later = pd.DataFrame({"day": ["2024-06-01", "never", None], "a": 0.5})
    y = np.arange(60) / 60
    with pytest.raises(
        DataError, match=r"row 1 of X .* has 'never' in column 'day', where the training rows had dates"
    ):
        KernelRegressor(max_epochs=1).fit(table, y).predict(later)
    model = KernelRegressor(max_epochs=1, handle_unknown="ignore").fit(table, y)
    found = model.predict(later)
    mean = pd.to_datetime(days).mean()
    np.testing.assert_allclose(found[1:], model.predict(later.assign(day=mean))[1:], rtol=1e-6)
    np.testing.assert_array_equal(found, model.predict(pa.Table.from_pandas(later.astype({"day": "category"}))))


def test_tables_with_other_texts_among_dates_are_predicted_where_asked_to(tmp_path: Path) -> None:
    days = pd.Series(["2024-01-01", "2024-06-01", "2025-01-01"] * 20)
    days[3] = None
    table = pd.DataFrame({"day": days, "y": np.arange(60) / 60})
    later = pd.DataFrame({"day": ["2024-06-01", "never", None]})
    KernelRegressor(max_epochs=1).fit(table[["day"]], table["y"]).save(tmp_path / "m.zarr")
    model = daskkern.load(tmp_path / "m.zarr")
    for name in ("t.csv", "t.parquet", "t.feather"):
        write = {"t.csv": later.to_csv, "t.parquet": later.to_parquet, "t.feather": later.to_feather}[name]
        write(tmp_path / name)
        with pytest.raises(DataError, match=r"'never' in column 'day', where the training rows had dates.*--unknown"):
            daskkern.write_predictions(model, tmp_path / name, tmp_path / "refused.csv")
        daskkern.write_predictions(model, tmp_path / name, tmp_path / f"{name}.p.csv", unknown="ignore")
        found = pd.read_csv(tmp_path / f"{name}.p.csv")["prediction"]
        assert found[1] == pytest.approx(found[2], rel=1e-6)
        assert found[0] != pytest.approx(found[2], rel=1e-6)
