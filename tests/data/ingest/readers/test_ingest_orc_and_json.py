"""ORC files and JSON lines as other libraries write them: the rows that pandas and pyarrow read from them."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.orc
import pytest
from distributed import Client

from daskkern import AllRows, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.cli.fit import fit_command
from daskkern.data.ingest import ingest
from daskkern.data.ingest.readers import json_lines_tables
from daskkern.data.storage.store import open_store
from daskkern.errors import DaskkernError, DataError
from daskkern.evaluation.predict import write_predictions
from daskkern.evaluation.tables.scoring import score_rows
from daskkern.evaluation.tables.tasks import ScoringPlace
from tests.support.object_server import ObjectServer

N = 300
BY_PYORC = Path(__file__).parents[3] / "support" / "files" / "pyorc_0_12.orc"
"""1,000 rows that pyorc 0.12 wrote: numbers with gaps, texts, days, moments, decimals, truths."""


def frame_of(part: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    frame = pd.DataFrame({"x": rng.normal(size=N), "n": np.arange(N), "town": rng.choice(["Bonn", "Ulm"], N)})
    frame.loc[::9, "x"] = np.nan
    return frame.assign(y=np.arange(N) % 3 * 0.5)


def write(frame: pd.DataFrame, place: Path) -> Path:
    if place.suffix == ".orc":
        frame.to_orc(place, index=False, engine_kwargs={"stripe_size": 1, "batch_size": 100})
    elif ".ndjson" in place.name:
        pl.from_pandas(frame).write_ndjson(place.with_suffix("") if place.suffix == ".gz" else place)
        if place.suffix == ".gz":
            place.write_bytes(gzip.compress(place.with_suffix("").read_bytes()))
    else:
        frame.to_json(place, orient="records", lines=True, double_precision=15)
    return place


def features(place: Path) -> HostArray:
    return np.asarray(open_store(place).group["X"][:])


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines_tables, "BLOCK_BYTES", 2000)


@pytest.mark.parametrize("ending", ["orc", "jsonl", "jsonl.gz", "ndjson", "ndjson.gz"])
def test_files_become_the_store_of_their_frame(tmp_path: Path, ending: str) -> None:
    frames = [frame_of(part) for part in (2, 10)]
    for part, frame in zip((2, 10), frames, strict=True):
        write(frame, tmp_path / f"part-{part}.{ending}")
    (tmp_path / "notes.txt").touch()
    settings: dict[str, Any] = {"target": "y", "shuffle": False, "task": "regression", "chunk_rows": 70}
    ingest(pd.concat(frames, ignore_index=True), tmp_path / "want", **settings)
    ingest(str(tmp_path / f"part-*.{ending}"), tmp_path / "found", **settings)
    want, found = open_store(tmp_path / "want").info, open_store(tmp_path / "found").info
    np.testing.assert_allclose(features(tmp_path / "found"), features(tmp_path / "want"), rtol=1e-6)
    assert (found.n_rows, found.feature_names) == (2 * N, want.feature_names)
    assert found.encoding is not None
    assert [(column.name, column.kind, column.categories) for column in found.encoding] == [
        (column.name, column.kind, column.categories) for column in want.encoding or ()
    ]


@pytest.mark.cluster
@pytest.mark.parametrize("ending", ["orc", "jsonl", "ndjson.gz"])
def test_workers_do_what_one_process_does(client2: Client, tmp_path: Path, ending: str) -> None:
    for part in (1, 2):
        write(frame_of(part), tmp_path / f"{part}.{ending}")
    rows, settings = str(tmp_path / f"*.{ending}"), {"target": "y", "task": "regression", "chunk_rows": 70}
    for name, client in (("one", None), ("two", client2)):
        ingest(rows, tmp_path / name, client=client, **settings)  # type: ignore[arg-type]
    assert open_store(tmp_path / "one").fingerprint() == open_store(tmp_path / "two").fingerprint()
    model = KernelRegressor("gaussian:1", basis=AllRows(), solver="direct", alpha=1e-3).fit(tmp_path / "one").model_
    assert score_rows(model, rows, ScoringPlace(client2))[0] == score_rows(model, rows, ScoringPlace())[0]
    for name, client in (("one", None), ("two", client2)):
        write_predictions(model, rows, tmp_path / f"{name}.parquet", client=client)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_an_orc_file_of_another_library(tmp_path: Path) -> None:
    ingest(BY_PYORC, tmp_path / "s", target="y", drop=["when"], shuffle=False)
    want = pa.orc.read_table(BY_PYORC).to_pandas()
    found = features(tmp_path / "s")
    names = open_store(tmp_path / "s").info.feature_names
    assert names == ("x", "n", "town=Bonn", "town=Graz", "town=Ulm", "day", "price", "on")
    np.testing.assert_allclose(found[:, 0], want["x"].fillna(want["x"].mean()), rtol=1e-5)
    days = (pd.to_datetime(want["day"]) - pd.Timestamp(0)).dt.days
    np.testing.assert_allclose(
        found[:, [1, 5, 6]], np.stack([want["n"], days, want["price"].astype(float)], 1), rtol=1e-6
    )
    assert (found[:, 4] == (want["town"] == "Ulm")).all()


@pytest.mark.parametrize("ending", ["orc", "jsonl"])
def test_a_fit_reads_them_where_they_lie(tmp_path: Path, ending: str) -> None:
    place = write(frame_of().drop(columns="town"), tmp_path / f"t.{ending}")
    settings: dict[str, Any] = {"kernel": "gaussian:1", "loss": "squared", "solver": "direct", "alpha": 1e-3}
    model = KernelRegressor(basis=AllRows(), device="cpu", **settings).fit(str(place), target="y")
    ingest(place, tmp_path / "s", target="y", task="regression", shuffle=False)
    other = KernelRegressor(basis=AllRows(), device="cpu", **settings).fit(str(tmp_path / "s"))
    np.testing.assert_allclose(model.predict(place), other.predict(place), atol=1e-5)
    assert model.score(str(place)) == pytest.approx(other.score(tmp_path / "s"), abs=1e-5)


@pytest.mark.parametrize("ending", ["orc", "jsonl", "ndjson.gz"])
def test_behind_urls(tmp_path: Path, objects: ObjectServer, ending: str) -> None:
    from obstore.fsspec import FsspecStore

    place = write(frame_of(), tmp_path / f"part-1.{ending}")
    system = FsspecStore("s3", client_options={"allow_http": True})  # type: ignore[call-overload]
    system.pipe_file(f"{objects.bucket}/as-{ending}/{place.name}", place.read_bytes())
    settings: dict[str, Any] = {"target": "y", "task": "regression", "shuffle": False}
    ingest(str(place), tmp_path / "local", **settings)
    ingest(objects.url(f"as-{ending}/part-?.{ending}"), tmp_path / "remote", **settings)
    assert open_store(tmp_path / "remote").info.checksums == open_store(tmp_path / "local").info.checksums


@pytest.mark.parametrize("ending", ["orc", "jsonl", "csv"])
def test_a_folder_stands_for_its_files(tmp_path: Path, objects: ObjectServer, ending: str) -> None:
    from obstore.fsspec import FsspecStore

    system = FsspecStore("s3", client_options={"allow_http": True})  # type: ignore[call-overload]
    (tmp_path / "sea" / "deep").mkdir(parents=True)
    for part, folder in ((1, "sea"), (2, "sea/deep")):
        place = tmp_path / folder / f"part-{part}.{ending}"
        frame_of(part).to_csv(place, index=False) if ending == "csv" else write(frame_of(part), place)
        system.pipe_file(f"{objects.bucket}/{ending}-{folder}/{place.name}", place.read_bytes())
    (tmp_path / "sea" / "_log.csv").touch()
    settings: dict[str, Any] = {"target": "y", "task": "regression", "shuffle": False}
    ingest(tmp_path / "sea", tmp_path / "found", **settings)
    ingest(
        [tmp_path / "sea" / "deep" / f"part-2.{ending}", tmp_path / "sea" / f"part-1.{ending}"],
        tmp_path / "want",
        **settings,
    )
    assert open_store(tmp_path / "found").info.checksums == open_store(tmp_path / "want").info.checksums
    ingest(objects.url(f"{ending}-sea"), tmp_path / "remote", **settings)
    assert open_store(tmp_path / "remote").info.n_rows == N * 2
    model = KernelRegressor("gaussian:1", "squared", AllRows(), solver="direct", alpha=1e-3, device="cpu")
    model.fit(tmp_path / "found")
    assert model.score(tmp_path / "sea") == pytest.approx(model.score(tmp_path / "found"))


def test_folders_without_one_kind_of_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t" / "day=1").mkdir(parents=True)
    with pytest.raises(DataError, match="is a folder without tables"):
        ingest(tmp_path / "t", tmp_path / "s", target="y")
    write(frame_of(), tmp_path / "t" / "day=1" / "a.jsonl")
    with pytest.raises(DataError, match=r"names of folders .* become columns for Parquet files only"):
        ingest(tmp_path / "t", tmp_path / "s", target="y")
    write(frame_of(), tmp_path / "t" / "b.orc")
    (tmp_path / "t" / "day=1" / "a.jsonl").rename(tmp_path / "t" / "a.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl and .*b\.orc are of different formats"):
        ingest(tmp_path / "t", tmp_path / "s", target="y")


def test_lines_may_lack_keys_and_mix_whole_numbers_and_fractions(tmp_path: Path) -> None:
    rows = [{"x": k if k % 2 else k / 4, "y": 0.5 * k} | ({"z": k} if k % 3 else {}) for k in range(200)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    ingest(tmp_path / "t.jsonl", tmp_path / "s", target="y", shuffle=False, missing="constant")
    want = np.array([[row["x"], row.get("z", 0)] for row in rows])
    np.testing.assert_allclose(features(tmp_path / "s"), want)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty; every line must be one JSON object"),
        ("\n\n", "is empty"),
        ("[1, 2]\n", r"row 0 of .*t\.jsonl"),
        ('{"x": 1, "y": 2}\n' * 150 + '{"x": "one", "y": 2}\n', "column 'x' .*number and string"),
        ('{"x": 1, "y": 2}\n' * 1500 + '{"x": "one", "y": 2}\n' * 9, "column 'x'"),
        ('{"x": 1, "y": 2}\n{"x": 1, "y"\n', r"row 1 of .* \(counted from 0\) cannot be parsed as JSON lines"),
        ('{"x": 1, "x": 2, "y": 1}\n', "the key 'x' twice"),
        ('{"x": {"a": 1}, "y": 1}\n', "column 'x' .*holds struct<a: int64> values"),
        ("{}\n", "has no columns"),
    ],
)
def test_lines_that_are_no_table_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(DataError, match=words):
        ingest(tmp_path / "t.jsonl", tmp_path / "s", target="y")
    assert not (tmp_path / "s").exists()


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = write(frame_of(), tmp_path / "t.orc").read_bytes()
    for content in (b"", b"no orc" * 20, whole[:-9], whole[:20] + b"\xff" * 800 + whole[820:]):
        (tmp_path / "t.orc").write_bytes(content)
        with pytest.raises(DaskkernError, match=r"t\.orc"):
            ingest(tmp_path / "t.orc", tmp_path / "s", target="y")
    packed = write(frame_of(), tmp_path / "t.jsonl.gz")
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"t\.jsonl\.gz cannot be read"):
        ingest(packed, tmp_path / "s", target="y")


def test_compressed_lines_are_no_groups_for_a_fit(tmp_path: Path) -> None:
    packed = write(frame_of(), tmp_path / "t.jsonl.gz")
    with pytest.raises(DaskkernError, match="read line by line"):
        fit_command.main([str(packed), "--target", "y", "--out", str(tmp_path / "m")], standalone_mode=False)
