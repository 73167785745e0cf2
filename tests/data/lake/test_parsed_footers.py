"""The footers of a lake's first files are parsed once, and again where a file has changed or there is no room."""

import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.data.lake import Lake, open_lake
from daskkern.data.lake.parsed_footers import ParsedFooters
from daskkern.data.remote.files import file_at
from daskkern.errors import DataError

ROWS = 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in range(3):
        columns = {"a": np.arange(ROWS) + part * ROWS, "b": np.ones(ROWS)}
        pq.write_table(pa.table(columns), tmp_path / f"part-{part}.parquet")
    return tmp_path


def values_of(lake: Lake) -> list[int]:
    return [
        value
        for piece in lake.pieces
        for batch in lake.batches(piece, ["a"], ROWS)
        for value in batch.rows.column(0).to_pylist()
    ]


def without_footer(place: Path) -> None:
    """Overwrite the footer of a file, which has the same size and time afterwards."""
    before = place.stat()
    content = place.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    place.write_bytes(content[: -length - 8] + bytes(length + 8))
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_no_footer_is_parsed_again(folder: Path) -> None:
    lake = open_lake(folder)
    for part in range(3):
        without_footer(folder / f"part-{part}.parquet")
    assert values_of(lake) == list(range(3 * ROWS))


def test_a_lake_with_a_filter_keeps_its_footers_too(folder: Path) -> None:
    lake = open_lake(folder, where="a >= 60")
    without_footer(folder / "part-2.parquet")
    assert values_of(lake) == list(range(60, 3 * ROWS))


def test_a_file_that_was_written_again_is_parsed_again(folder: Path) -> None:
    lake = open_lake(folder)
    pq.write_table(pa.table({"b": np.ones(ROWS), "a": np.arange(ROWS) - 7}), folder / "part-0.parquet")
    assert values_of(lake)[:2] == [-7, -6]


@pytest.fixture
def url() -> Iterator[str]:
    yield "memory://written-again/rows.parquet"
    fsspec.filesystem("memory").rm("/written-again", recursive=True)


def put(url: str, columns: dict[str, np.ndarray]) -> int:
    """Write a file whose size depends on the number of rows alone, and return it."""
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written, compression="none", use_dictionary=False, write_statistics=False)
    fsspec.filesystem("memory").pipe(url, written.getvalue())
    return len(written.getvalue())


def test_a_file_at_a_url_that_was_written_again_is_parsed_again(url: str) -> None:
    first, second = np.arange(ROWS), np.zeros(ROWS, np.int64)
    size = put(url, {"a": first, "b": second})
    lake = open_lake(url)
    assert lake.footers is not None
    assert lake.footers.of(lake.pieces[0]) is not None
    assert put(url, {"b": second, "a": first}) == size
    assert values_of(lake) == list(range(ROWS))


def test_another_process_parses_footers_itself(folder: Path) -> None:
    sent = pickle.loads(pickle.dumps(open_lake(folder)))
    assert sent.footers is None
    without_footer(folder / "part-1.parquet")
    with pytest.raises(DataError, match=r"part-1\.parquet cannot be read as Parquet"):
        values_of(sent)


def test_footers_beyond_the_room_are_parsed_again(folder: Path) -> None:
    lake = open_lake(folder)
    files = [file_at(piece.file) for piece in lake.pieces]
    footers = [pq.read_metadata(piece.file) for piece in lake.pieces]
    kept = ParsedFooters(most_bytes=2 * footers[0].serialized_size)
    for file, footer in zip(files, footers, strict=True):
        assert file is not None
        kept.keep(file, footer)
    assert [kept.of(piece) for piece in lake.pieces] == [footers[0], footers[1], None]
