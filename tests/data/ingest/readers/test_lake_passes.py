"""Passes over parts of a lake: they read the row groups and columns that they need, and no others."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.data.direct.opening import TableChoice, open_table
from daskkern.data.direct.table_reader import TableReader, table_reader
from daskkern.data.lake import Lake
from daskkern.data.lake.lake_piece import LakePiece
from daskkern.data.rows.rows import ALL, Fields

ROWS, GROUP = 20_000, 5000


@pytest.fixture
def reader(tmp_path: Path) -> TableReader:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"x{j}": rng.normal(size=ROWS) for j in range(4)}
    columns |= {"kind": rng.choice(["a", "b"], ROWS), "w": rng.random(ROWS), "y": np.arange(ROWS) / 2}
    for part in range(2):
        half = {name: values[part * ROWS // 2 :][: ROWS // 2] for name, values in columns.items()}
        pq.write_table(pa.table(half), tmp_path / f"part-{part}.parquet", row_group_size=GROUP)
    opened = open_table(str(tmp_path), TableChoice(("y",), weight="w", task="regression"))
    return table_reader(opened.table, opened.decision)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, tuple[str, ...]]]:
    """The file, the row group and the columns of each pass over a piece."""
    found: list[tuple[str, int, tuple[str, ...]]] = []
    plain = Lake.batches

    def batches(self: Lake, piece: LakePiece, columns: Sequence[str], rows: int) -> Iterator[Any]:
        found.append((Path(piece.file).name, piece.group, tuple(columns)))
        yield from plain(self, piece, columns, rows)

    monkeypatch.setattr(Lake, "batches", batches)
    return found


def test_a_group_is_read_from_its_row_group_alone(
    reader: TableReader, read: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    assert reader.sizes == (GROUP,) * 4
    block = reader.read(1, ALL, "float32")
    assert [one[:2] for one in read] == [("part-0.parquet", 1)]
    assert block.X is not None
    assert block.X.shape == (GROUP, 6)
    assert block.y is not None
    assert block.weight is not None
    np.testing.assert_array_equal(block.y[:, 0], np.arange(GROUP, 2 * GROUP) / 2)


def test_targets_and_weights_are_read_without_the_features(
    reader: TableReader, read: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    for number in range(4):
        whole, read[:] = reader.read(number, ALL, "float32"), []
        narrow = reader.read(number, Fields.y | Fields.weight, "float32")
        assert narrow.X is None
        assert {one[2] for one in read} == {("y", "w")}
        np.testing.assert_array_equal(narrow.y, whole.y)
        np.testing.assert_array_equal(narrow.weight, whole.weight)
    pieces = list(reader.table.narrow_rows_from(GROUP + 7))
    assert pieces[0].first == GROUP + 7
    np.testing.assert_array_equal(np.concatenate([piece.y for piece in pieces]), np.arange(GROUP + 7, ROWS) / 2)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, GROUP), (7, 2 * GROUP + 3), (GROUP, ROWS), (ROWS - 2, ROWS)])
def test_the_rows_of_a_part_end_where_it_ends(reader: TableReader, start: int, stop: int) -> None:
    pieces = list(reader.table.between(start, stop).pieces())
    found = np.concatenate([piece.y for piece in pieces if piece.y is not None])
    np.testing.assert_array_equal(found, np.arange(start, stop) / 2)
    whole = np.concatenate([np.asarray(piece.X) for piece in reader.table.pieces()])
    np.testing.assert_array_equal(np.concatenate([np.asarray(piece.X) for piece in pieces]), whole[start:stop])


@pytest.mark.parametrize("has_gaps", [True, False])
def test_a_direct_fit_surveys_its_columns_in_one_pass(
    tmp_path: Path, read: list[tuple[str, int, tuple[str, ...]]], has_gaps: bool
) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"n": rng.integers(0, 9, 500), "kind": rng.choice(["a", "b"], 500), "y": np.arange(500.0)}
    columns["x"] = pa.array(rng.normal(size=500), mask=rng.random(500) < 0.1 if has_gaps else None)
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    opened = open_table(str(tmp_path / "rows.parquet"), TableChoice(("y",), task="regression"))
    assert [set(one[2]) for one in read] == [{"n", "kind", "x"} if has_gaps else {"x", "kind"}]
    fills = {column.name: column.fill for column in opened.table.encoding or ()}
    assert fills["n"] == (columns["n"].mean() if has_gaps else None)
