"""Tables whose columns changed between files: what their format says holds; types that differ are joined or named."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.data.ingest import ingest
from daskkern.data.lake import open_lake
from daskkern.errors import DataError

N = 40


def _table(**columns: Any) -> pa.Table:
    return pa.table({"x": np.arange(N) / 7, "y": np.arange(N) / N, **columns})


def _rows(place: Path, columns: list[str], where: str | None = None) -> dict[str, list[Any]]:
    lake = open_lake(place, columns=columns, where=where)
    batches = [batch.rows for piece in lake.pieces for batch in lake.batches(piece, columns, 1000)]
    return {name: [value for batch in batches for value in batch.column(name).to_pylist()] for name in columns}


def test_columns_that_a_delta_table_gained_are_missing_in_its_older_files(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    older, newer = _table(), _table(extra=np.arange(N) + 100, kind=["a", "b"] * (N // 2))
    deltalake.write_deltalake(tmp_path / "d", older)
    deltalake.write_deltalake(tmp_path / "d", newer, mode="append", schema_mode="merge")
    found = _rows(tmp_path / "d", ["extra", "kind"])
    assert sorted(found["extra"], key=str) == sorted([*range(100, 100 + N), *[None] * N], key=str)
    assert found["kind"].count(None) == N
    assert _rows(tmp_path / "d", ["x"], "extra >= 130")["x"] == [n / 7 for n in range(30, N)]
    assert len(_rows(tmp_path / "d", ["x"], "extra is null")["x"]) == N
    report = ingest(tmp_path / "d", tmp_path / "s", target="y")
    assert (report.n_rows, report.n_features) == (2 * N, 5)
    assert f"{N} missing numbers in 1 column were replaced (mean)" in report.notes


@pytest.fixture
def iceberg(tmp_path: Path) -> tuple[Any, Path]:
    """An Iceberg table with rows of two columns, and its folder."""
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    (tmp_path / "warehouse").mkdir()
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=_table().schema)
    table.append(_table())
    return table, Path(table.location().removeprefix("file://"))


def test_columns_that_an_iceberg_table_gained_are_missing_in_its_older_files(iceberg: tuple[Any, Path]) -> None:
    types = pytest.importorskip("pyiceberg.types")
    table, place = iceberg
    with table.update_schema() as update:
        update.add_column("extra", types.DoubleType())
    assert _rows(place, ["extra"])["extra"] == [None] * N
    table.append(_table(extra=np.arange(N) / 1))
    assert sorted(_rows(place, ["extra"])["extra"], key=str) == sorted([*np.arange(N) / 1, *[None] * N], key=str)


def test_renamed_columns_of_iceberg_tables_are_read_under_their_names_of_now(
    iceberg: tuple[Any, Path], tmp_path: Path
) -> None:
    table, place = iceberg
    with table.update_schema() as update:
        update.rename_column("x", "z")
    later = _table().rename_columns(["z", "y"])
    table.append(later)
    x = [n / 7 for n in range(N)]
    assert sorted(_rows(place, ["z"])["z"]) == sorted(2 * x)
    assert sorted(_rows(place, ["y"], "z >= 4")["y"]) == sorted(2 * [n / N for n in range(28, N)])
    with pytest.raises(DataError, match="has no column 'x'"):
        _rows(place, ["x"])
    report = ingest(place, tmp_path / "s", target="y")
    assert (report.n_rows, report.n_features) == (2 * N, 1)


def test_names_that_were_exchanged_are_not_mixed_up(iceberg: tuple[Any, Path]) -> None:
    table, place = iceberg
    for former, name in (("x", "other"), ("y", "x"), ("other", "y")):
        with table.update_schema() as update:
            update.rename_column(former, name)
    found = _rows(place, ["x", "y"], "x >= 0.5 and y < 5")
    assert found == {"x": [n / N for n in range(20, 35)], "y": [n / 7 for n in range(20, 35)]}


def test_another_column_of_an_earlier_name_is_not_that_one(iceberg: tuple[Any, Path]) -> None:
    types = pytest.importorskip("pyiceberg.types")
    table, place = iceberg
    with table.update_schema() as update:
        update.delete_column("x")
    with table.update_schema() as update:
        update.add_column("x", types.DoubleType())
    assert _rows(place, ["x"])["x"] == [None] * N
    table.append(_table().select(["y", "x"]))
    assert sorted(_rows(place, ["x"])["x"], key=str) == sorted([*np.arange(N) / 7, *[None] * N], key=str)
    assert _rows(place, ["y"], "x < 0.2")["y"] == [0.0, 1 / N]
    assert open_lake(place).nulls == {"y": 0, "x": None}


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("ms", "UTC"), pa.timestamp("ms", "UTC")),
    ],
)
def test_dates_and_times_of_several_types_are_moments(
    first: pa.DataType, second: pa.DataType, kind: pa.DataType, tmp_path: Path
) -> None:
    days = pa.array([dt.date(2024, 1, 1 + n % 9) for n in range(N)])
    (tmp_path / "t").mkdir()
    for number, each in enumerate((first, second)):
        column = days if each == pa.date32() else days.cast(pa.timestamp(each.unit, "UTC")).cast(each)
        pq.write_table(_table(day=column), tmp_path / "t" / f"{number}.parquet", row_group_size=9)
    assert open_lake(tmp_path / "t").schema.field("day").type == kind
    ingest(tmp_path / "t", tmp_path / "s", target="y")
    late = 2 * sum(day.day >= 5 for day in days.to_pylist())
    assert len(_rows(tmp_path / "t", ["x"], "day >= '2024-01-05'")["x"]) == late


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.decimal128(5, 1), pa.int64(), pa.float64()),
        (pa.decimal128(5, 1), pa.float32(), pa.float64()),
        (pa.decimal128(5, 1), pa.decimal128(9, 4), pa.decimal128(9, 4)),
        (pa.bool_(), pa.int64(), pa.int64()),
        (pa.bool_(), pa.float32(), pa.float32()),
    ],
)
def test_numbers_of_several_types_are_joined(
    first: pa.DataType, second: pa.DataType, kind: pa.DataType, order: int, tmp_path: Path
) -> None:
    (tmp_path / "t").mkdir()
    for number, each in enumerate((first, second)[::order]):
        pq.write_table(
            _table(a=pa.array([0, 1] * (N // 2), pa.int8()).cast(each)), tmp_path / "t" / f"{number}.parquet"
        )
    assert open_lake(tmp_path / "t").schema.field("a").type == kind
    assert [float(value) for value in _rows(tmp_path / "t", ["a"])["a"]] == [0, 1] * N
    if first != pa.bool_():  # a filter is read with the types of the first file
        assert len(_rows(tmp_path / "t", ["a"], "a >= 1")["a"]) == N
