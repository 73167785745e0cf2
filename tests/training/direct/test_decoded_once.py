"""A fit decodes each group of rows that it reads in place once, and has the same bits as when it decodes them anew."""

import os
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from distributed import Client

from daskkern.arrays import IntArray
from daskkern.basis import Landmarks
from daskkern.data.remote.file_systems import is_in_memory
from daskkern.data.rows.grouped_rows import GroupReader
from daskkern.data.rows.rows import ALL, Fields, RowBlock, take
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.direct.decoded_groups import DecodedGroups
from daskkern.training.direct.group_source import GroupSource
from daskkern.training.direct.registry import direct_rows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

SETTINGS = FitSettings(Gaussian("median"), Squared(), Landmarks(60), EigenPro(), "auto", max_epochs=3, scale="auto")
N_FILES, N = 6, 4096


class Counting(GroupReader):
    """Counts how often the features of each group are decoded."""

    is_slow = True

    def __init__(self, reader: GroupReader) -> None:
        self.reader, self.sizes, self.decoded = reader, reader.sizes, Counter[int]()

    @property
    def has_weight(self) -> bool:
        return self.reader.has_weight

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        self.decoded[number] += Fields.X in fields
        return self.reader.read(number, fields, dtype)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "lake").mkdir()
    for number in range(N_FILES):
        x, few = rng.normal(size=(3, N)), rng.integers(0, 3, N)
        columns: dict[str, Any] = {f"x{j}": pa.array(x[j], mask=rng.random(N) < 0.05) for j in range(3)}
        columns["kind"] = np.array(["red", "green", "blue"])[few]
        columns["n"] = rng.integers(-(1 << 50), 1 << 50, N)
        columns["w"], columns["y"] = rng.integers(1, 4, N).astype(float), np.sin(x[0]) + few
        pq.write_table(pa.table(columns), tmp_path / "lake" / f"{number}.parquet")
    return tmp_path / "lake"


def source_of(lake: Path, weight: str | None = None) -> tuple[GroupSource, Counting]:
    found = direct_rows(lake, RowRoles(target=("y",), weight=weight, drop=() if weight else ("w",)))[0]
    assert isinstance(found, GroupSource)
    reader = Counting(found.reader)
    return replace(found, reader=reader), reader


@pytest.mark.parametrize("weight", [None, "w"])
def test_every_group_is_decoded_once_and_the_model_has_the_same_bits(
    lake: Path, tmp_path: Path, weight: str | None
) -> None:
    (tmp_path / "scratch").mkdir()
    source, reader = source_of(lake, weight)
    once = fit(source, replace(SETTINGS, scratch=str(tmp_path / "scratch")))
    assert reader.decoded == Counter(range(N_FILES))
    source, reader = source_of(lake, weight)
    anew = fit(source, replace(SETTINGS, scratch=str(tmp_path / "scratch"), disk_budget=1))
    assert min(reader.decoded.values()) > 5
    np.testing.assert_array_equal(once.model.coef, anew.model.coef)
    np.testing.assert_array_equal(once.model.points, anew.model.points)
    assert once.model.scaling == anew.model.scaling
    assert not list((tmp_path / "scratch").iterdir())


class Logging(Counting):
    """Writes down which process decodes a group."""

    def __init__(self, reader: GroupReader, log: Path) -> None:
        super().__init__(reader)
        self.log = log

    def read(self, number: int, fields: Fields, dtype: npt.DTypeLike) -> RowBlock:
        if Fields.X in fields:
            with self.log.open("a") as log:
                log.write(f"{os.getpid()} {number}\n")
        return super().read(number, fields, dtype)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_each_process_of_a_cluster_decodes_a_group_once(client2: Client, lake: Path, tmp_path: Path) -> None:
    source = source_of(lake)[0]
    logged = replace(source, reader=Logging(source.reader, tmp_path / "log"))
    fit(logged, replace(SETTINGS, scratch=str(tmp_path)), client=client2)
    decoded = Counter((tmp_path / "log").read_text().splitlines())
    assert set(decoded.values()) == {1}
    assert len(decoded) <= 2 * N_FILES


