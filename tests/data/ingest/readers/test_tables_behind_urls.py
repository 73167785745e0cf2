"""Table files behind URLs are read as those on this machine: CSV, compressed or not, Arrow and SVMLight."""

import gzip
import io
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from sklearn.datasets import dump_svmlight_file

from daskkern.data.ingest import ingest
from daskkern.data.remote import disk_cache
from daskkern.data.remote.disk_cache import FileBlocks, KeptFile
from daskkern.data.remote.files import RemoteFile, file_at
from daskkern.data.storage.store import open_store
from daskkern.errors import DaskkernError, DataError
from tests.support.object_server import ObjectServer

N = 400


def frame_of(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    frame = pd.DataFrame({"x": rng.normal(size=N), "town": rng.choice(["Bonn", "Ulm"], N), "y": np.arange(N) % 3 * 0.5})
    frame.loc[::9, "x"] = np.nan
    return frame


def write(part: int, place: Path, ending: str) -> None:
    frame = frame_of(part)
    if ending == "arrow":
        pyarrow.feather.write_feather(pa.Table.from_pandas(frame), place, chunksize=50)
    elif ending == "arrows":
        table = pa.Table.from_pandas(frame)
        with pa.ipc.new_stream(place, table.schema) as writer:
            writer.write_table(table, 50)
    elif ending.startswith("svm"):
        dump_svmlight_file(frame[["y"]].to_numpy(), frame["y"], str(place.with_suffix("")))
        text = place.with_suffix("").read_bytes()
        place.write_bytes(gzip.compress(text) if ending == "svm.gz" else text)
    else:
        frame.to_csv(place, index=False)


@pytest.fixture
def put(objects: ObjectServer) -> Any:
    """Copies a file to the object server, below a folder."""
    from obstore.fsspec import FsspecStore

    system = FsspecStore("s3", client_options={"allow_http": True})  # type: ignore[call-overload]
    return lambda path, folder: system.pipe_file(f"{objects.bucket}/{folder}/{path.name}", path.read_bytes())


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "arrow", "arrows", "svm.gz"])
def test_a_pattern_of_files_becomes_the_store_of_local_ones(
    tmp_path: Path, objects: ObjectServer, put: Any, ending: str
) -> None:
    for part in (2, 10):
        write(part, tmp_path / f"part-{part}.{ending}", ending)
        put(tmp_path / f"part-{part}.{ending}", f"tables-{ending}")
    settings: dict[str, Any] = {"task": "regression", "shuffle": False}
    if not ending.startswith("svm"):
        settings["target"] = "y"
    objects.faults.fail_every = 5
    pattern = "part-?*" if ending == "csv" else "*"  # a question mark is a wildcard, as on a disk
    found = ingest(objects.url(f"tables-{ending}/{pattern}.{ending}"), tmp_path / "remote", **settings)
    objects.faults.clear()
    assert found.notes == ingest(str(tmp_path / f"*.{ending}"), tmp_path / "local", **settings).notes or "svm" in ending
    remote, local = open_store(tmp_path / "remote").info, open_store(tmp_path / "local").info
    assert remote.checksums == local.checksums
    assert remote.encoding == local.encoding
    assert remote.n_rows == 2 * N


def test_what_cannot_be_read_says_so(tmp_path: Path, objects: ObjectServer, put: Any) -> None:
    with pytest.raises(DataError, match="there is no file s3://"):
        ingest(objects.url("nowhere.csv"), tmp_path / "s", target="y")
    with pytest.raises(DataError, match="there is no file s3://"):
        ingest(objects.url("nowhere.csv/"), tmp_path / "s", target="y")
    with pytest.raises(DataError, match=r"no file matches s3://.*; check the pattern"):
        ingest(objects.url("nowhere/*.csv"), tmp_path / "s", target="y")
    with pytest.raises(DataError, match=r"no file matches s3://.*/no\?here/\*\.csv; check the pattern"):
        ingest(objects.url("no?here/*.csv"), tmp_path / "s", target="y")
    with pytest.raises(
        DataError, match="Iceberg, csv, arrow, orc, json lines and svmlight are read from URLs, not hdf5"
    ):
        ingest(objects.url("nowhere.h5"), tmp_path / "s", target="y")
    (tmp_path / "bad.csv").write_text("x,y\n1,2\n1,two\n3,4\n" * 2)
    put(tmp_path / "bad.csv", "bad")
    with pytest.raises(DaskkernError, match=r"s3://.*bad\.csv"):
        ingest(objects.url("bad/bad.csv"), tmp_path / "s", target="y", task="regression")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_file_is_requested_once_for_all_passes(
    tmp_path: Path, objects: ObjectServer, put: Any, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    write(0, tmp_path / f"once.{ending}", ending)
    put(tmp_path / f"once.{ending}", f"once-{ending}")
    asked: list[tuple[str, int]] = []
    read = RemoteFile.read

    def counted(self: RemoteFile, size: int | None = -1) -> bytes:
        asked.append((self.url, self.tell()))
        return read(self, size)

    monkeypatch.setattr(RemoteFile, "read", counted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ingest(objects.url(f"once-{ending}/once.{ending}"), tmp_path / "store", target="y", task="regression")
    assert asked == [(objects.url(f"once-{ending}/once.{ending}"), 0)]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("daskkern-")] == []


def test_blocks_without_room_are_requested_again(objects: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.fsspec import FsspecStore

    monkeypatch.setattr(disk_cache, "BLOCK_BYTES", 1000)
    content = np.random.default_rng(0).bytes(3500)
    FsspecStore("s3", client_options={"allow_http": True}).pipe_file(f"{objects.bucket}/blocks.bin", content)  # type: ignore[call-overload]
    found = file_at(objects.url("blocks.bin"))
    assert found is not None
    for most, asks_again in ((10_000, False), (2500, True), (0, True)):
        cache = FileBlocks(most)
        assert KeptFile(found, cache).read() == content
        objects.faults.counts.clear()
        again = io.BufferedReader(KeptFile(found, cache), 700)
        again.seek(1500)
        assert again.read(700) == content[1500:2200]
        again.seek(0)
        assert again.read() == content
        assert (objects.faults.counts.get("GET", 0) > 0) == asks_again
        copied = pickle.loads(pickle.dumps(cache))
        assert copied.get(found.place, 0) is None
