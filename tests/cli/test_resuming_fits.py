"""``daskkern fit`` is interrupted, and goes on with --resume."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern.cli.main import main
from tests.support.processes import read_until, started

pytestmark = pytest.mark.timeout(180)

WORDS = ["fit", "d.zarr", "--kernel", "gaussian:4", "--landmarks", "200", "--set", "batch_size=50"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0) + 2 * (X[:, 1] > 0))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Run the command line and return its exit status and all that it printed."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out + err


def interrupted(folder: Path, fit: list[object], how: int) -> None:
    """Start a fit in a process of its own and send it a signal in its third epoch."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started([sys.executable, "-m", "daskkern", *fit], cwd=folder, **pipes) as process:
        seen = read_until(process, "epoch   2/")
        process.send_signal(how)
        reported, rest = process.communicate(timeout=60)
    assert process.returncode == 130, seen + rest
    assert "interrupted: the model so far is in" in reported
    assert "daskkern: error: interrupted; continue with --resume: the progress is in" in rest


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("there", [False, True], ids=["here", "on a cluster"])
def test_an_interrupted_fit_goes_on_to_the_same_bits(
    how: int, there: bool, cluster2: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--scheduler", cluster2] if there else ["--workers", 0]
    words = [*WORDS, "--epochs", 25, *where]
    fit = [*words, "--out", "m.zarr"]
    interrupted(folder, fit, how)
    assert (folder / "m.zarr.checkpoint").is_dir()
    code, said = run(capfd, *fit)
    assert code == 1
    assert "continue from it with --resume" in said
    code, said = run(capfd, *fit, "--resume", "--alpha", 0.5)
    assert code == 1
    assert "settings alpha was 'auto' and is 0.5" in said
    code, said = run(capfd, *fit, "--resume")
    assert code == 0, said
    assert "going on after batch" in said
    assert not (folder / "m.zarr.checkpoint").exists()
    code, said = run(capfd, *words, "--out", "whole.zarr")
    assert code == 0, said
    resumed, whole = (daskkern.load(name) for name in ("m.zarr", "whole.zarr"))
    X = np.random.default_rng(1).standard_normal((50, 20))
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))


@pytest.mark.long
def test_resume_without_a_checkpoint_begins(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = run(capfd, *WORDS, "--epochs", 1, "--out", "m.zarr", "--workers", 0, "--resume")
    assert code == 0, said
    assert "going on" not in said


@pytest.mark.repeated
def test_a_named_checkpoint_stays_and_takes_more_epochs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fit = [*WORDS, "--out", "m.zarr", "--workers", 0, "--checkpoint", "c"]
    assert run(capfd, *fit, "--epochs", 2)[0] == 0
    assert (folder / "c").is_dir()
    assert run(capfd, *fit, "--epochs", 2)[0] == 1
    code, said = run(capfd, *fit, "--epochs", 6, "--resume")
    assert code == 0, said
    assert "going on after batch 0 of epoch 3" in said
    assert run(capfd, *fit, "--epochs", 1, "--overwrite")[0] == 0


def test_what_is_no_checkpoint_is_not_touched(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "c").mkdir()
    (folder / "c" / "mine").write_text("kept")
    code, said = run(capfd, *WORDS, "--out", "m.zarr", "--workers", 0, "--resume", "--overwrite")
    assert code != 0
    assert "got both --resume and --overwrite" in said
    for extra in ([], ["--resume"], ["--overwrite"]):
        code, said = run(capfd, *WORDS, "--out", "m.zarr", "--workers", 0, "--checkpoint", "c", *extra)
        assert code == 1
        assert "is not a checkpoint; choose another place" in said
    assert (folder / "c" / "mine").read_text() == "kept"
    assert not (folder / "m.zarr").exists()


@pytest.mark.long
def test_a_model_is_replaced_only_when_asked(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fit = [*WORDS, "--out", "m.zarr", "--workers", 0, "--epochs"]
    assert run(capfd, *fit, 1)[0] == 0
    first = daskkern.load("m.zarr").coef
    for words in (fit, [*fit[:1], "absent.zarr", *fit[2:]]):  # before anything else is looked at
        code, said = run(capfd, *words, 2)
        assert code == 1
        sentence = f"{folder / 'm.zarr'} exists; choose another name, or replace it with --overwrite"
        assert said == f"daskkern: error: {sentence}\n"
    code, said = run(capfd, *fit, 2, "--resume")  # there is nothing to go on from
    assert (code, "exists; choose another name" in said) == (1, True)
    np.testing.assert_array_equal(daskkern.load("m.zarr").coef, first)
    assert run(capfd, *fit, 2, "--overwrite")[0] == 0
    assert len(daskkern.load("m.zarr").provenance["history"]) == 2


def test_a_fit_without_time_for_a_single_commit_begins_anew(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fit = [*WORDS, "--epochs", 2, "--workers", 0, "--out", "m.zarr", "--checkpoint", "c"]
    assert run(capfd, *fit, "--max-seconds", 1e-6)[0] == 0
    code, said = run(capfd, *fit)
    assert (code, "m.zarr exists; choose another name" in said) == (1, True)
    code, said = run(capfd, *fit, "--resume")
    assert code == 0, said
    assert daskkern.load(folder / "m.zarr").provenance["reason"] == "max_epochs"
