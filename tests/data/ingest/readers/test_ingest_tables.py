"""Ingestion of .csv and .parquet files."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import daskkern
from daskkern.arrays import HostArray
from daskkern.data.ingest import IngestReport, ingest
from daskkern.data.rows.rows import RowBlock
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError, SpecError

Left = Callable[[], list[str]]
FILLER, BLOCK_ROWS = "x" * 4000, 300
"""Text of a column that is dropped, and rows with it that are more than a block of the reader, 1 MiB."""


def _read(path: Path) -> RowBlock:
    store = open_store(path)
    store.verify()
    return StoreRows(store).read(0, store.info.n_rows)


def _csv(tmp_path: Path, text: str, **settings: object) -> IngestReport:
    (tmp_path / "d.csv").write_text(text, encoding="utf-8")
    return ingest(tmp_path / "d.csv", tmp_path / "s", **settings)  # type: ignore[arg-type]


def test_csv_round_trip(tmp_path: Path, X: HostArray) -> None:
    lines = [",".join([*(repr(float(v)) for v in row), f"c{i % 2}", str(i)]) for i, row in enumerate(X)]
    text = "a,b,label x,d,e,kind,w\n" + "\n".join(lines) + "\n"
    report = _csv(tmp_path, text, target="kind", weight="w", drop=["b"])
    info = open_store(tmp_path / "s").info
    assert info.feature_names == ("a", "label x", "d", "e")
    assert info.target_names == ("kind",)
    assert report.classes == ("c0", "c1")
    block = _read(tmp_path / "s")
    np.testing.assert_array_equal(block.X, X[:, [0, 2, 3, 4]])
    np.testing.assert_array_equal(block.weight, np.arange(103))
    np.testing.assert_array_equal(block.y, np.arange(103) % 2)


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["1", "2", "1", "2"], "classification", (1, 2)),
        (["10", "9", "10", "9"], "classification", (9, 10)),
        (["true", "False", "true", "TRUE"], "classification", (False, True)),
        (["1", "2", "x", "2", "1", "x"], "classification", ("1", "2", "x")),
        (["1", "2", "1.5", "2"], "regression", None),
        (["b", "a", "b", "a"], "classification", ("a", "b")),
        (['"a,b"', '"a\nb"', '"a,b"', '"a\nb"'], "classification", ("a\nb", "a,b")),
    ],
)
def test_the_kind_of_a_target_is_decided_over_the_whole_column(
    tmp_path: Path, values: list[str], task: str, classes: object
) -> None:
    rows = "".join(f"1000{i},{v},{FILLER}\n" * BLOCK_ROWS for i, v in enumerate(values))
    report = _csv(tmp_path, f"aa,t,filler\n{rows}", target="t", drop=["filler"])
    assert (report.task, report.classes) == (task, classes)


def test_a_feature_may_start_with_whole_numbers(tmp_path: Path) -> None:
    rows = f"10,x,{FILLER}\n" * 2 * BLOCK_ROWS + f"0.25,y,{FILLER}\n" * 3
    _csv(tmp_path, f"a,t,filler\n{rows}", target="t", drop=["filler"])
    block = _read(tmp_path / "s")
    assert block.X is not None
    assert block.X[-1, 0] == 0.25


def test_several_targets_are_a_regression(tmp_path: Path) -> None:
    report = _csv(tmp_path, "a,u,v\n1,2,3\n4,5,6.5\n", target=["v", "u"])
    assert (report.task, report.n_targets) == ("regression", 2)
    np.testing.assert_array_equal(_read(tmp_path / "s").y, [[3, 2], [6.5, 5]])
    assert open_store(tmp_path / "s").info.target_names == ("v", "u")


def test_compressed_csv_and_several_files_in_any_column_order(tmp_path: Path) -> None:
    (tmp_path / "1.csv.gz").write_bytes(gzip.compress(b"a,b,t\n1,2,x\n3,4,y\n"))
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"t,b,a\ny,6,5\n"))
    report = ingest(str(tmp_path / "*.csv.gz"), tmp_path / "s", target="t", task="classification")
    assert report.n_files == 2
    np.testing.assert_array_equal(_read(tmp_path / "s").X, [[1, 2], [3, 4], [5, 6]])
    (tmp_path / "3.csv.gz").write_bytes(gzip.compress(b"t,c,a\ny,6,5\n"))
    with pytest.raises(DataError, match=r"columns of .*3\.csv\.gz differ .* lacks 'b' and also has 'c'"):
        ingest(str(tmp_path / "*.csv.gz"), tmp_path / "u", target="t", task="classification")


def test_rows_are_counted_in_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,t\n1,x\n2,y\n")
    (tmp_path / "2.csv").write_text("a,t\n1,x\n2,y\n,y\n")
    with pytest.raises(DataError, match=r"row 2 of .*2\.csv \(counted from 0\) has no value in column 'a'"):
        ingest(str(tmp_path / "*.csv"), tmp_path / "s", target="t", missing="refuse")


def test_a_csv_is_split_exactly(tmp_path: Path) -> None:
    text = "a,t\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(2000))
    report = _csv(tmp_path, text, target="t", split=0.25, out_test=tmp_path / "u", scale="minmax")
    assert (report.n_rows, report.n_test_rows) == (1500, 500)
    assert open_store(tmp_path / "u").info.scaling == open_store(tmp_path / "s").info.scaling


ABC = "age,b,c\n"


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        (ABC + "1,2,x\n", {}, r"which column .* is the target\? Pass --target NAME; the columns are 'age', 'b', 'c'"),
        (ABC + "1,2,x\n", {"target": "Agee"}, "no column 'Agee'; did you mean 'age'"),
        (ABC + "1,2,x\n", {"target": "zzz"}, "no column 'zzz'; the columns are 'age', 'b', 'c'"),
        (ABC + "1,2,x\n", {"target": "c", "drop": ["q"]}, "no column 'q'"),
        (ABC + "1,2,x\n", {"target": "c", "weight": "q"}, "no column 'q'"),
        (ABC + "1,2,x\n", {"target": "c", "drop": ["c"]}, "named more than once"),
        (ABC + "1,2,x\n", {"target": "c", "drop": ["age", "b"]}, "no column .* is left as a feature"),
        (ABC + "1,2,x\n3,red,y\n", {"target": "c"}, r"row 1 of .*d\.csv .* has 'red' in column 'b'.*--drop"),
        (ABC + "1,2,x\n3,,y\n", {"target": "c"}, "row 1 .* has no value in column 'b'"),
        (ABC + "1,2,x\n3,NA,y\n", {"target": "c"}, "row 1 .* has no value in column 'b'"),
        (ABC + "1,2,x\n3,inf,y\n", {"target": "c"}, "row 1 .* has inf.* in feature column 'b'"),
        (ABC + "1,2,x\n3,1e99,y\n", {"target": "c"}, r"row 1 .* has 1e\+99, which float32 cannot hold"),
        (ABC + "1,2,x\n3,2,\n", {"target": "c"}, "row 1 .* has no value in column 'c'"),
        (ABC + "1,2,1\n3,2,NA\n3,2,2\n", {"target": "c"}, "row 1 .* has no value in column 'c'"),
        (ABC + "1,2,x\n3,y\n", {"target": "c"}, "row 1 .* has 2 values, but there are 3 columns"),
        (ABC + "1,2,x\n3,1,y,4\n", {"target": "c"}, "row 1 .* has 4 values, but there are 3 columns"),
        (ABC + "1,2,x\n3,1,y\n", {"target": "c", "task": "regression"}, "row 0 .* has 'x' in column 'c'"),
        (ABC + "1,-2,x\n3,1,y\n", {"target": "c", "weight": "b"}, "row 0 .* has weight -2"),
        (ABC + "1,0,x\n3,0,y\n", {"target": "c", "weight": "b"}, "weights that are all 0"),
        (ABC + "1,2,x\n3,1,x\n", {"target": "c"}, "same label 'x'"),
        (ABC + "".join(f"1,2,n{i}\n" for i in range(9)), {"target": "c"}, "9 different values in 9 rows"),
        (ABC + f"1,2,{'x' * 999}\n", {"target": "c"}, "text of 999 characters"),
        (ABC + "1,2,x\n3,4,y\n", {"target": ["b", "c"], "task": "regression"}, "row 0 .* has 'x' in column 'c'"),
        (ABC + "1,2,x\n3,4,y\n", {"target": ["b", "c"]}, "classes are one target|is text"),
        (ABC, {"target": "c"}, "no rows"),
        ("", {"target": "c"}, "is empty"),
        ("1,2,3\n4,5,6\n", {"target": "c"}, r"first line .* holds numbers \(1, 2, 3\)"),
        ("a;b;c\n4;5;6\n", {"target": "c"}, "no comma, but semicolons"),
        ("a,a,c\n4,5,6\n", {"target": "c"}, "more than one column named 'a'"),
    ],
)
def test_refusals_of_csv(tmp_path: Path, left: Left, text: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises((DataError, SpecError), match=words):
        _csv(tmp_path, text, categorical="refuse", missing="refuse", **settings)
    assert left() == ["d.csv"]


def test_other_encodings_and_cut_off_files_are_sentences(tmp_path: Path, left: Left) -> None:
    (tmp_path / "d.csv").write_bytes("a,t\n1,é\n2,x\n".encode("latin-1"))
    with pytest.raises(DataError, match="not encoded in UTF-8"):
        ingest(tmp_path / "d.csv", tmp_path / "s", target="t")
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"a,t\n1,x\n2,y\n" * 500)[:-20])
    with pytest.raises(DataError, match="cannot be read as CSV"):
        ingest(tmp_path / "e.csv.gz", tmp_path / "s", target="t")
    assert left() == ["d.csv", "e.csv.gz"]


def _parquet(path: Path, columns: dict[str, object], **settings: object) -> Path:
    pq.write_table(pa.table(columns), path, **settings)
    return path


@pytest.mark.parametrize(
    ("dtypes", "stored"),
    [(("u1", "u1"), "u1"), (("i2", "i4"), "i4"), (("i8", "f4"), "f4"), (("f8", "f8"), "f4"), (("?", "?"), "u1")],
)
def test_parquet_round_trip(tmp_path: Path, dtypes: tuple[str, str], stored: str) -> None:
    a, b = (np.array([1, 0, 1, 0, 0, 1]).astype(dtype) for dtype in dtypes)
    labels = pa.array(["u", "v"] * 3).dictionary_encode()
    source = _parquet(tmp_path / "d.parquet", {"a": a, "t": labels, "b": b}, row_group_size=2)
    report = ingest(source, tmp_path / "s", target="t")
    assert report.classes == ("u", "v")
    assert open_store(tmp_path / "s").array("X").dtype == np.dtype(stored)
    np.testing.assert_array_equal(_read(tmp_path / "s").X, np.column_stack([a, b]).astype(np.float32))
    np.testing.assert_array_equal(_read(tmp_path / "s").y, [0, 1] * 3)


def test_parquet_files_are_joined_by_column_names(tmp_path: Path) -> None:
    _parquet(tmp_path / "1.parquet", {"a": [1.0, 2.0], "b": [3, 4], "t": [0.5, 1.5]})
    _parquet(tmp_path / "2.parquet", {"t": [2.5], "b": [6], "a": [5.0]})
    report = ingest(str(tmp_path / "*.parquet"), tmp_path / "s", target="t")
    assert (report.task, report.n_rows) == ("regression", 3)
    np.testing.assert_array_equal(_read(tmp_path / "s").X, [[1, 3], [2, 4], [5, 6]])


def test_the_index_that_pandas_adds_is_no_feature(tmp_path: Path) -> None:
    schema = pa.schema(
        {"a": pa.int64(), "t": pa.float64(), "__index_level_0__": pa.int64()},
        metadata={"pandas": '{"index_columns": ["__index_level_0__"], "columns": []}'},
    )
    table = pa.table({"a": [1, 2], "t": [0.5, 1.5], "__index_level_0__": [7, 8]}, schema=schema)
    pq.write_table(table, tmp_path / "d.parquet")
    report = ingest(tmp_path / "d.parquet", tmp_path / "s", target="t")
    assert open_store(tmp_path / "s").info.feature_names == ("a",)
    assert "__index_level_0__" in report.notes[0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": ["red", "x"], "t": ["u", "v"]}, r"column 'a' of .* holds string values, 'red' in row 0 .*--drop"),
        ({"a": [[1], [2]], "t": ["u", "v"]}, r"column 'a' of .* holds list.* values"),
        ({"a": [1, None], "t": ["u", "v"]}, "row 1 .* has no value in column 'a'"),
        ({"a": [1.0, float("nan")], "t": ["u", "v"]}, "row 1 .* has nan.* in feature column 'a'"),
        ({"a": [1, 2], "t": ["u", None]}, "row 1 .* has no value in column 't'"),
        ({"a": [1, 2], "t": [[1], [2]]}, "target 't' of .* holds list"),
        ({"a": [1.0, 2.0], "t": [1.0, float("inf")]}, "row 1 .* has inf.* in target 't'"),
    ],
)
def test_refusals_of_parquet(tmp_path: Path, left: Left, columns: dict[str, object], words: str) -> None:
    source = _parquet(tmp_path / "d.parquet", columns)
    with pytest.raises(DataError, match=words):
        ingest(source, tmp_path / "s", target="t", categorical="refuse", missing="refuse")
    assert left() == ["d.parquet"]


_MEMORY = """
import sys
from daskkern.data.ingest import ingest
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
before = peak()
ingest(sys.argv[1], sys.argv[2], target="t")
print(peak() - before)
"""


@pytest.mark.repeated
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the peak memory from Linux's /proc")
def test_a_large_csv_is_never_in_memory(tmp_path: Path, rng: np.random.Generator) -> None:
    rows = [",".join(repr(float(v)) for v in row) for row in rng.normal(size=(1000, 50))]
    text = "".join(f"{row},{'xy'[i % 2]}\n" for i, row in enumerate(rows))
    with (tmp_path / "d.csv").open("w") as stream:
        stream.write(",".join(f"f{i}" for i in range(50)) + ",t\n")
        stream.writelines(text for _ in range(200))
    assert (tmp_path / "d.csv").stat().st_size > 190_000_000
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", _MEMORY, str(tmp_path / "d.csv"), str(tmp_path / "s")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=200)
    assert int(result.stdout) < 130_000_000


def test_what_is_no_parquet_is_a_sentence(tmp_path: Path, left: Left) -> None:
    (tmp_path / "d.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        ingest(tmp_path / "d.parquet", tmp_path / "s", target="t")
    assert left() == ["d.parquet"]


@pytest.mark.parametrize(("written", "shown"), [("", "the column without a name"), ("Unnamed: 0", "'Unnamed: 0'")])
def test_the_index_of_a_written_table_is_no_feature(tmp_path: Path, written: str, shown: str) -> None:
    text = f"{written},a,y\n" + "".join(f"{i},{i % 7},{int(i > 20)}\n" for i in range(40))
    report = _csv(tmp_path, text, target="y")
    assert open_store(tmp_path / "s").info.feature_names == ("a",)
    assert f"{shown} left out: the index that pandas or R wrote" in " ".join(report.notes)
    if written:
        ingest(tmp_path / "d.csv", tmp_path / "all", target="y", columns=[written, "a"])
        assert open_store(tmp_path / "all").info.feature_names == (written, "a")
    ingest(tmp_path / "d.csv", tmp_path / "target", target=written, task="regression")
    assert open_store(tmp_path / "target").info.feature_names == ("a", "y")


def test_columns_without_a_name_amid_others_are_refused(tmp_path: Path) -> None:
    text = "a,,y\n" + "".join(f"{i % 7},{i % 5},{int(i > 20)}\n" for i in range(40))
    with pytest.raises(DataError, match=r"column 1 \(counted from 0\) has no name in the first line"):
        _csv(tmp_path, text, target="y")
    report = _csv(tmp_path, text.replace(",,", ",Unnamed: 1,"), target="y")
    assert not report.notes
    assert open_store(tmp_path / "s").info.feature_names == ("a", "Unnamed: 1")
    doubled = "Unnamed: 0.1,Unnamed: 0,a,y\n" + "".join(f"{i},{i},{i % 7},{int(i > 20)}\n" for i in range(40))
    (tmp_path / "more").mkdir()
    report = _csv(tmp_path / "more", doubled, target="y")
    assert open_store(tmp_path / "more" / "s").info.feature_names == ("a",)
