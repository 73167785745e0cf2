"""Columns that the first pass over a lake has decoded are not read from its files again."""

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.data.ingest import ingest
from daskkern.data.ingest.readers.lake_tables import open_lake_table
from daskkern.data.ingest.readers.tables import Request
from daskkern.data.lake.decoded_columns import DecodedColumns
from daskkern.data.lake.lake import Lake
from daskkern.data.lake.opening import open_lake
from daskkern.data.remote.file_systems import is_in_memory
from daskkern.data.storage.store import open_store

ROWS = 150_000
"""More than are surveyed at once, and than are converted at once."""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two files of one row group; the texts of the second half of each are others, which needs a second dictionary."""
    folder = tmp_path / "lake"
    rng = np.random.default_rng(0)
    for part in range(2):
        place = folder / f"day={part}" / "part.parquet"
        place.parent.mkdir(parents=True)
        codes = np.where(np.arange(ROWS) < ROWS // 2, 0, 4) + rng.integers(0, 4, ROWS)
        columns: dict[str, Any] = {
            "kind": pa.array(np.array([f"kind {k}" for k in range(8)])[codes], mask=rng.random(ROWS) < 0.1),
            "gaps": pa.array(rng.normal(size=ROWS), mask=rng.random(ROWS) < 0.1),
            "plain": rng.normal(size=ROWS),
            "y": np.arange(ROWS, dtype=np.float64),
        }
        pq.write_table(pa.table(columns), place, row_group_size=ROWS)
    return folder


def request(scratch: Path, *columns: str) -> Request:
    return Request(("y",), None, (), "regression", scratch, False, columns=columns)


def opened(lake: Path, *columns: str) -> Lake:
    return open_lake([lake], columns=[*columns, "y"])


on_a_disk = pytest.mark.skipif(
    is_in_memory(tempfile.gettempdir()), reason="temporary files are in memory; set TMPDIR to a folder on a disk"
)


@on_a_disk
def test_columns_that_were_surveyed_come_from_the_first_pass(lake: Path, tmp_path: Path) -> None:
    wanted = opened(lake, "kind", "gaps", "plain")
    expected = list(open_lake_table(wanted, request(tmp_path)).train.pieces())
    table = open_lake_table(wanted, request(tmp_path)).train
    for part in range(2):  # files of other rows, whose kinds and gaps would be others
        place = lake / f"day={part}" / "part.parquet"
        rows = pq.read_table(place, partitioning=None)
        reversed_rows = {name: rows.column(name).combine_chunks()[::-1] for name in ("kind", "gaps")}
        written = pa.table({**reversed_rows, "plain": rows.column("plain"), "y": rows.column("y")})
        pq.write_table(written, place, row_group_size=ROWS)
    found = list(table.pieces())
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.y, other.y)


def test_stores_are_those_of_a_table_without_a_first_pass(lake: Path, tmp_path: Path) -> None:
    ingest([lake], tmp_path / "one.zarr", target="y", task="regression")
    ingest([lake], tmp_path / "like.zarr", target="y", like=tmp_path / "one.zarr")
    one, like = open_store(tmp_path / "one.zarr"), open_store(tmp_path / "like.zarr")
    assert one.info.checksums == like.info.checksums
    assert one.info.statistics == like.info.statistics


def test_nothing_is_kept_where_temporary_files_are_in_memory(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_in_memory("/dev/shm"):
        pytest.skip("/dev/shm is not in memory; needs Linux")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    kept, wanted = DecodedColumns(memory_bytes=0), opened(lake, "gaps")
    for _ in kept.keep(wanted.pieces[0], wanted.batches(wanted.pieces[0], ["gaps"], ROWS)):
        pass
    assert kept.rows_of(wanted.pieces[0], ["gaps"]) is None


@on_a_disk
def test_row_groups_without_room_are_decoded_again(lake: Path) -> None:
    wanted = opened(lake, "gaps")
    kept = DecodedColumns(
        most_bytes=2_000_000, memory_bytes=0
    )  # of rows of 8 bytes, the first piece and a part of the second
    for piece in wanted.pieces:
        for _ in kept.keep(piece, wanted.batches(piece, ["gaps"], ROWS // 4)):
            pass
    again = replace(wanted, decoded=kept)
    found = [kept.rows_of(piece, ["gaps", "y"]) is not None for piece in wanted.pieces]
    assert found == [True, False]
    for piece in wanted.pieces:
        for one, other in zip(
            wanted.batches(piece, ["y", "gaps"], 1000), again.batches(piece, ["y", "gaps"], 1000), strict=True
        ):
            assert one.rows.equals(other.rows)


@on_a_disk
def test_a_second_pass_over_other_columns_keeps_nothing(lake: Path) -> None:
    wanted = opened(lake, "gaps", "plain")
    kept = DecodedColumns(most_bytes=2_000_000, memory_bytes=0)  # the first piece, and a part of the second
    for name in ("gaps", "plain"):
        for piece in wanted.pieces:
            for _ in kept.keep(piece, wanted.batches(piece, [name], ROWS // 4 if name == "gaps" else 1000)):
                pass
    again = replace(wanted, decoded=kept)
    for piece in wanted.pieces:
        for one, other in zip(
            wanted.batches(piece, ["gaps", "plain"], 1000), again.batches(piece, ["gaps", "plain"], 1000), strict=True
        ):
            assert one.rows.equals(other.rows)


def test_the_first_row_groups_are_kept_in_memory(lake: Path) -> None:
    wanted = opened(lake, "gaps", "kind")
    kept = DecodedColumns(most_bytes=0, memory_bytes=2_500_000)  # 8 bytes of each row, and 4 of an index
    for piece in wanted.pieces:
        for _ in kept.keep(piece, wanted.batches(piece, ["gaps", "kind"], ROWS // 4)):
            pass
    assert [kept.rows_of(piece, ["gaps"]) is not None for piece in wanted.pieces] == [True, False]
    again = replace(wanted, decoded=kept)
    for piece in wanted.pieces:
        names = ["kind", "y", "gaps"]
        for one, other in zip(wanted.batches(piece, names, 1000), again.batches(piece, names, 1000), strict=True):
            assert one.rows.to_pylist() == other.rows.to_pylist()


def test_other_processes_decode_again(lake: Path) -> None:
    wanted = opened(lake, "gaps")
    assert pickle.loads(pickle.dumps(DecodedColumns())) is None
    assert wanted.decoded is None
