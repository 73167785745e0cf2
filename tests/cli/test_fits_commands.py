"""``daskkern fit --detach``, ``status``, ``watch``, ``logs`` and ``cancel``, as one who types them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern.cli.main import main
from daskkern.training.checkpoints.checkpoint import is_checkpoint
from daskkern.training.jobs.handle import list_fits
from tests.support.processes import read_until, started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

WORDS = ["fit", "d.zarr", "--kernel", "gaussian:4", "--landmarks", "100", "--set", "batch_size=50"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0).astype(int))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Terminal:
    """Runs the command line on one scheduler."""

    def __init__(self, scheduler: str, capfd: pytest.CaptureFixture[str]) -> None:
        self._scheduler, self._capfd = scheduler, capfd

    def __call__(self, *words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*(str(word) for word in words), "--scheduler", self._scheduler])
        out, err = self._capfd.readouterr()
        return int(ended.value.code or 0), out, err

    def submit(self, out: str, *words: object) -> str:
        code, said, error = self(*WORDS, "--out", out, "--detach", *words)
        assert code == 0, error
        line = next(line for line in said.splitlines() if "runs detached" in line)
        return line.split()[1]


@pytest.fixture
def terminal(cluster2: str, client2: Client, folder: Path, capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(cluster2, capfd)


@pytest.mark.long
def test_a_fit_is_submitted_followed_and_read(terminal: Terminal, folder: Path) -> None:
    fit = terminal.submit("m.zarr", "--epochs", 3, "--name", "flights")
    code, said, err = terminal("watch", fit)
    assert code == 0
    assert "epoch   3/3" in err
    assert f"fit          {fit} (flights), submitted by " in said
    assert "state        finished" in said
    assert f"model        {folder / 'm.zarr'}" in said
    assert daskkern.load(folder / "m.zarr").predict(np.zeros((1, 8))).shape == (1,)
    code, said, _ = terminal("logs", fit[:8])
    assert code == 0
    for words in (
        "submitted by",
        "1,000 rows x 8 features, 100 columns",
        "epoch   1/3",
        "ended (max_epochs)",
        "finished",
    ):
        assert words in said
    code, said, _ = terminal("status", fit, "--json")
    status = json.loads(said)
    assert (status["fit"], status["name"], status["state"], status["epoch"]) == (fit, "flights", "finished", 3)
    assert status["validation_score"] is None
    code, said, _ = terminal("status")
    line = next(line for line in said.splitlines() if line.startswith(fit))
    assert line.split()[1:5] == ["flights", "finished", "epoch", "3/3,"]


def test_a_fit_whose_command_is_ended_at_once_is_cancelled(
    terminal: Terminal, cluster2: str, client2: Client, folder: Path
) -> None:
    words = [*WORDS, "--out", "m.zarr", "--epochs", "100000", "--scheduler", cluster2]
    with started([sys.executable, "-m", "daskkern", *words], cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        read_until(process, "epoch   3/")
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    kept = is_checkpoint(str(folder / "m.zarr.checkpoint"))
    assert kept == ("the progress is in" in err)
    assert kept or not (folder / "m.zarr.checkpoint").exists()
    state = list_fits(client2)[-1].state
    assert state == "cancelled" if not (folder / "m.zarr").exists() else state == "interrupted"


@pytest.mark.long
def test_a_fit_is_cancelled_and_resumed(terminal: Terminal, folder: Path) -> None:
    fit = terminal.submit("m.zarr", "--epochs", 5000)
    while json.loads(terminal("status", fit, "--json")[1])["epoch"] < 2:
        time.sleep(0.1)
    code, said, _ = terminal("cancel", fit)
    assert (code, "will end; see daskkern status" in said) == (0, True)
    code, said, _ = terminal("watch", fit)
    assert (code, "state        interrupted" in said) == (0, True)
    code, _, err = terminal("cancel", fit)
    assert (code, err) == (1, f"daskkern: error: fit {fit} has already ended: interrupted\n")
    done = len(daskkern.load(folder / "m.zarr").provenance["history"])
    assert (folder / "m.zarr.checkpoint").exists()
    again = terminal.submit("m.zarr", "--epochs", done + 1, "--resume")
    assert terminal("watch", again)[0] == 0
    assert "going on after batch" in terminal("logs", again)[1]
    assert not (folder / "m.zarr.checkpoint").exists()


def test_a_fit_that_fails_is_told(terminal: Terminal) -> None:
    fit = terminal.submit("m.zarr", "--memory", "1kB")
    code, _, err = terminal("watch", fit)
    assert code == 1
    assert f"fit {fit} ended as failed: " in err
    assert "budget" in err
    assert "failed: " in terminal("logs", fit)[1]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["status", "nix"], 1, "no fit 'nix' is known at"),
        (["watch", "nix"], 1, "no fit 'nix' is known at"),
        ([*WORDS, "--out", "m.zarr", "--share"], 2, "got --share without --memory"),
        pytest.param(
            [*WORDS, "--out", "m.zarr", "--ranks", "7"], 1, "got n_ranks=7 for 2 workers", marks=pytest.mark.repeated
        ),  # waits 10 s for the others
    ],
    ids=["status", "watch", "share", "ranks"],
)
def test_what_is_wrong_is_said_in_one_line(words: list[str], code: int, sentence: str, terminal: Terminal) -> None:
    status, _, err = terminal(*words)
    assert (status, err.count("\n")) == (code, 1 + err.count("waiting up to 10 s for workers"))
    assert sentence in err.splitlines()[-1]


@pytest.mark.slow  # it is waited for
def test_a_scheduler_that_is_not_there_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = Terminal("tcp://127.0.0.1:9", capfd)("status")
    assert (code, err.count("\n")) == (1, 1)
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err


def test_detach_needs_a_cluster_that_stays(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*WORDS, "--out", "m.zarr", "--detach", "--workers", "1"])
    assert ended.value.code == 2
    assert "got --detach without a running cluster; give --scheduler" in capfd.readouterr().err
