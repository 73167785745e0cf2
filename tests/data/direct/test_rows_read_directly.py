"""Tables and arrays read where they lie have the rows, in order, that an ingestion stores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import zarr

from daskkern.data.direct import table_reader as table_readers
from daskkern.data.direct.opening import TableChoice, open_table
from daskkern.data.direct.table_reader import TableReader, table_reader
from daskkern.data.direct.zarr_pairs import zarr_pair
from daskkern.data.ingest import ingest
from daskkern.data.rows.grouped_rows import GroupedRows, RowTargets
from daskkern.data.rows.rows import Fields
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DaskkernError


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three Parquet files with categories, gaps and weights, in row groups of at most 40 rows."""
    monkeypatch.setattr(table_readers, "LEAST_ROWS", 30)
    rng = np.random.default_rng(0)
    folder = tmp_path / "lake"
    folder.mkdir()
    for number, n in enumerate((90, 35, 61)):
        frame = pd.DataFrame({"a": rng.normal(size=n), "colour": rng.choice(["red", "blue", "green"], n)})
        frame["age"] = pd.array(rng.integers(0, 90, n), dtype="Int64")
        frame.loc[rng.uniform(size=n) < 0.1, "age"] = pd.NA
        frame["kind"] = np.where(frame.a > 0, "up", "down")
        frame["price"], frame["w"] = rng.normal(size=n), rng.uniform(size=n)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, folder / f"part{number}.parquet", row_group_size=40)
    return folder


def rows_of(reader: TableReader) -> GroupedRows:
    table, n_targets = reader.table, max(1, reader.table.n_targets)
    return GroupedRows(reader, table.n_features, RowTargets(reader.task, n_targets, reader.classes))  # type: ignore[arg-type]


def same_rows(rows: GroupedRows, stored: StoreRows) -> None:
    found, expected = rows.read(0, rows.n_rows), stored.read(0, stored.n_rows)
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    assert (found.weight is None) == (expected.weight is None)
    if found.weight is not None:
        np.testing.assert_array_equal(found.weight, expected.weight)
    np.testing.assert_array_equal(rows.read(0, rows.n_rows, Fields.y).y, expected.y)


@pytest.mark.parametrize(
    ("choice", "options"),
    [
        (TableChoice(("kind",), "w", ("price",)), {"target": "kind", "weight": "w", "drop": ("price",)}),
        (TableChoice(("price", "a"), drop=("w", "kind"), categorical="codes"),
         {"target": ("price", "a"), "drop": ("w", "kind"), "categorical": "codes"}),
    ],
)  # fmt: skip
def test_a_lake_has_the_rows_of_its_store(lake: Path, tmp_path: Path, choice: TableChoice, options: dict) -> None:
    ingest(lake, tmp_path / "store", shuffle=False, **options)
    store = open_store(tmp_path / "store")
    opened = open_table(lake, choice)
    reader = table_reader(opened.table, opened.decision)
    assert reader.sizes == (40, 40, 45, 40, 21)  # row groups of 40, 40, 10, 35, 40 and 21 rows; the smallest are joined
    same_rows(rows_of(reader), StoreRows(store))
    assert opened.table.encoding is not None
    assert store.info.encoding is not None
    for mine, stored in zip(opened.table.encoding, store.info.encoding, strict=True):
        assert replace(mine, fill=None) == replace(stored, fill=None)
        assert mine.fill == (stored.fill if mine.kind != "number" else pytest.approx(stored.fill, rel=1e-6))
    assert opened.decision.task == store.info.task
    assert reader.classes == store.info.classes


def test_validation_files_get_the_encoding_of_training_files(lake: Path, tmp_path: Path) -> None:
    ingest(lake, tmp_path / "store", target="kind", drop=("w",))
    like = TableSchema.of(open_store(tmp_path / "store").info)
    opened = open_table(lake / "part1.parquet", TableChoice(("kind",), drop=()), like)
    assert opened.table.encoding == like.encoding
    X = rows_of(table_reader(opened.table, opened.decision, like.classes)).read(0, 35).X
    assert np.isfinite(X).all()


