"""``info``, ``check``, ``shuffle`` and the splits of ``ingest`` on the command line."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from daskkern.cli import info
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Rows sorted by label."""
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cat"], [500, 300, 200])
    np.savez(tmp_path / "d.npz", X=rng.normal(size=(1000, 4)), y=y)
    return tmp_path / "d.npz"


@pytest.fixture
def store(run: Run, source: Path, tmp_path: Path) -> Path:
    code, out, err = run("ingest", source, "--out", tmp_path / "s", "--chunk-rows", 100)
    assert code == 0, err
    assert "target is sorted: rows are shuffled (--no-shuffle keeps the order)" in out
    return tmp_path / "s"


def test_ingest_splits_in_three_by_class(run: Run, source: Path, tmp_path: Path) -> None:
    code, out, err = run(
        "ingest", source, "--out", tmp_path / "s", "--split", 0.2, "--out-test", tmp_path / "t",
        "--split-validation", 0.1, "--out-validation", tmp_path / "v", "--no-shuffle",
    )  # fmt: skip
    assert code == 0, err
    assert "200 rows" in out
    assert "100 rows" in out
    counts = [open_store(tmp_path / name).info.class_counts for name in "stv"]
    assert counts == [(350, 210, 140), (100, 60, 40), (50, 30, 20)]
    assert "sorted" not in out


def test_no_shuffle_keeps_the_order(run: Run, source: Path, tmp_path: Path) -> None:
    code, out, _ = run("ingest", source, "--out", tmp_path / "s", "--chunk-rows", 100, "--no-shuffle")
    assert code == 0
    assert "sorted" not in out
    rows = StoreRows(open_store(tmp_path / "s"))
    y = rows.read(0, 1000).y
    assert y is not None
    assert (np.diff(y) >= 0).all()


def test_info_as_lines_and_as_json(run: Run, store: Path) -> None:
    code, out, _ = run("info", store)
    assert code == 0
    for words in (
        "rows: 1,000 of 4 features (float32)", "classification, 3 classes", "'ant'  rows 500  share 50.00%",
        "scaling: none", "not sorted by target", "made by: daskkern", "d.npz", "shuffled with seed: 0",
    ):  # fmt: skip
        assert words in out
    assert "\x1b" not in out
    code, out, _ = run("info", store, "--json")
    found = json.loads(out)
    assert found["class_counts"] == [500, 300, 200]
    assert found["n_bytes"] == 1000 * (4 * 4 + 8)


def test_info_on_a_terminal_draws_tables(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "OUT", Console(force_terminal=True))
    code, out, _ = run("info", store)
    assert code == 0
    assert "┃" in out


def test_check_names_the_bad_chunk_and_fails(run: Run, store: Path) -> None:
    code, out, _ = run("check", store)
    assert code == 0
    assert "whole: 20 chunks, 24,000 bytes read in" in out
    for number in (3, 7):
        chunk = store / "X" / "c" / str(number) / "0"
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"!")
    code, out, err = run("check", store)
    assert code == 1
    assert "is damaged; the first finding: chunk X/c/3/0 was changed" in err
    assert "chunk X/c/3/0 was changed" in out
    assert "chunk X/c/7/0 was changed" in out
    code, out, _ = run("check", store, "--most", 1)
    assert "and 1 more" in out
    code, out, _ = run("check", store, "--json")
    assert code == 1
    found = json.loads(out)
    assert found["whole"] is False
    assert [finding["key"] for finding in found["findings"]] == ["X/c/3/0", "X/c/7/0"]


def test_shuffle_writes_another_order(run: Run, store: Path, tmp_path: Path) -> None:
    code, out, err = run("shuffle", store, "--out", tmp_path / "t", "--seed", 4, "--memory", "1MB")
    assert code == 0, err
    assert "1,000 rows in a random order (seed 4)" in out
    assert open_store(tmp_path / "t").info.class_counts == (500, 300, 200)
    assert run("shuffle", store, "--out", tmp_path / "t")[0] == 1
    assert run("shuffle", store, "--out", store, "--overwrite")[0] == 0
    assert run("shuffle", store, "--out", tmp_path / "u", "--memory", "much")[0] == 2


