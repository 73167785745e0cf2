"""Files of one table whose columns are of different kinds, and labels beyond the range of exact numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pytest

from daskkern.data.ingest import ingest
from daskkern.data.ingest.readers.formats import FORMATS
from daskkern.data.lake.listing import OTHER_TABLES
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError

N = 40
WRITERS: dict[str, Callable[..., Any]] = {"arrow": pyarrow.feather.write_feather, "orc": pyarrow.orc.write_table}
COLUMNS = {
    "times": pa.array([1_700_000_000_000_000] * N, pa.timestamp("us")),
    "numbers": pa.array([1, 2] * (N // 2)),
    "fractions": pa.array(np.arange(N) + 0.5),
    "texts": pa.array(["x", "z"] * (N // 2)),
    "days": pa.array([19_675] * N, pa.date32()),
}


def _written(folder: Path, ending: str, first: str, second: str) -> Path:
    (folder / "rows").mkdir()
    for number, kind in enumerate((first, second)):
        table = pa.table({"a": np.arange(N) * 1.5, "b": COLUMNS[kind], "y": np.arange(N) + 0.25})
        WRITERS[ending](table, str(folder / "rows" / f"{number}.{ending}"))
    return folder / "rows"


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(
    ("first", "second"),
    [("times", "numbers"), ("numbers", "times"), ("texts", "numbers"), ("days", "fractions"), ("texts", "times")],
)
def test_columns_of_two_kinds_are_refused(tmp_path: Path, ending: str, first: str, second: str) -> None:
    rows = _written(tmp_path, ending, first, second)
    with pytest.raises(DataError, match=rf"column 'b' holds .* in .*0\.{ending} and .* in .*1\.{ending}; write both"):
        ingest(rows, tmp_path / "store", target="y")


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(("first", "second"), [("numbers", "fractions"), ("times", "days")])
def test_columns_of_one_kind_are_taken(tmp_path: Path, ending: str, first: str, second: str) -> None:
    ingest(_written(tmp_path, ending, first, second), tmp_path / "store", target="y")
    assert open_store(tmp_path / "store").info.n_rows == 2 * N


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_categories_of_polars_are_texts(tmp_path: Path, kind: str) -> None:
    polars = pytest.importorskip("polars")
    category = polars.Categorical if kind == "Categorical" else polars.Enum(["x", "z"])
    texts = polars.Series(["x", None, "z", "z"] * 10, dtype=category)
    frame = polars.DataFrame({"a": np.arange(N) * 1.5, "b": texts, "y": np.arange(N) + 0.25})
    frame.write_ipc(tmp_path / "rows.arrow")
    found = []
    for name, rows in (("frame", frame), ("file", tmp_path / "rows.arrow")):
        ingest(rows, tmp_path / name, target="y", shuffle=False)
        found.append(open_store(tmp_path / name))
    assert found[0].info.feature_names == ("a", "b=missing", "b=x", "b=z")
    np.testing.assert_array_equal(found[0].array("X")[:3, 1:], [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(found[0].array("X")[:], found[1].array("X")[:])


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"a": [2**70] * 4, "y": [1.5, 2.5, 3.5, 4.5]}), "of a kind that Arrow does not hold .*too large"),
        (pd.DataFrame(np.ones((4, 3)), columns=["a", "a", "y"]), "has more than one column named 'a'; give every"),
        (pd.DataFrame({1: [1.5] * 4, "y": [1.5] * 4}), "^the rows have names of columns that are not text, such as 1;"),
    ],
    ids=["large", "twice", "number"],
)
def test_frames_that_are_no_tables_are_refused(tmp_path: Path, frame: pd.DataFrame, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ingest(frame, tmp_path / "store", target="y")


LABELS = (2**64 - 1, 2**64 - 2)
"""They are one number in float64, in which readers of text hold what neither int64 nor uint64 can."""


@pytest.mark.parametrize(
    ("ending", "third", "found"),
    [("csv", 5, "target 18446744073709551615; "), ("jsonl", -5, r"label 1\.84467e\+19, ")],
)
def test_labels_that_would_be_merged_are_refused(tmp_path: Path, ending: str, third: int, found: str) -> None:
    rows = [{"a": k * 1.5, "y": (*LABELS, third)[k % 3]} for k in range(30)]
    lines = ["a,y", *(f"{row['a']},{row['y']}" for row in rows)] if ending == "csv" else list(map(json.dumps, rows))
    (tmp_path / f"rows.{ending}").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=rf"row 0 of .* has the {found}.*float64.*; write labels as text"):
        ingest(tmp_path / f"rows.{ending}", tmp_path / "store", target="y", task="classification")


@pytest.mark.parametrize("other", ["a.csv", "deep/c.csv.gz", "z.jsonl"])
def test_folders_with_tables_of_other_formats_are_refused(tmp_path: Path, other: str) -> None:
    rows = pd.DataFrame({"a": [1.0, 2.0], "y": [0.5, 0.7]})
    folder = tmp_path / "rows"
    (folder / "deep").mkdir(parents=True)
    rows.to_parquet(folder / "b.parquet")
    (folder / "_hidden.csv").write_text("a,y\n")
    ingest(folder, tmp_path / "first.zarr", target="y")
    (folder / other).write_bytes(b"")
    with pytest.raises(DataError, match=rf"b\.parquet and .*{other} are of different formats"):
        ingest(folder, tmp_path / "second.zarr", target="y")
    ingest(f"{folder}/*.parquet", tmp_path / "third.zarr", target="y")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_two_asterisks_mean_any_number_of_folders(tmp_path: Path, ending: str) -> None:
    for number, folder in enumerate(("rows", "rows/1", "rows/1/2")):
        (tmp_path / folder).mkdir()
        rows = pd.DataFrame({"a": [1.0, 2.0], "y": [number + 0.5, number + 0.7]})
        path = tmp_path / folder / f"f{number}.{ending}"
        rows.to_csv(path, index=False) if ending == "csv" else rows.to_parquet(path)
    ingest(f"{tmp_path}/rows/**/*.{ending}", tmp_path / "s.zarr", target="y")
    assert open_store(tmp_path / "s.zarr").info.n_rows == 6


def test_endings_of_other_tables_are_those_of_the_formats() -> None:
    assert set(OTHER_TABLES) == {suffix for known in FORMATS if known.streams for suffix in known.suffixes}


@pytest.mark.parametrize(
    ("ending", "way"),
    [("json", "write an object a line"), ("xlsx", "write the sheet"), ("txt", "rename it"), ("pkl", "write it")],
)
def test_other_formats_are_told_the_way(tmp_path: Path, ending: str, way: str) -> None:
    (tmp_path / f"rows.{ending}").write_text("a,y\n1,2\n")
    with pytest.raises(DataError, match=rf"rows\.{ending} has an unknown format; {way}.*; known endings are \.parquet"):
        ingest(tmp_path / f"rows.{ending}", tmp_path / "store", target="y")


def test_a_pattern_of_parquet_and_others_is_refused(tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": [1.0, 2.0], "y": [0.5, 0.7]})
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match=r"rows\.parquet and .*rows\.csv are of different formats"):
        ingest(f"{tmp_path}/rows.*", tmp_path / "store", target="y")
