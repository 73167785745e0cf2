"""Table files behind URLs are read as those on this machine: CSV, compressed or not, Arrow and SVMLight."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from sklearn.datasets import dump_svmlight_file

from daskkern.data.ingest import ingest
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
    found = ingest(objects.url(f"tables-{ending}/*.{ending}"), tmp_path / "remote", **settings)
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
    with pytest.raises(DataError, match="Iceberg, csv, arrow and svmlight are read from URLs, not hdf5"):
        ingest(objects.url("nowhere.h5"), tmp_path / "s", target="y")
    (tmp_path / "bad.csv").write_text("x,y\n1,2\n1,two\n3,4\n" * 2)
    put(tmp_path / "bad.csv", "bad")
    with pytest.raises(DaskkernError, match=r"s3://.*bad\.csv"):
        ingest(objects.url("bad/bad.csv"), tmp_path / "s", target="y", task="regression")
    assert not (tmp_path / "s").exists()
