"""Rows that spread widely against the length scale: the plan and the fit say in which arithmetic they are met."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear, RandomFeatures
from daskkern.cli.main import cli
from daskkern.data.schema.schema import Scaling
from daskkern.events import Event, StageFinished
from daskkern.kernels import Gaussian, Laplacian, arithmetic_note
from daskkern.losses import Squared
from daskkern.solvers import SGD, Direct, EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.kernel_precision import expected_arithmetic
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

X = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)
WIDE = X * np.float32(1e4)
Y = X[:, :1] + 1.0
SAID = "float64 distances: rows spread over "


def _source(rows: np.ndarray) -> ArraySource:
    return ArraySource(rows, Y, None, SourceInfo(*rows.shape, "regression", None, Scaling(), None, 1, True))


def _settings(basis: BasisSpec, solver: Solver[object], **others: object) -> FitSettings:
    return FitSettings(Laplacian(10.0), Squared(), basis, solver, 1e-3, max_epochs=1, device="cpu", **others)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("basis", "solver"),
    [
        (Landmarks(50), EigenPro()),
        (AllRows(), EigenPro()),
        (Landmarks(50), NystromSGD()),
        (Landmarks(50), Falkon()),
        (AllRows(), Direct()),
    ],
    ids=["landmarks", "all rows", "nystrom", "falkon", "direct"],
)
def test_a_fit_says_that_its_distances_are_float64_and_why(basis: BasisSpec, solver: Solver[object]) -> None:
    for rows, times in ((WIDE, 1), (X, 0)):
        said: list[Event] = []
        fit(_source(rows), _settings(basis, solver), listener=said.append)
        lines = [event.detail for event in said if isinstance(event, StageFinished) and event.stage == "arithmetic"]
        assert len(lines) == times
        assert all(line.startswith(SAID) and "float32 values would be wrong by up to" in line for line in lines)


def test_a_plan_expects_what_the_fit_finds() -> None:
    settings = _settings(Landmarks(50), EigenPro())
    wide, (scale, note) = expected_arithmetic(_source(WIDE), settings)
    assert wide
    assert scale.startswith("length scale: the median kernel value of two rows is 0 (length scale 10, median distance ")
    assert note.startswith(f"kernel arithmetic: {SAID}")
    assert "(length scale 10, median distance 3.35e+04)" in note
    assert expected_arithmetic(_source(X), settings) == (False, ())
    for basis in (Linear(), RandomFeatures(20)):
        assert expected_arithmetic(_source(WIDE), _settings(basis, SGD())) == (False, ())


def test_a_precision_that_was_asked_is_kept_and_the_error_told() -> None:
    wide, (_, note) = expected_arithmetic(_source(WIDE), _settings(Landmarks(50), EigenPro(), precision="tf32"))
    assert not wide
    assert note.startswith("kernel arithmetic: rows rounded to tf32, as asked, though rows spread over ")
    assert expected_arithmetic(_source(WIDE), _settings(Landmarks(50), EigenPro(), precision="float32"))[0]


def test_rows_that_float64_cannot_hold_either_are_told() -> None:
    assert "even float64 values may be wrong by up to" in arithmetic_note(Laplacian(1e-3), WIDE)
    assert "even float64 values may be wrong" in arithmetic_note(Laplacian(1e-9), WIDE.astype(np.float64))
    assert arithmetic_note(Gaussian(1.0), WIDE.astype(np.float64)) == ""


def test_the_plan_command_prints_the_arithmetic(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=WIDE, y=Y[:, 0])
    run = CliRunner()
    made = run.invoke(cli, ["ingest", str(tmp_path / "rows.npz"), "--out", str(tmp_path / "s.zarr"), "--scale", "none"])
    assert made.exit_code == 0, made.output
    words = ["plan", str(tmp_path / "s.zarr"), "--landmarks", "50", "--workers", "0", "--kernel"]
    planned = run.invoke(cli, [*words, "laplacian:10"])
    assert planned.exit_code == 0, planned.output
    assert f"kernel arithmetic: {SAID}" in planned.output
    assert "kernel arithmetic" not in run.invoke(cli, [*words, "laplacian:100000"]).output