def test_groups_that_do_not_fit_on_the_disk_are_decoded_again(lake: Path, tmp_path: Path) -> None:
    source, reader = source_of(lake)
    fit(source, replace(SETTINGS, scratch=str(tmp_path), disk_budget=int(3.5 * N * (4 * 7 + 8))))
    counts = sorted(reader.decoded[number] for number in range(N_FILES))
    assert counts[:3] == [1, 1, 1]
    assert min(counts[3:]) > 5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kept_groups_are_what_the_reader_returns(lake: Path, tmp_path: Path, dtype: str) -> None:
    plain, _ = source_of(lake, "w")
    kept = plain.kept_on_disk(replace(SETTINGS, scratch=str(tmp_path), dtype=dtype))
    positions: IntArray = np.array([0, 1, 2, 4095, 4096, 9000, 9001, 24575])
    for read_as in ("float64", dtype, dtype):  # the first pass measures the columns in float64
        for fields in (ALL, Fields.y, Fields.weight | Fields.X):
            blocks = [_blocks(each.open(read_as), positions, fields) for each in (kept, plain)]
            for rows, others in zip(*blocks, strict=True):
                np.testing.assert_array_equal(rows.X, others.X, strict=True)
                np.testing.assert_array_equal(rows.y, others.y, strict=True)
                np.testing.assert_array_equal(rows.weight, others.weight, strict=True)


@pytest.mark.parametrize("kind", ["f2", "f8", "i2", "i8", "b1"])
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_compressed_zarr_arrays_are_decoded_once(tmp_path: Path, kind: str, compressors: Any) -> None:
    X = (np.random.default_rng(0).normal(size=(9000, 3)) * 50).astype(kind)
    group = zarr.open_group(tmp_path / "pair.zarr", mode="w")
    arrays = (
        group.create_array("X", data=X, chunks=(2000, 3), compressors=compressors),
        group.create_array("y", data=np.arange(9000.0)),
    )
    plain = direct_rows(arrays[0], RowRoles(task="regression"), y=arrays[1])[0]
    kept = plain.kept_on_disk(replace(SETTINGS, scratch=str(tmp_path)))
    assert (kept is plain) == (compressors is None)
    for read_as in ("float64", "float32", "float32"):
        blocks = [_blocks(each.open(read_as), np.array([0, 5, 4095, 8999]), ALL) for each in (kept, plain)]
        for rows, others in zip(*blocks, strict=True):
            np.testing.assert_array_equal(rows.X, others.X, strict=True)
            np.testing.assert_array_equal(rows.y, others.y, strict=True)


def _blocks(rows: Any, positions: IntArray, fields: Fields) -> tuple[RowBlock, RowBlock]:
    return rows.read(4000, 9000, fields), take(rows, positions, fields)


def test_integers_that_would_be_rounded_twice_are_decoded_anew(tmp_path: Path) -> None:
    numbers = np.arange(5000) + (1 << 60) + 1
    pq.write_table(pa.table({"a": numbers, "b": numbers / 3, "y": np.arange(5000.0)}), tmp_path / "rows.parquet")
    source = source_of_file(tmp_path)
    kept = source.kept_on_disk(replace(SETTINGS, scratch=str(tmp_path)))
    kept.open("float64").read(0, 5000)
    found, expected = (each.open("float32").read(0, 5000).X for each in (kept, source))
    np.testing.assert_array_equal(found, expected, strict=True)


def source_of_file(folder: Path) -> GroupSource:
    found = direct_rows(folder / "rows.parquet", RowRoles(target=("y",)))[0]
    assert isinstance(found, GroupSource)
    return found


def test_a_process_has_one_file_for_a_fit_which_goes_with_the_last_source(lake: Path, tmp_path: Path) -> None:
    source = source_of(lake)[0].kept_on_disk(replace(SETTINGS, scratch=str(tmp_path)))
    assert source.kept is not None
    assert pickle.loads(pickle.dumps(source.kept)) is source.kept
    source.open("float32").read(0, 100)
    opened = Path("/proc/self/fd")
    if not opened.is_dir():
        pytest.skip("the system does not list the files that a process has opened under /proc")
    assert _files_in(opened, tmp_path)
    del source
    assert not _files_in(opened, tmp_path)


def _files_in(opened: Path, folder: Path) -> list[str]:
    places = [os.readlink(each) for each in opened.iterdir() if each.is_symlink()]
    return [place for place in places if place.startswith(str(folder))]


def test_nothing_is_kept_in_a_folder_that_is_in_memory(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_in_memory("/dev/shm"):
        pytest.skip("/dev/shm is no file system in memory here")
    monkeypatch.setattr("tempfile.tempdir", "/dev/shm")
    groups = DecodedGroups(SETTINGS)
    groups.keep(0, RowBlock(np.ones((3, 2), np.float32), None, None))
    assert not groups.has(0, "float32")


def test_a_folder_that_is_removed_ends_keeping_and_not_the_fit(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    kept = DecodedGroups(replace(SETTINGS, scratch=str(folder), disk_budget=10**6, dtype="float64"))
    X = np.random.default_rng(0).standard_normal((50, 3))
    kept.keep(0, RowBlock(X, X[:, 0].copy(), None))
    folder.rmdir()
    kept.keep(1, RowBlock(X, X[:, 0].copy(), None))
    assert not kept.has(1, "float64")
    np.testing.assert_array_equal(kept.read(0, ALL, "float64").X, X)
