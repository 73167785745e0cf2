"""``daskkern systems``, ``daskkern compare`` and ``daskkern fit --system`` as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern.cli.main import main
from daskkern.solvers import Falkon
from daskkern.systems import SYSTEMS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0) + 2 * (X[:, 1] > 0))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0), *capfd.readouterr()


def test_the_systems_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "systems")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == len(SYSTEMS) + 1
    assert {line.split()[0] for line in lines[1:]} == set(SYSTEMS)
    assert all(row.reference in out for row in SYSTEMS.values())
    code, out, _ = run(capfd, "systems", "--json")
    assert [row["name"] for row in json.loads(out)] == list(SYSTEMS)


def test_systems_are_compared(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="install matplotlib to draw comparisons")
    words = ["compare", "d.zarr", "--test", "d.zarr", "--systems", "krls, elm", "--columns", 60, "--workers", 0]
    code, out, err = run(capfd, *words, "--budget", 30, "--out", "found", "--alpha", 1e-4)
    assert code == 0, err
    rows = [line.split() for line in out.splitlines() if line.startswith(("krls", "elm"))]
    assert [row[0] for row in rows] == ["krls", "elm"]
    assert all(row[-2:] == ["all", "epochs"] for row in rows)
    assert sorted(path.name for path in (folder / "found").iterdir()) == ["comparison.json", "comparison.png"]
    assert "krls ..." in err


def test_a_comparison_of_a_store_with_dollars_leaves_foreign_files(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="install matplotlib to draw comparisons")
    (folder / "d.zarr").rename(folder / r"$\frac$.zarr")
    words = ["compare", r"$\frac$.zarr", "--systems", "krls", "--workers", 0, "--out", "found"]
    (folder / "found").mkdir()
    (folder / "found" / "comparison.png").write_text("mine")
    code, _, err = run(capfd, *words)
    assert (code, "comparison.png exists and is not a picture of daskkern" in err) == (1, True)
    (folder / "found" / "comparison.png").unlink()
    for _ in range(2):
        code, _, err = run(capfd, *words)
        assert code == 0, err


def test_an_interrupted_comparison_shows_what_it_has_and_exits_with_130(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Falkon, "step", press)
    words = ["compare", "d.zarr", "--columns", 40, "--workers", 0, "--systems"]
    code, out, err = run(capfd, *words, "elm,falkon,krls")
    assert code == 130
    assert [line.split()[-1] for line in out.splitlines() if line.startswith(("elm", "krls", "falkon"))][1:] == [
        "interrupted",
        "run",  # "not run"
    ]
    assert err.splitlines()[-1].startswith("daskkern: error: interrupted; the results so far are above")
    code, _, err = run(capfd, *words, "falkon,elm")  # there is nothing to show
    assert (code, err.splitlines()[-1]) == (130, "daskkern: error: interrupted; nothing was written")


def test_ctrl_c_while_a_module_is_imported_is_an_interrupt(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object, **of: object) -> None:  # as Python wraps what is raised while a class is made
        raise RuntimeError("Error calling __set_name__ on 'Field' instance") from KeyboardInterrupt()

    monkeypatch.setattr("daskkern.cli.systems.compare", press)
    code, _, err = run(capfd, "compare", "d.zarr", "--columns", 40, "--workers", 0, "--systems", "elm,falkon")
    assert (code, err.splitlines()[-1]) == (130, "daskkern: error: interrupted; nothing was written")


def test_fewer_landmarks_than_asked_are_said(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    why = "(landmarks=100,000,000, but there are 300 training rows)"
    words = ["d.zarr", "--landmarks", 100_000_000, "--kernel", "gaussian:2", "--workers", 0]
    code, out, err = run(capfd, "plan", *words)
    assert code == 0, err
    assert out.startswith(f"landmarks: 300 {why}\n")
    code, out, err = run(capfd, "fit", *words, "--epochs", 1, "--out", "m.zarr")
    assert code == 0, err
    assert f"300 points {why}" in err
    assert "landmarks=" not in run(capfd, "plan", "d.zarr", "--landmarks", 300, "--workers", 0)[1]


def test_a_sweep_says_how_to_go_on(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "d.zarr", "--landmarks", 40, "--length-scales", "1,4", "--alphas", "1e-4,1", "--workers", 0]
    code, out, err = run(capfd, *words)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[1].startswith("4 models of 40 landmarks in ")
    assert len(lines) == 8
    assert lines[-1].startswith("daskkern fit d.zarr --kernel gaussian:")
    code, _, err = run(capfd, *lines[-1].split()[1:-1], "m.zarr", "--workers", 0)
    assert code == 0, err


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["compare", "d.zarr", "--systems", "nix"], 2, "system 'nix' is unknown"),
        (["compare", "d.zarr", "--budget", "-1"], 2, "give a positive number of seconds"),
        (["compare", "no.zarr", "--workers", "0"], 1, "no.zarr"),
        (["sweep", "d.zarr", "--landmarks", "0"], 2, "got 0 landmarks"),
        (["fit", "d.zarr", "--out", "m", "--basis", "nystrom_features", "--landmarks", "all"], 2, "whole number with"),
        (
            ["fit", "d.zarr", "--out", "m", "--system", "pegasos", "--selector", "uniform"],
            2,
            "got --selector with",
        ),
        (["sweep", "d.zarr", "--alphas", "x"], 2, "write numbers with commas"),
        (["sweep", "d.zarr", "--kernel", "linear"], 2, "no length scale to search"),
        (["fit", "d.zarr", "--out", "m", "--system", "nix"], 2, "system 'nix' is unknown"),
        (["fit", "d.zarr", "--out", "m", "--system", "krls", "--landmarks", "9"], 2, "whose basis is all rows"),
        (["fit", "d.zarr", "--out", "m", "--basis", "nix"], 2, "got --basis 'nix'; choose one of landmarks"),
        (["fit", "d.zarr", "--out", "m", "--basis", "linear", "--landmarks", "9"], 2, "takes no number"),
        (["fit", "d.zarr", "--out", "m", "--features", "9", "--landmarks", "9"], 2, "with the basis random_features"),
        (["fit", "d.zarr", "--out", "m", "--features", "10", "--feature-kind", "nix"], 2, "kind 'nix'"),
        (["fit", "d.zarr", "--out", "m", "--max-seconds", "0"], 2, "expected a positive number of seconds"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: list[str], code: int, sentence: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found, _, err = run(capfd, *words)
    assert found == code
    assert sentence in err
    assert err.count("\n") == 1


def test_what_a_stopped_fit_leaves_can_be_scored(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--system", "sdca", "--max-seconds", "0.0001", "--workers", 0]
    code, out, err = run(capfd, "fit", "d.zarr", "--out", "m.zarr", *words)
    assert code == 0, err
    assert "the time is over: the model so far is in m.zarr" in out
    assert run(capfd, "score", "m.zarr", "d.zarr")[0] == 0


def test_a_plan_of_small_batches_is_one_of_them(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("norma", "r_sdca"):
        code, out, err = run(capfd, "plan", "d.zarr", "--system", name, "--workers", 0)
        assert code == 0, err
        assert "batches of 128 rows" in out


def test_a_failing_system_leaves_the_others_alone(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise FloatingPointError("by accident")

    monkeypatch.setattr("daskkern.solvers.kernel_ridge.askotch.ASkotch.step", fails)
    words = ["--systems", "askotch,krls", "--workers", 0, "--test", "d.zarr"]
    code, out, err = run(capfd, "compare", "d.zarr", *words)
    assert code == 0, err
    assert "FloatingPointError: by accident" in out
    assert next(line for line in out.splitlines() if line.startswith("krls")).endswith("all epochs")


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "words",
    [
        ["--system", "krls", "--alpha", "0.001"],
        ["--system", "saga", "--set", "solver.tol=0", "--set", "solver.steps=line_search"],
        ["--system", "asset", "--landmarks", "60", "--selector", "k_means"],
        ["--system", "krls", "--solver", "pcg", "--alpha", "0.001"],
        ["--basis", "doubly_stochastic", "--solver", "doubly_sgd", "--features", "8", "--alpha", "0.01"],
        ["--system", "falkon", "--landmarks", "50", "--epochs", "10"],
        ["--basis", "linear", "--solver", "sgd", "--batch-size", "8"],
        ["--features", "60", "--solver", "sgd", "--kernel", "gaussian:2", "--feature-kind", "orthogonal"],
        ["--basis", "nystrom_features", "--landmarks", "50", "--solver", "direct", "--loss", "squared"],
        ["--system", "locally_linear_svm", "--landmarks", "12", "--nearest", "4"],
    ],
    ids=["krls", "saga", "asset", "pcg", "doubly", "falkon", "linear", "features", "nystrom", "anchors"],
)
def test_fitted_scored_and_planned(words: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "plan", "d.zarr", *words, "--workers", 0)
    assert code == 0, err
    code, _, err = run(capfd, "fit", "d.zarr", "--out", "m.zarr", *words, "--workers", 0)
    assert code == 0, err
    code, out, err = run(capfd, "score", "m.zarr", "d.zarr", "--json")
    assert code == 0, err
    assert json.loads(out)["error"] < 0.25
