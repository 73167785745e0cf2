"""Ingestion from lakes, by one process and by workers, to folders and URLs: always the same store."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from daskkern.cli.console import quieted
from daskkern.cli.main import main
from daskkern.cli.output.rows_progress import rows_progress, rows_state
from daskkern.data.ingest import ingest
from daskkern.data.ingest.pipeline import parallel
from daskkern.data.ingest.readers import lake_survey
from daskkern.data.storage.check import check_store
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.transactions.output_files import output_folder
from daskkern.errors import DataError, SpecError, StoreError
from tests.support.object_server import ObjectServer, reaching

DAYS, ROWS = 6, 400
SETTINGS: dict[str, Any] = {"target": "y", "chunk_rows": 200, "shuffle": False, "scale": "standard"}


def table_of(day: int) -> pa.Table:
    rng = np.random.default_rng(day)
    return pa.table(
        {
            "a": rng.normal(size=ROWS).astype(np.float32),
            "gaps": pa.array(rng.normal(size=ROWS), mask=rng.random(ROWS) < 0.2),
            "kind": pa.array(np.array(["u", "v", "w"])[rng.integers(0, 3, ROWS)], mask=rng.random(ROWS) < 0.1),
            "when": np.datetime64("2024-01-01", "us") + rng.integers(0, 10**12, ROWS).astype("m8[us]"),
            "y": np.array(["no", "yes"])[rng.integers(0, 2, ROWS)],
        }
    )


@pytest.fixture
def lake_folder(tmp_path: Path) -> Path:
    for day in range(DAYS):
        (tmp_path / "lake" / f"day={day}").mkdir(parents=True)
        pq.write_table(table_of(day), tmp_path / "lake" / f"day={day}" / "part-0.parquet", row_group_size=130)
    return tmp_path / "lake"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LEAST_BYTES", 4000)


@pytest.fixture
def sea(objects: ObjectServer, lake_folder: Path, request: pytest.FixtureRequest) -> str:
    """The lake on the object server."""
    from obstore.fsspec import FsspecStore

    system = FsspecStore("s3", client_options={"allow_http": True})  # type: ignore[call-overload]
    name = request.node.name.partition("[")[0]
    for path in lake_folder.rglob("*.parquet"):
        system.pipe_file(f"{objects.bucket}/{name}/{path.relative_to(lake_folder).as_posix()}", path.read_bytes())
    objects.faults.clear()
    return objects.url(name)


def assert_same(one: Store, other: Store) -> None:
    """Assert that two stores have the same rows, and statistics up to rounding."""
    for store in (one, other):
        store.verify()
    assert one.info.checksums == other.info.checksums
    for name in ("n_rows", "chunk_rows", "task", "classes", "class_counts", "feature_names"):
        assert getattr(one.info, name) == getattr(other.info, name)
    np.testing.assert_allclose(one.info.statistics.table(), other.info.statistics.table(), rtol=1e-9)
    for ours, theirs in zip(one.info.encoding or (), other.info.encoding or (), strict=True):
        assert (ours.name, ours.kind, ours.categories) == (theirs.name, theirs.kind, theirs.categories)
        assert ours.fill == theirs.fill or ours.fill == pytest.approx(theirs.fill, rel=1e-9)


def test_the_command_ingests_a_lake_behind_a_url(sea: str, tmp_path: Path, lake_folder: Path) -> None:
    command = ["ingest", sea, "--out", str(tmp_path / "s"), "--target", "y", "--columns", "a,gaps,day"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--where", "day >= 2 and kind = 'u'", "--chunk-rows", "50"])
    assert ended.value.code == 0
    info = open_store(tmp_path / "s").info
    kept = pa.concat_tables([table_of(day) for day in range(2, DAYS)]).filter(pa.compute.field("kind") == "u")
    assert (info.n_rows, info.feature_names, info.classes) == (kept.num_rows, ("a", "gaps", "day"), ("no", "yes"))
    X = StoreRows(open_store(tmp_path / "s")).read(0, info.n_rows).X
    gaps = kept["gaps"].to_numpy()
    assert info.encoding is not None
    assert info.encoding[1].fill == pytest.approx(np.nanmean(gaps))
    np.testing.assert_allclose(X[:, 1], np.where(np.isnan(gaps), info.encoding[1].fill, gaps), rtol=1e-6)
    ingest(
        lake_folder,
        tmp_path / "t",
        target="y",
        columns=["a", "gaps", "day"],
        where="day >= 2 and kind = 'u'",
        chunk_rows=50,
    )
    assert_same(open_store(tmp_path / "s"), open_store(tmp_path / "t"))


def test_dates_are_days_and_all_columns_get_a_mean(lake_folder: Path, tmp_path: Path) -> None:
    report = ingest(lake_folder, tmp_path / "s", **SETTINGS)
    info = open_store(tmp_path / "s").info
    assert info.feature_names == ("a", "gaps", "kind=missing", "kind=u", "kind=v", "kind=w", "when", "day")
    assert any(note == "dates became days since 1970-01-01: when" for note in report.notes)
    whole = pa.concat_tables([table_of(day) for day in range(DAYS)])
    X = open_store(tmp_path / "s").array("X")[:]
    days = whole["when"].to_numpy().astype("int64") / 86400e6
    np.testing.assert_allclose(X[:, 6], days, rtol=1e-7)
    assert info.encoding is not None
    assert info.encoding[0].fill == pytest.approx(whole["a"].to_numpy().astype(float).mean(), abs=1e-9)
    assert np.bincount(X[:, 2:6].argmax(axis=1)).tolist()[0] == whole["kind"].null_count


def test_nan_that_footers_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_survey, "BLOCK_ROWS", 10)
    values = np.arange(40.0)
    values[25] = np.nan
    pq.write_table(pa.table({"a": values, "t": [0, 1] * 20}), tmp_path / "d.parquet", row_group_size=40)
    report = ingest(tmp_path / "d.parquet", tmp_path / "s", target="t", shuffle=False)
    mean = float(np.nanmean(values))
    assert open_store(tmp_path / "s").array("X")[25, 0] == np.float32(mean)
    assert "1 missing number in 1 column was replaced (mean)" in report.notes
    with pytest.raises(DataError, match=r"row 25 of .* has nan"):
        ingest(tmp_path / "d.parquet", tmp_path / "t", target="t", missing="refuse")


def test_tables_in_memory_are_like_files(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    table = table_of(1)
    pq.write_table(table, tmp_path / "d.parquet")
    ingest(tmp_path / "d.parquet", tmp_path / "file", **SETTINGS)
    for name, frame in (("arrow", table), ("pandas", table.to_pandas()), ("polars", polars.from_arrow(table))):
        assert ingest(frame, tmp_path / name, columns=["a", "gaps", "kind", "when"], **SETTINGS).n_rows == ROWS
        assert_same(open_store(tmp_path / name), open_store(tmp_path / "file"))


@pytest.mark.long
@pytest.mark.usefixtures("small_parts")
def test_rows_go_straight_to_a_url_and_an_interrupted_run_goes_on(
    sea: str, objects: ObjectServer, lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = objects.url("straight.zarr"), []
    objects.faults.fail_every = 37

    def stop(done: int, total: int | None) -> None:
        seen.append(done)
        if done > ROWS:
            raise KeyboardInterrupt

    monkeypatch.setattr("daskkern.data.transactions.part_record.SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        ingest(sea, out, progress=stop, **SETTINGS)
    with pytest.raises(StoreError):
        open_store(out)
    again: list[int] = []
    ingest(sea, out, progress=lambda done, total: again.append(done), **SETTINGS)
    assert again[0] > ROWS
    assert again[0] == seen[-1]
    assert again[-1] == DAYS * ROWS
    assert check_store(out).is_whole
    monkeypatch.undo()
    for name, value in objects.environment().items():
        monkeypatch.setenv(name, value)
    ingest(lake_folder, tmp_path / "s", **SETTINGS)
    assert_same(open_store(out), open_store(tmp_path / "s"))


@pytest.fixture
def workers(client2: Client, objects: ObjectServer) -> Iterator[Client]:
    """Two workers that reach the object server."""
    with reaching(client2, objects) as client:
        yield client


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.usefixtures("small_parts")
def test_workers_write_to_a_folder_or_a_url(
    workers: Client, sea: str, objects: ObjectServer, lake_folder: Path, tmp_path: Path
) -> None:
    ingest(lake_folder, tmp_path / "one", **SETTINGS)
    objects.faults.fail_every = 37
    reported: list[int] = []
    ingest(sea, objects.url("workers.zarr"), client=workers, progress=lambda done, _: reported.append(done), **SETTINGS)
    assert_same(open_store(objects.url("workers.zarr")), open_store(tmp_path / "one"))
    assert reported[-1] == DAYS * ROWS
    assert len(reported) > 3


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("requested", [True, None])
def test_workers_shuffle_at_a_url_without_a_local_copy(
    requested: bool | None,
    workers: Client,
    sea: str,
    objects: ObjectServer,
    lake_folder: Path,
    tmp_path: Path,
    temporary_bytes: Callable[[], int],
) -> None:
    target = "day" if requested is None else "y"  # the days are in order
    settings = {**SETTINGS, "target": target, "shuffle": requested, "task": "classification", "seed": 4}
    assert ingest(lake_folder, tmp_path / "one", **settings).shuffled
    objects.faults.fail_every = 37
    out, held = objects.url(f"mixed-{requested}/s"), [0]
    report = ingest(sea, out, client=workers, progress=lambda *_: held.append(temporary_bytes()), **settings)
    assert report.shuffled
    assert max(held) == 0
    assert_same(open_store(out), open_store(tmp_path / "one"))
    assert all(name.startswith("s/") for name in output_folder(objects.url(f"mixed-{requested}")).names())


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_shuffle_does_not_ingest_again(
    workers: Client, sea: str, objects: ObjectServer, lake_folder: Path, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "shuffle": True, "client": workers}
    for error in (KeyboardInterrupt(), OSError("no more")):
        out, seen = objects.url(f"stopped-{type(error).__name__}/s"), []

        def stop(done: int, total: int | None, error: BaseException = error) -> None:
            if total == 2 * DAYS * ROWS:
                raise error

        with pytest.raises(type(error)):
            ingest(sea, out, progress=stop, **settings)
        with pytest.raises(StoreError):
            open_store(out)
        left = {name.partition("/")[0] for name in output_folder(out.removesuffix("/s")).names()}
        assert len(left) == (2 if isinstance(error, KeyboardInterrupt) else 0)
        ingest(sea, out, progress=lambda done, total, seen=seen: seen.append(total), **settings)
        assert (DAYS * ROWS in seen) == isinstance(error, OSError)
    ingest(lake_folder, tmp_path / "one", **{**settings, "client": None})
    assert_same(open_store(out), open_store(tmp_path / "one"))


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.usefixtures("small_parts")
def test_interrupted_workers_go_on_part_by_part(client2: Client, lake_folder: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def stop(done: int, total: int | None) -> None:
        seen.append(done)
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(lake_folder, tmp_path / "s", client=client2, progress=stop, **SETTINGS)
    assert not (tmp_path / "s").exists()
    again: list[int] = []
    ingest(lake_folder, tmp_path / "s", client=client2, progress=lambda done, _: again.append(done), **SETTINGS)
    assert again[0] == seen[-1] > 0
    ingest(lake_folder, tmp_path / "one", **SETTINGS)
    assert_same(open_store(tmp_path / "s"), open_store(tmp_path / "one"))
    assert sorted(os.listdir(tmp_path)) == ["lake", "one", "s"]


def test_a_pattern_of_folders_is_a_lake(lake_folder: Path, tmp_path: Path) -> None:
    assert ingest(f"{lake_folder}/day=[12]", tmp_path / "s", target="y").n_rows == 2 * ROWS
    assert "day" in (open_store(tmp_path / "s").info.feature_names or ())


def test_refusals(lake_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="are read from URLs, not npz"):
        ingest("s3://bucket/d.npz", tmp_path / "s", target="y")
    (tmp_path / "d.csv").write_text("a,y\n1,2\n")
    with pytest.raises(SpecError, match=r"--where was given, but it applies to parquet files only"):
        ingest(tmp_path / "d.csv", tmp_path / "s", target="y", where="a = 1")
    with pytest.raises(DataError, match=r"no row of .* passes the filter"):
        ingest(lake_folder, tmp_path / "s", target="y", where="day > 100")
    with pytest.raises(DataError, match="has no column 'gap'; did you mean 'gaps'"):
        ingest(lake_folder, tmp_path / "s", target="y", columns=["gap"])
    with pytest.raises(DataError, match=r"has no column 'day'; .* give the folder above 'day=\.\.\.'"):
        ingest(lake_folder / "day=1" / "part-0.parquet", tmp_path / "s", target="y", columns=["day"])
    pq.write_table(table_of(0).append_column("none", pa.nulls(ROWS)), tmp_path / "nulls.parquet")
    with pytest.raises(DataError, match=r"column 'none' of .* has no values at all; leave it out with --drop none"):
        ingest(tmp_path / "nulls.parquet", tmp_path / "s", target="y")


def test_progress_tells_the_rate_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows_state(500, 2000, 2.0, 400) == "500/2,000 rows  200 rows/s  7 s left"
    assert rows_state(500, None, 2.0, 400) == "500 rows  200 rows/s"
    monkeypatch.setattr("daskkern.cli.output.rows_progress.LINE_SECONDS", 0.0)
    with rows_progress("ingesting") as tell:
        tell(0, 100)
        tell(50, 100)
    assert "ingesting: 50/100 rows" in capsys.readouterr().err
    with quieted(everything=False), rows_progress("ingesting") as tell:
        tell(50, 100)
    assert capsys.readouterr().err == ""
