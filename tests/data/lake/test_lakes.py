"""Lakes: files are found once and in natural order, folders become columns, and filters are those of pyarrow."""

import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from daskkern.data.lake import Lake, open_lake
from daskkern.data.lake.listing import listed, natural_key
from daskkern.data.lake.opening import count_rows
from daskkern.data.lake.where import where_expression
from daskkern.errors import DataError, SpecError
from tests.support.object_server import ObjectServer

DAYS, ROWS = 12, 30


def table_of(day: int) -> pa.Table:
    rng = np.random.default_rng(day)
    return pa.table(
        {
            "a": pa.array(rng.normal(size=ROWS), mask=rng.random(ROWS) < 0.2),
            "n": rng.integers(0, 100, ROWS) + 100 * day,
            "c": np.array(["u", "v", "it's"])[rng.integers(0, 3, ROWS)],
            "when": np.datetime64("2024-01-01", "us") + (day * 86_400_000_000 + np.arange(ROWS)).astype("m8[us]"),
        }
    )


@pytest.fixture
def lake_folder(tmp_path: Path) -> Path:
    """A folder of twelve days, in two regions, and files that are no data."""
    for day in range(DAYS):
        folder = tmp_path / "lake" / f"day={day}" / f"region={'north' if day % 2 else 'the%20south'}"
        folder.mkdir(parents=True)
        pq.write_table(table_of(day), folder / "part-0.parquet", row_group_size=10)
        (folder / "_SUCCESS").touch()
    (tmp_path / "lake" / "_temporary").mkdir()
    (tmp_path / "lake" / "_temporary" / "x.parquet").write_bytes(b"no data")
    return tmp_path / "lake"


def rows_of(lake: Lake, columns: list[str]) -> pa.Table:
    batches = [batch.rows for piece in lake.pieces for batch in lake.batches(piece, columns, 7)]
    plain = [pa.table({name: _plain(batch[name]) for name in columns}) for batch in batches]
    return pa.concat_tables(plain).combine_chunks()


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def reference(folder: Path, where: "pc.Expression | None", columns: list[str]) -> pa.Table:
    files = [file.place for file in listed(str(folder))]
    schema = pa.schema([("day", pa.int32()), ("region", pa.string())])
    known = ds.dataset(files, partitioning=ds.partitioning(schema, flavor="hive"), partition_base_dir=str(folder))
    return known.to_table(columns=columns, filter=where).combine_chunks()


def test_folders_become_columns_and_files_come_in_natural_order(lake_folder: Path) -> None:
    lake = open_lake(lake_folder)
    assert lake.columns == ("a", "n", "c", "when", "day", "region")
    assert [piece.partition[0][1] for piece in lake.pieces[::3]] == list(range(DAYS))
    assert (lake.n_rows, len(lake.pieces)) == (DAYS * ROWS, 3 * DAYS)
    columns = ["region", "n", "day", "c", "a"]
    assert rows_of(lake, columns) == reference(lake_folder, None, columns)
    assert rows_of(lake, ["day"])["day"].to_pylist() == np.repeat(np.arange(DAYS), ROWS).tolist()
    assert lake.nulls["a"] == reference(lake_folder, None, ["a"])["a"].null_count
    assert lake.nulls["day"] == 0


def test_names_are_sorted_by_the_numbers_in_them() -> None:
    names = ["b/part-10", "b/part-9", "a/x", "b-1/p", "a/1", "b/part-09"]
    assert sorted(names, key=natural_key) == ["a/1", "a/x", "b/part-09", "b/part-9", "b/part-10", "b-1/p"]


