"""Byte ranges that lie close together are one request, and columns of a lake few."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.fsspec import FsspecStore

from daskkern.data.lake import open_lake
from daskkern.data.remote.spans import SpannedFile
from tests.support.object_server import ObjectServer

MB = 1 << 20


def put(objects: ObjectServer, name: str, content: bytes) -> str:
    FsspecStore("s3", client_options={"allow_http": True}).pipe_file(f"{objects.bucket}/{name}", content)
    return objects.url(name)


@pytest.mark.parametrize(
    ("ranges", "requests"),
    [
        ([(0, 100), (200, 50), (MB, 10)], 1),
        ([(0, 100), (MB + 101, 50)], 2),
        ([(0, 5 * MB), (5 * MB, 3 * MB), (8 * MB, 4)], 2),
        ([(7, 11 * MB)], 1),
    ],
)
def test_close_ranges_are_requested_at_once(
    objects: ObjectServer, ranges: list[tuple[int, int]], requests: int
) -> None:
    content = np.random.default_rng(0).bytes(12 * MB)
    file = SpannedFile(put(objects, "spans/content", content), len(content))
    file.expect(ranges[::-1])
    objects.faults.clear()
    for start, n_bytes in ranges:
        file.seek(start)
        assert file.read(n_bytes) == content[start : start + n_bytes]
        assert file.tell() == start + n_bytes
    assert objects.faults.counts["GET"] == requests


def test_other_ranges_are_requested_one_by_one(objects: ObjectServer) -> None:
    content = bytes(range(256)) * 10
    file = SpannedFile(put(objects, "spans/small", content), len(content))
    file.expect([(100, 50), (200, 50)])
    objects.faults.clear()
    for start, stop in ((0, 99), (90, 120), (120, 150), (200, 250), (100, 110), (240, 300), (2550, 2600)):
        file.seek(start)
        assert file.read(stop - start) == content[start:stop]
    assert objects.faults.counts["GET"] == 5  # three of them lie in the part that was expected


def test_scattered_columns_of_a_row_group_are_one_request(objects: ObjectServer, tmp_path: Path) -> None:
    table = pa.table({f"x{j}": np.random.default_rng(j).normal(size=3000) for j in range(40)} | {"c": ["a"] * 3000})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=1500)
    lake = open_lake(put(objects, "spans/rows.parquet", (tmp_path / "rows.parquet").read_bytes()))
    names = [f"x{j}" for j in range(0, 40, 4)] + ["c"]
    objects.faults.clear()
    batches = [batch.rows for piece in lake.pieces for batch in lake.batches(piece, names, 10_000)]
    assert objects.faults.counts["GET"] == 2  # the columns of each of two groups; the end of the file is known
    found = pa.Table.from_batches(batches)
    assert found.drop_columns("c").equals(table.select(names[:-1]))
    assert found.column("c").cast(pa.string()).to_pylist() == ["a"] * 3000
