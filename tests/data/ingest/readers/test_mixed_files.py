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


LABELS = (2**64 - 1, 2**64 - 2, 5)
"""The first two are one number in float64, in which readers of text hold what int64 cannot."""


@pytest.mark.parametrize(
    ("ending", "found"), [("csv", "target 18446744073709551615; "), ("jsonl", r"label 1\.84467e\+19, ")]
)
def test_labels_that_would_be_merged_are_refused(tmp_path: Path, ending: str, found: str) -> None:
    rows = [{"a": k * 1.5, "y": LABELS[k % 3]} for k in range(30)]
    lines = ["a,y", *(f"{row['a']},{row['y']}" for row in rows)] if ending == "csv" else list(map(json.dumps, rows))
    (tmp_path / f"rows.{ending}").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=rf"row 0 of .* has the {found}.*float64.*; write labels as text"):
        ingest(tmp_path / f"rows.{ending}", tmp_path / "store", target="y", task="classification")