def test_an_arrow_dataset_with_partitions_has_them_as_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60), "day": rng.integers(1, 4, 60)})
    pads.write_dataset(
        pa.Table.from_pandas(frame, preserve_index=False),
        tmp_path / "days",
        format="parquet",
        partitioning=pads.partitioning(pa.schema([("day", pa.int32())]), flavor="hive"),
    )
    dataset = pads.dataset(tmp_path / "days", partitioning="hive")
    opened = open_table(dataset, TableChoice(("y",)))
    rows = rows_of(table_reader(opened.table, opened.decision))
    block = rows.read(0, 60)
    found = pd.DataFrame({"x": block.X[:, 0], "y": block.y[:, 0], "day": block.X[:, 1].astype(int)})
    assert opened.table.feature_names == ("x", "day")
    expected = frame.assign(x=frame.x.astype("f4")).sort_values("y", ignore_index=True)
    pd.testing.assert_frame_equal(found.astype({"x": "f4"}).sort_values("y", ignore_index=True), expected)
    with pytest.raises(DaskkernError, match="filtered pyarrow dataset"):
        open_table(dataset.filter(pads.field("x") > 0), TableChoice(("y",)))


def test_zarr_arrays_are_read_by_their_chunks(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(9000, 3)).astype("f4"), rng.choice([3, 5], 9000)
    group = zarr.open_group(tmp_path / "arrays", mode="w")
    stored_X, stored_y = group.create_array("X", data=X, chunks=(1500, 3)), group.create_array("y", data=y)
    reader = zarr_pair(stored_X, stored_y, None, "classification")
    assert reader.sizes == (4500, 4500)
    assert reader.classes == (3, 5)
    block = GroupedRows(reader, 3, RowTargets("classification", 1, (3, 5))).read(4000, 5000)
    np.testing.assert_array_equal(block.X, X[4000:5000])
    np.testing.assert_array_equal(np.array([3, 5])[block.y], y[4000:5000])
    with pytest.raises(DaskkernError, match="y has 8999 rows, but X has 9000"):
        zarr_pair(stored_X, group.create_array("short", data=y[1:]), None, "classification")
    with pytest.raises(DaskkernError, match="fractions or NaN"):
        zarr_pair(stored_X, group.create_array("parts", data=y + 0.5), None, "classification")


def test_what_has_no_row_groups_is_refused(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2.5\n2,3.5\n")
    with pytest.raises(DaskkernError, match=r"a csv file, which is read line by line.*ingest it"):
        open_table(tmp_path / "a.csv", TableChoice(("y",)))
    with pytest.raises(DaskkernError, match=r"which column of .* is the target"):
        open_table(lake, TableChoice(()))


def test_datasets_are_told_apart_by_their_rows(tmp_path: Path) -> None:
    keys = []
    for factor in (1.0, 2.0, 2.0):
        held = pa.table({"x": factor * np.arange(20.0), "y": np.arange(20.0)})
        pq.write_table(held, tmp_path / "t.parquet")
        pair = [pads.dataset(held), pads.dataset(held)]
        keys.append([open_table(source, TableChoice(("y",))).key for source in (pads.dataset(pair), pair[0])])
        keys[-1].append(open_table(pads.dataset(tmp_path / "t.parquet"), TableChoice(("y",))).key)
    assert all(one != other for one, other in zip(keys[0], keys[1], strict=True))
    assert keys[1][:2] == keys[2][:2]


def test_gaps_that_footers_do_not_count_are_found_before_the_fit(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    for number in range(20):  # of which a quick look sees some
        x = np.full(10, 2.0 + number % 2)
        x[9] = np.nan if number == 13 else x[9]
        pq.write_table(pa.table({"x": x, "n": range(10), "y": np.arange(10.0)}),
                       tmp_path / "lake" / f"p{number}.parquet")  # fmt: skip
    opened = open_table(tmp_path / "lake", TableChoice(("y",), task="regression"))
    X = rows_of(table_reader(opened.table, opened.decision)).read(0, 200).X
    assert np.isfinite(X).all()
    assert opened.table.encoding is not None
    assert [column.fill for column in opened.table.encoding] == [pytest.approx(2.5, abs=0.01), pytest.approx(4.5)]
