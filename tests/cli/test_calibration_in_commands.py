"""Calibration at the command line: fit, info, score and report."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import make_moons

import daskkern
from daskkern.cli.main import cli
from daskkern.cli.options.fit_request import FitRequest
from daskkern.errors import SpecError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("calibration")
    X, y = make_moons(400, noise=0.3, random_state=0)
    np.savez(place / "moons.npz", X=X, y=y)
    _run("ingest", place / "moons.npz", "--out", place / "s")
    return place


def _run(*words: object) -> str:
    result = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.long
def test_fit_info_score_and_report_say_how_well_it_is_calibrated(folder: Path) -> None:
    fit = [
        "fit",
        folder / "s",
        "--workers",
        0,
        "--kernel",
        "gaussian:0.5",
        "--epochs",
        2,
        "--device",
        "cpu",
        "--overwrite",
    ]
    assert "calibrated on 400 rows: approximate leave-one-out" in _run(*fit, "--out", folder / "m")
    assert "calibrated on 80 rows: rows that were set aside" in _run(
        *fit, "--out", folder / "share", "--calibrate", 0.2
    )
    assert "calibrated" not in _run(*fit, "--out", folder / "none", "--calibrate", "none")
    text = _run("info", folder / "m")
    assert "on these rows: log loss" in text
    assert "a 90% set has the labels with: a probability of at least" in text
    assert json.loads(_run("info", folder / "m", "--json"))["loss"] == "squared_hinge"
    assert "calibration error" in _run("score", folder / "m", folder / "s")
    assert "calibration error" not in _run("score", folder / "none", folder / "s")
    pytest.importorskip("matplotlib")
    _run("report", folder / "m", "--test", folder / "s", "--out", folder / "report.html")
    page = (folder / "report.html").read_text()
    for words in ("calibration error", "Can the probabilities be trusted?", "temperature of the scores"):
        assert words in page
    assert daskkern.load(folder / "m").has_probabilities


def test_other_values_are_refused() -> None:
    with pytest.raises(SpecError, match="give auto, none, or a share"):
        FitRequest({"calibrate": "some"}).settings("classification", 100)
    with pytest.raises(SpecError, match="a share of the rows between 0 and 1"):
        FitRequest({"calibrate": 2}).settings("classification", 100)
