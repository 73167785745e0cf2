"""Rows in groups are the same rows in this process and on a cluster, and are told apart from others."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zarr
from distributed import Client

from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import ALL, RowBlock
from daskkern.errors import DataError
from daskkern.training.direct.group_source import GroupSource
from daskkern.training.direct.registry import direct_rows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource

NUMBERS = RowRoles(target=("y",), task="regression")


def _table(n_rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = pa.array(np.arange(n_rows) * 1_000_003 + 1_700_000_000_000_000, pa.timestamp("us"))
    return pa.table({"a": rng.standard_normal(n_rows) + 1e6, "at": times, "y": rng.standard_normal(n_rows)})


def _source(X: Any, **named: Any) -> GroupSource:
    found = direct_rows(X, RowRoles(task="regression") if named else NUMBERS, **named)[0]
    assert isinstance(found, GroupSource)
    return found


def _all_rows(source: RowSource, dtype: str) -> RowBlock:
    return source.open(dtype).read(0, 1400, ALL)


@pytest.mark.cluster
def test_rows_of_this_process_have_their_dtype_and_batches_on_a_cluster(client2: Client) -> None:
    source = _source(pads.dataset([pads.dataset(_table(500)), pads.dataset(_table(900, 1))]))
    for dtype in ("float64", "float32"):
        remote, kept = source.for_cluster(client2, dtype=dtype)
        here, there = source.open(dtype), remote.open(dtype)
        theirs, mine = client2.submit(_all_rows, remote, dtype, pure=False).result(60), here.read(0, 1400, ALL)
        np.testing.assert_array_equal(mine.X, theirs.X, strict=True)
        np.testing.assert_array_equal(mine.y, theirs.y, strict=True)
        orders = [BatchPlan.for_rows(rows, 50, 3, 5000).order(1) for rows in (here, there)]
        np.testing.assert_array_equal(orders[0], orders[1])
        for one in kept:
            one.release()


def test_the_folder_for_temporary_files_is_no_part_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler of jobs gives each job a folder of its own."""
    pq.write_table(_table(50), tmp_path / "rows.parquet")
    digests = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        places = [str(tmp_path / "rows.parquet"), pads.dataset(tmp_path / "rows.parquet")]
        digests.append([_source(place).digest() for place in places])
    assert digests[0] == digests[1]


def test_a_relative_path_is_told_from_the_same_one_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        pq.write_table(_table(50), "rows.parquet")
        digests.append(_source(pads.dataset("rows.parquet")).digest())
    assert digests[0] != digests[1]


def test_arrays_that_are_written_again_are_other_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = zarr.create_array(tmp_path / "X", data=rng.standard_normal((300, 3)), chunks=(100, 3))
    y = zarr.create_array(tmp_path / "y", data=rng.standard_normal(300))
    before = _source(X, y=y).digest()
    assert _source(X, y=y).digest() == before
    y[:] = rng.standard_normal(300)
    assert _source(X, y=y).digest() != before


@pytest.mark.parametrize("name", ["rows.arrow", "rows.feather", "packed.feather"])
def test_arrow_files_are_read_where_they_lie_batch_by_batch(tmp_path: Path, name: str) -> None:
    table = _table(1000)
    if name == "rows.arrow":
        with pa.OSFile(str(tmp_path / name), "w") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=300)
    else:
        compression = "lz4" if name == "packed.feather" else "uncompressed"
        pyarrow.feather.write_feather(table, tmp_path / name, compression=compression, chunksize=300)
    source = _source(str(tmp_path / name))
    assert sum(source.reader.sizes) == 1000
    rows = source.open("float64")
    y = np.asarray(table["y"])
    for start, stop in ((0, 1000), (299, 301), (650, 651), (999, 1000)):
        np.testing.assert_array_equal(np.ravel(rows.read(start, stop, ALL).y), y[start:stop])


def test_a_file_that_a_process_does_not_see_is_told_at_once(tmp_path: Path) -> None:
    pq.write_table(_table(50), tmp_path / "rows.parquet")
    source = _source(str(tmp_path / "rows.parquet"))
    source.check_reach("float32")
    (tmp_path / "rows.parquet").unlink()
    with pytest.raises(DataError, match=r"rows\.parquet cannot be read as Parquet"):
        source.check_reach("float32")