@pytest.mark.parametrize(
    ("where", "expected", "n_pieces"),
    [
        ("day in (3, 5)", pc.field("day").isin([3, 5]), 6),
        ("n >= 1100 or 205 > n", (pc.field("n") >= 1100) | (pc.field("n") < 205), 10),
        ("region = 'the south' and not (c = 'it''s' or a is null)", None, 18),
        ("a between -0.5 and 0.5 and c not in ('u')", None, 36),
        ("\"when\" >= '2024-01-11'", pc.field("when") >= pa.scalar("2024-01-11").cast(pa.timestamp("us")), 6),
        ("a > 0 AND `day` != 3", (pc.field("a") > 0) & (pc.field("day") != 3), 33),
    ],
)
def test_filters_keep_what_pyarrow_keeps_and_read_no_more(
    lake_folder: Path, where: str, expected: "pc.Expression | None", n_pieces: int
) -> None:
    lake = count_rows(open_lake(lake_folder, where=where))
    if expected is None:
        south, c, a = pc.field("region") == "the south", pc.field("c"), pc.field("a")
        expected = south & ~((c == "it's") | a.is_null())
        if "between" in where:
            expected = (a >= -0.5) & (a <= 0.5) & (c != "u")
    columns = ["n", "a", "day"]
    found = rows_of(lake, columns)
    assert found == reference(lake_folder, expected, columns)
    assert lake.n_rows == found.num_rows > 0
    assert len(open_lake(lake_folder, where=where).pieces) == n_pieces
    again = pickle.loads(pickle.dumps(lake.of(lake.pieces[:1])))
    assert rows_of(again, columns) == found.slice(0, again.n_rows)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("x = 1", "there is no column 'x'; the columns are 'a', 'n'"),
        ("day = 'a'", "column 'day' holds int32 values and cannot be compared with 'a'"),
        ("c = 1", "column 'c' holds string values"),
        ("n = 1.5", "compare it with whole numbers"),
        ("day >", "the end was found where a value is expected"),
        ("__import__('os')", "there is no column '__import__'"),
        ("n = 1; n = 2", "cannot be read at '; n = 2'"),
        ("n = 1 n = 2", "'n' follows a whole condition"),
        ("(n = 1", "the end was found where '\\)' is expected"),
        ("(" * 500 + "n = 1", "nested more than 100 times"),
        ("", "the end was found where a column is expected"),
    ],
)
def test_what_is_no_filter_is_refused(where: str, words: str) -> None:
    schema = pa.schema([("a", pa.float64()), ("n", pa.int64()), ("c", pa.string()), ("day", pa.int32())])
    with pytest.raises(SpecError, match=words):
        where_expression(where, schema)


def test_truth_values_stand_on_either_side() -> None:
    schema = pa.schema([("b", pa.bool_()), ("true", pa.bool_())])
    for where, other in (("true = b", "b = true"), ("not FALSE <> b", "not b <> false")):
        assert where_expression(where, pa.schema([schema.field("b")])).equals(where_expression(other, schema))
    assert where_expression("true = false", schema).equals(pc.field("true") == pa.scalar(False))  # a column's name


@pytest.mark.parametrize(
    ("moment", "n_rows"),
    [("2024-05-02", 2), ("2024-05-02 01:30", 1), ("2024-05-01T22:00:00Z", 2), ("2024-05-02 01:00+02:00", 1)],
)
def test_moments_are_in_the_time_zone_of_their_column(moment: str, n_rows: int, tmp_path: Path) -> None:
    hours = pa.array(np.array(["2024-05-01T21", "2024-05-01T22", "2024-05-01T23:30"], "M8[us]"))
    when = pa.compute.assume_timezone(hours, "UTC").cast(pa.timestamp("us", "Europe/Berlin"))
    pq.write_table(pa.table({"when": when}), tmp_path / "t.parquet")
    assert count_rows(open_lake(tmp_path / "t.parquet", where=f"when >= '{moment}'")).n_rows == n_rows


