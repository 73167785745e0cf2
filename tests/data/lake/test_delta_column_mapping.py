"""Delta Lake tables with column mapping: files have other names than the table, which knows them by name or number.

The logs are written here, by the protocol of Delta Lake, since the package ``deltalake`` writes no such tables.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.data.ingest import ingest
from daskkern.data.lake import open_lake
from daskkern.errors import DataError

deltalake = pytest.importorskip("deltalake")

N = 40
IDS = {"x": 1, "y": 2, "now": 2, "day": 3, "late": 4}  # "now" is another name of "y"
TYPES = {"x": "double", "y": "double", "day": "integer", "late": "double"}


def write_log(folder: Path, version: int, actions: list[dict[str, Any]]) -> None:
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    lines = "\n".join(map(json.dumps, actions))
    (folder / "_delta_log" / f"{version:020}.json").write_text(lines, encoding="utf-8")


def described(mode: str, names: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of a table whose columns `names` have those names in the files."""
    fields = [
        {
            "name": name,
            "type": TYPES.get(name, "double"),
            "nullable": True,
            "metadata": {"delta.columnMapping.id": IDS[name], "delta.columnMapping.physicalName": there},
        }
        for name, there in names.items()
    ]
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["day"],
            "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"},
            "createdTime": 1,
        }
    }


def added(folder: Path, name: str, table: pa.Table, partition: dict[str, str]) -> dict[str, Any]:
    pq.write_table(table, folder / name)
    size = (folder / name).stat().st_size
    return {
        "add": {"path": name, "partitionValues": partition, "size": size, "modificationTime": 1, "dataChange": True}
    }


@pytest.fixture(params=["name", "id"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["versions", "features"])
def table(request: pytest.FixtureRequest, mode: str, tmp_path: Path) -> Path:
    """Two files, one of which lacks a column; both have a column that the table has dropped, and whose name is new."""
    folder = tmp_path / "d"
    folder.mkdir()
    by_features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
    reader, writer = (2, 5) if request.param == "versions" else (3, 7)
    protocol = {"minReaderVersion": reader, "minWriterVersion": writer, **(by_features if reader == 3 else {})}
    names = {"x": "col-1", "y": "y", "day": "col-3", "late": "col-4"}
    ids = {"col-1": 1, "y": 2, "col-4": 4, "late": 9}
    actions = [{"protocol": protocol}, described(mode, names)]
    for day in (1, 2):
        columns = {"col-1": np.arange(N) * day / 7, "y": np.arange(N) / N, "late": np.full(N, 99.0)}
        if day == 2:
            columns["col-4"] = np.arange(N) + 1000.0
        made = pa.table(columns)
        if mode == "id":
            fields = [f.with_metadata({"PARQUET:field_id": str(ids[f.name])}) for f in made.schema]
            made = made.cast(pa.schema(fields))
        actions.append(added(folder, f"part-{day}.parquet", made, {"col-3": str(day)}))
    write_log(folder, 0, actions)
    return folder


def rows(place: Path, columns: list[str], where: str | None = None) -> dict[str, list[Any]]:
    lake = open_lake(place, columns=columns, where=where)
    batches = [batch.rows for piece in lake.pieces for batch in lake.batches(piece, columns, 7)]
    return {name: [value for batch in batches for value in batch.column(name).to_pylist()] for name in columns}


def test_columns_have_the_names_of_the_table(table: Path) -> None:
    found = rows(table, ["x", "y", "day", "late"])
    assert found["x"] == [n * day / 7 for day in (1, 2) for n in range(N)]
    assert found["y"] == 2 * [n / N for n in range(N)]
    assert found["day"] == [1] * N + [2] * N
    assert found["late"] == [None] * N + [n + 1000.0 for n in range(N)]
    engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table))
    theirs = pa.table(engine.execute("select x, y, day, late from t order by day, y").read_all()).to_pydict()
    assert found == theirs
    with pytest.raises(DataError, match="has no column 'col-1'"):
        open_lake(table, columns=["col-1"])


def test_filters_use_them_too(table: Path) -> None:
    assert rows(table, ["y"], "x >= 5 and day = 1")["y"] == [n / N for n in range(35, N)]
    assert rows(table, ["x"], "late >= 1038")["x"] == [38 * 2 / 7, 39 * 2 / 7]
    assert len(rows(table, ["x"], "late is null")["x"]) == N


def test_a_store_is_made_of_them(table: Path, tmp_path: Path) -> None:
    report = ingest(table, tmp_path / "s", target="y", missing="mean")
    assert (report.n_rows, report.n_features) == (2 * N, 3)
    with pytest.raises(DataError, match="'col-1'"):
        ingest(table, tmp_path / "t", target="col-1")


def test_a_renamed_column_is_that_of_the_older_files(table: Path, mode: str) -> None:
    write_log(table, 1, [described(mode, {"x": "col-1", "now": "y", "day": "col-3", "late": "col-4"})])
    assert rows(table, ["now"])["now"] == 2 * [n / N for n in range(N)]
    with pytest.raises(DataError, match="has no column 'y'"):
        open_lake(table, columns=["y"])


def test_files_without_numbers_are_read_by_their_names(table: Path) -> None:
    """Field numbers are optional in the files of some writers."""
    for file in table.glob("*.parquet"):
        plain = pq.read_table(file).replace_schema_metadata(None)
        fields = [field.remove_metadata() for field in plain.schema]
        pq.write_table(plain.cast(pa.schema(fields)), file, store_schema=False)
    log = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["size"] = (table / action["add"]["path"]).stat().st_size
    write_log(table, 0, actions)
    assert rows(table, ["x"])["x"] == [n * day / 7 for day in (1, 2) for n in range(N)]


def test_a_table_that_only_could_have_it_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    meta = described("none", {"x": "x", "y": "y", "day": "day"})
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
    one = added(folder, "a.parquet", pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0]}), {"day": "7"})
    write_log(folder, 0, [{"protocol": {**protocol, **features}}, meta, one])
    assert rows(folder, ["x", "y", "day"]) == {"x": [1.0, 2.0], "y": [3.0, 4.0], "day": [7, 7]}


def test_another_mapping_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    one = added(folder, "a.parquet", pa.table({"x": [1.0], "y": [3.0]}), {"day": "7"})
    meta = described("hash", {"x": "x", "y": "y", "day": "day"})
    write_log(folder, 0, [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, meta, one])
    with pytest.raises(DataError, match=r"cannot be read as a Delta Lake table: .*hash"):
        open_lake(folder)
