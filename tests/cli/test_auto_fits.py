"""``daskkern fit --auto``."""

import json
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern.cli.console import run
from daskkern.cli.main import cli
from daskkern.model_selection import trials_of
from tests.support.searches import classes_by_one_feature


def _run(*words: object) -> int:
    return run(lambda: cli.main([str(word) for word in words], standalone_mode=False), debug=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    X, y = classes_by_one_feature(200)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    daskkern.ingest(str(tmp_path / "rows.npz"), tmp_path / "rows.zarr")
    return tmp_path / "rows.zarr"


@pytest.mark.long
def test_a_search_prints_its_trials_and_the_model_keeps_them(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, log = tmp_path / "model.zarr", tmp_path / "log.jsonl"
    words = ("fit", store, "--out", out, "--auto", "--max-seconds", "100000", "--workers", "0", "--log-file", log)
    assert _run(*words) == 0
    printed = capsys.readouterr().out
    trials = trials_of(daskkern.load(out))
    assert trials is not None
    assert trials.note in printed
    assert all(row.candidate in printed for row in trials)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event.get("stage") for event in events].count("trial") == len(trials)
    assert not (tmp_path / "model.zarr.checkpoint").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kernel", "gaussian:2"), "--auto with kernel"),
        (("--leaf-rows", "100"), "--auto with leaf_rows"),
        (("--set", "solver.window=3"), "--auto with solver.window"),
        (("--detach",), "--auto with --detach"),
        (("--max-seconds", "-3"), "max_seconds=-3"),
    ],
    ids=str,
)
def test_options_that_a_search_chooses_are_refused(
    store: Path, tmp_path: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("fit", store, "--out", tmp_path / "model.zarr", "--auto", "--workers", "0", *words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "model.zarr").exists()