def test_types_are_joined_and_other_columns_do_not_matter(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"], "o": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": ["z"], "a": [2.5]}), tmp_path / "2.parquet")
    lake = open_lake(tmp_path, columns=["b", "a"])
    assert rows_of(lake, ["a", "b"]).to_pydict() == {"a": [1.0, 2.0, 2.5], "b": ["x", "y", "z"]}
    with pytest.raises(DataError, match=r"2\.parquet differ .*1\.parquet: it lacks 'o'; .*--columns"):
        open_lake(tmp_path)
    pq.write_table(pa.table({"b": [1], "a": [2.5]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"column 'b' holds string values in .*1\.parquet and int64 in .*2\.parquet"):
        open_lake(tmp_path, columns=["a", "b"])


def test_a_lake_on_an_object_server_through_faults(objects: ObjectServer, lake_folder: Path) -> None:
    from obstore.fsspec import FsspecStore

    system = FsspecStore("s3", client_options={"allow_http": True})  # type: ignore[call-overload]
    for path in lake_folder.rglob("*.parquet"):
        key = path.relative_to(lake_folder).as_posix()
        system.pipe_file(f"{objects.bucket}/sea/{key}", path.read_bytes())
    objects.faults.clear()
    objects.faults.fail_every, objects.faults.break_every = 11, 13
    lake = open_lake(objects.url("sea"), where="day > 2")
    assert objects.faults.counts["requests"] < 60  # the folders are listed at once
    local = open_lake(lake_folder, where="day > 2")
    assert lake.columns == local.columns
    assert rows_of(lake, ["day", "a", "c"]) == rows_of(local, ["day", "a", "c"])
    assert objects.faults.counts["broken"] > 1
    chosen = open_lake(objects.url("sea/day=1*/**/*.parquet"))
    assert [piece.partition[0][1] for piece in chosen.pieces[::3]] == [1, 10, 11]
    chosen = open_lake(objects.url("sea/day=?/**/part-?.parquet"), where="day < 3")
    assert [piece.partition[0][1] for piece in chosen.pieces[::3]] == [0, 1, 2]
    with pytest.raises(DataError, match=r"there is no file s3://.*/nowhere"):
        open_lake(objects.url("nowhere"))


def test_memory_of_fsspec_is_a_place_too() -> None:
    import fsspec

    target = io.BytesIO()
    pq.write_table(table_of(1), target)
    fsspec.filesystem("memory").pipe_file("/pond/day=4/p.parquet", target.getvalue())
    lake = open_lake("memory://pond")
    assert (lake.n_rows, lake.columns[-1], lake.pieces[0].partition) == (ROWS, "day", (("day", 4),))
    assert rows_of(lake, ["n"]).equals(table_of(1).select(["n"]))


def test_a_delta_lake_table_is_read_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = pa.table({"a": [1.0, 2.0, 3.0], "day": [1, 1, 2], "t": [1, 2, 1]})
    for _ in range(2):
        deltalake.write_deltalake(tmp_path / "d", table, partition_by=["day"], mode="append")
    deltalake.DeltaTable(tmp_path / "d").delete("a = 2")
    lake = open_lake(tmp_path / "d", where="day < 5")
    found = rows_of(lake, ["a", "day", "t"]).to_pylist()
    assert sorted(map(tuple, (row.values() for row in found))) == [(1.0, 1, 1), (1.0, 1, 1), (3.0, 2, 1), (3.0, 2, 1)]
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(Exception, match=r"is a Delta Lake table, which needs the package deltalake; .*\[lake\]"):
        open_lake(tmp_path / "d")


def test_an_iceberg_table_is_read_as_it_is_now(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = catalogs.SqlCatalog("c", uri="sqlite://", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = pa.table({"a": [1.0, 2.0, 3.0], "t": [1, 2, 1]})
    made = catalog.create_table("n.t", schema=table.schema)
    for _ in range(2):
        made.append(table)
    made.overwrite(table.slice(0, 2))
    catalog.destroy_tables()
    folder = made.location().removeprefix("file://")
    assert rows_of(open_lake(folder), ["a", "t"]) == table.slice(0, 2).combine_chunks()


def test_missing_values_are_those_of_the_footers(tmp_path: Path) -> None:
    table = pa.table({"full": [1, 2], "gaps": [None, 2.5], "list": [[1], None], "unsaid": [None, 1.0]})
    pq.write_table(table, tmp_path / "1.parquet", write_statistics=["full", "gaps"])
    pq.write_table(table.slice(0, 1), tmp_path / "2.parquet", write_statistics=["full", "gaps"])
    assert open_lake(tmp_path).nulls == {"full": 0, "gaps": 2, "list": None, "unsaid": None}