@pytest.mark.cluster
def test_workers_of_a_cluster_shuffle_in_the_same_order(run: Run, store: Path, tmp_path: Path, cluster2: str) -> None:
    assert run("shuffle", store, "--out", tmp_path / "alone")[0] == 0
    code, out, err = run("shuffle", store, "--out", tmp_path / "together", "--scheduler", cluster2)
    assert code == 0, err
    assert "1,000 rows in a random order (seed 0)" in out
    alone, together = (open_store(tmp_path / name).info.checksums for name in ("alone", "together"))
    assert alone == together
    code, out, err = run("check", tmp_path / "together", "--scheduler", cluster2, "--json")
    assert code == 0, err
    assert json.loads(out)["whole"] is True
    code, _, err = run("check", tmp_path / "together", "--scheduler", cluster2, "--workers", 1)
    assert code == 2
    assert "got both --workers and a running cluster" in err


@pytest.mark.parametrize("command", ["info", "check"])
def test_what_is_no_store_is_one_line(run: Run, tmp_path: Path, command: str) -> None:
    code, _, err = run(command, tmp_path / "none")
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    assert "there is no store" in err


def test_a_fit_on_sorted_rows_says_so(
    run: Run, source: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskkern.data.shuffle.detection.DEFAULT_WINDOW_BYTES", 4000)
    assert run("ingest", source, "--out", tmp_path / "u", "--chunk-rows", 100, "--no-shuffle")[0] == 0
    options = ("--kernel", "gaussian:2", "--landmarks", 20, "--epochs", 1, "--workers", 0, "--out", tmp_path / "m")
    code, out, err = run("fit", tmp_path / "u", *options)
    assert code == 0, err
    assert sum("note: the target is sorted" in line for line in out.splitlines()) == 1
    assert "target is sorted" not in run("fit", store, *options)[1]


def test_info_shows_how_columns_became_features(run: Run, tmp_path: Path) -> None:
    days = [f"2024-01-{day:02d}" for day in range(1, 21)] * 3
    kinds = [None, *(["red", "blue", "green"] * 20)[1:]]
    numbers = np.where(np.arange(60) == 4, np.nan, np.arange(60) / 7)
    table = pa.table({"day": days, "kind": kinds, "a": numbers, "y": np.arange(60) / 60})
    pq.write_table(table, tmp_path / "t.parquet")
    source = ("ingest", tmp_path / "t.parquet", "--target", "y")
    assert run(*source, "--scale", "standard", "--out", tmp_path / "s.zarr")[0] == 0
    assert run(*source, "--categorical", "codes", "--drop", "day", "--out", tmp_path / "codes.zarr")[0] == 0
    code, out, _ = run("info", tmp_path / "s.zarr")
    assert code == 0
    for words in (
        "encoding: 1 column of numbers, 1 of dates and 1 of categories",
        "  day  is days since 1970-01-01  missing 19732.5",
        "  kind  is one feature for each of 4 categories: blue, green, missing, red  missing missing",
        "  a  is a number  missing 4.27603",
    ):
        assert words in out
    assert re.search(r"  a  mean 4\.\d+ .*  shift 4\.\d+  scale 2\.\d+", out)
    found = json.loads(run("info", tmp_path / "s.zarr", "--json")[1])
    assert found["encoding"][1] == {
        "name": "kind", "kind": "onehot", "categories": ["blue", "green", "missing", "red"], "fill": "missing",
        "is_date": False,
    }  # fmt: skip
    assert found["columns"][0]["shift"] == pytest.approx(found["columns"][0]["mean"])
    out = run("info", tmp_path / "codes.zarr")[1]
    assert "kind  is a code of 4 categories: blue, green, missing, red" in out
    assert " shift " not in out
    assert run("fit", tmp_path / "s.zarr", "--out", tmp_path / "m.zarr", "--epochs", 1)[0] == 0
    assert "encoding: 1 column of numbers, 1 of dates and 1 of categories" in run("info", tmp_path / "m.zarr")[1]
