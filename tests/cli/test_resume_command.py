"""``daskkern resume``: interrupted fits go on as the commands that began them said, all of a folder or bucket."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern.cli.main import main
from daskkern.errors import ClusterError, StoreError
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpoint import is_checkpoint, open_checkpoint
from daskkern.training.checkpoints.listing import FoundFit, find_fits, inspect_checkpoint
from daskkern.training.checkpoints.recorded_command import Resumption, read_resumption, write_resumption
from daskkern.training.jobs.handle import list_fits
from tests.support.cluster import local_cluster, wait_until
from tests.support.object_server import ObjectServer
from tests.support.processes import read_until, started

pytestmark = pytest.mark.timeout(180)

FIT = ["fit", "d.zarr", "--kernel", "gaussian:4", "--landmarks", "200", "--set", "batch_size=50", "--epochs", "25"]
LONG = [*FIT[:-1], "100000"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0) + 2 * (X[:, 1] > 0))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run the command line and return its exit status and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


def interrupt(folder: Path, *words: str) -> None:
    """Start a fit in a process of its own and interrupt it in its third epoch."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started([sys.executable, "-m", "daskkern", *words], cwd=folder, **pipes) as process:
        read_until(process, "epoch   2/")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130


def record_of(place: Path) -> Resumption:
    group = open_checkpoint(str(place))
    assert group is not None
    record = read_resumption(group, str(place))
    assert record is not None
    return record


@pytest.mark.repeated
def test_every_fit_of_a_folder_gets_its_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    interrupt(folder, *FIT, "--workers", "0", "--out", "a.zarr")
    shutil.copytree("a.zarr.checkpoint", "damaged.zarr.checkpoint")
    next(path for path in Path("damaged.zarr.checkpoint").rglob("shard/*/c/0/0")).write_bytes(b"")
    shutil.copytree("a.zarr.checkpoint", "python.zarr.checkpoint")
    shutil.rmtree("python.zarr.checkpoint/resumption")
    assert run(capfd, *FIT[:-1], "1", "--workers", 0, "--out", "b.zarr", "--checkpoint", "b.kept")[0] == 0
    with started(
        [sys.executable, "-m", "daskkern", *LONG, "--workers", "0", "--out", "c.zarr"], stderr=-1, text=True
    ) as c:
        read_until(c, "epoch   2/")
        code, out, err = run(capfd, "resume", "--all", ".", "--workers", 0)
    lines = [line for line in out.splitlines() if line[14:].startswith(str(folder))]
    told = {Path(line[14:].split(":")[0]).name: line[:14].strip() for line in lines}
    assert told == {
        "a.zarr.checkpoint": "resumed",
        "b.kept": "finished",
        "c.zarr.checkpoint": "still running",
        "damaged.zarr.checkpoint": "damaged",
        "python.zarr.checkpoint": "failed",
    }
    assert (code, err.splitlines()[-1]) == (
        1,
        "daskkern: error: 2 of 5 fits cannot be continued; the lines above say why",
    )
    assert "going on after batch" in out + err
    assert not Path("a.zarr.checkpoint").exists()
    assert run(capfd, *FIT, "--workers", 0, "--out", "whole.zarr")[0] == 0
    X = np.random.default_rng(1).standard_normal((50, 20))
    resumed, whole = (daskkern.load(name).decision_function(X) for name in ("a.zarr", "whole.zarr"))
    np.testing.assert_array_equal(resumed, whole)


def test_an_error_of_one_fit_does_not_end_the_others(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        interrupt(folder, *LONG, "--out", f"{name}.zarr", "--workers", "0")
    errors = iter([OSError(5, "Input/output error", "/mnt/a.zarr"), ZeroDivisionError("x")])

    def failing(*job: object, **others: object) -> None:
        raise next(errors)

    monkeypatch.setattr("daskkern.cli.fit.fit_job", failing)
    code, out, err = run(capfd, "resume", "--all", ".", "--workers", "0")
    assert code == 1
    assert "input/output error" in out + err
    assert "ZeroDivisionError: x" in out + err
    assert is_checkpoint("a.zarr.checkpoint")
    assert is_checkpoint("b.zarr.checkpoint")


def test_a_lost_cluster_is_reported_with_the_checkpoint(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(folder, *LONG, "--out", "a.zarr", "--workers", "0")

    def failing(*job: object, **others: object) -> None:
        raise ClusterError("the Dask scheduler cannot be reached; see that it runs")

    monkeypatch.setattr("daskkern.cli.fit.fit_job", failing)
    code, _, err = run(capfd, *LONG, "--out", "a.zarr", "--workers", "0", "--resume")
    assert code == 1
    assert f"the progress is in {folder / 'a.zarr.checkpoint'}: continue with --resume" in err


def test_an_interrupt_before_the_first_save_leaves_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EigenPro, "init", press)
    code, _, err = run(capfd, *FIT, "--solver", "eigenpro", "--workers", 0, "--out", "m.zarr")
    assert (code, err.splitlines()[-1]) == (130, "daskkern: error: interrupted; nothing was written")
    assert sorted(path.name for path in folder.iterdir()) == ["d.npz", "d.zarr"]


def test_a_fit_that_is_refused_for_its_memory_leaves_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, *FIT, "--memory", "100MB", "--workers", 0, "--out", "m.zarr")
    assert (code, "its budget is 100 MB" in err) == (1, True)
    assert sorted(path.name for path in folder.iterdir()) == ["d.npz", "d.zarr"]


@pytest.mark.cluster
@pytest.mark.repeated
def test_detached_fits_come_back_after_the_scheduler_has_died(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with local_cluster(2) as client:
        where = ["--scheduler", client.scheduler.address]
        words = [*FIT, "--epochs", "40", "--out", str(folder / "m.zarr"), "--name", "night", *where, "--detach"]
        assert run(capfd, *words)[0] == 0
        wait_until(lambda: list_fits(client)[0].epoch >= 2, what="the second epoch")
        shut = client.cluster.scheduler.address
    assert is_checkpoint(str(folder / "m.zarr.checkpoint")) or record_of(folder / "m.zarr.checkpoint").detached
    code, out, _ = run(capfd, "resume", "--all", folder)
    assert (code, "it was detached; name a running cluster" in out) == (1, True)
    with local_cluster(2) as client:
        assert client.scheduler.address != shut
        where = ["--scheduler", client.scheduler.address]
        code, out, err = run(capfd, "resume", "--all", folder, *where)
        assert code == 0, out + err
        assert f"resumed       {folder / 'm.zarr.checkpoint'}" in out
        code, again, _ = run(capfd, "resume", folder / "m.zarr", *where)
        assert (code, again.startswith(("cluster", "still running", "finished"))) == (0, True), again
        (fit,) = list_fits(client)
        assert (fit.metadata.name, fit.metadata.detached) == ("night", True)
        daskkern.attach(client).result(timeout_s=90)
    code, out, _ = run(capfd, "resume", "--all", folder)
    assert (code, out) == (0, "no checkpoints are in " + str(folder) + "\n")


@pytest.mark.repeated
def test_the_fits_of_a_bucket_go_on(objects: ObjectServer, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = objects.url("resumed")
    interrupt(folder, *FIT, "--workers", "0", "--out", f"{root}/m.zarr")
    code, out, err = run(capfd, "resume", "--all", root, "--workers", 0)
    assert (code, f"resumed       {root}/m.zarr.checkpoint" in out) == (0, True), out + err
    assert len(daskkern.load(f"{root}/m.zarr").provenance["history"]) == 25
    assert run(capfd, "resume", "--all", root)[:2] == (0, f"no checkpoints are in {root}\n")


def test_a_record_has_no_secrets_and_only_plain_values(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [*FIT[:-1], "1", "--workers", 0, "--out", "b.zarr", "--checkpoint", "b.kept", "--set", "solver.window=4"]
    assert run(capfd, *words)[0] == 0
    record = record_of(folder / "b.kept")
    assert (record.store, record.out) == (str(folder / "d.zarr"), str(folder / "b.zarr"))
    assert record.options == {
        "kernel": "gaussian:4",
        "landmarks": "200",
        "batch_size": 50,
        "epochs": 1,
        "solver.window": 4,
    }
    assert (record.host, record.pid, record.runs) == (socket.gethostname(), os.getpid(), False)
    assert inspect_checkpoint(str(folder / "b.kept")).is_finished


@pytest.mark.parametrize(
    "change",
    [
        {"store": "d.zarr"},
        {"store": 5},
        {"options": ["a"]},
        {"options": {"kernel": {"nested": 1}}},
        {"options": {"epochs=1,alpha": 1}},
        {"ranks": "2"},
        {"share": 1},
        {"pid": True},
        {"out": "relative"},
        {"surplus": 1},
        {"name": "x" * 70_000},
    ],
    ids=str,
)
def test_a_record_of_somebody_else_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    from zarr import create_group

    place = tmp_path / "c.checkpoint"
    group = create_group(place, attributes={"format": "daskkern-checkpoint", "version": 3})
    write_resumption(group, Resumption("/rows.zarr", {"epochs": 3}))
    assert inspect_checkpoint(str(place)).record == Resumption("/rows.zarr", {"epochs": 3})
    file = place / "resumption" / "zarr.json"
    message = json.loads(file.read_text())
    message["attributes"] |= change
    file.write_text(json.dumps(message))
    (found,) = find_fits(str(tmp_path))
    assert "the record of the command in the checkpoint" in found.problem


@pytest.mark.parametrize("problem", ["", "the checkpoint is damaged"])
def test_a_checkpoint_that_its_fit_removes_meanwhile_is_no_failure(
    problem: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    half = FoundFit(str(tmp_path / "m.zarr.checkpoint"), str(tmp_path / "m.zarr"), problem=problem)
    monkeypatch.setattr("daskkern.cli.resume.find_fits", lambda place: (half,))
    code, out, err = run(capfd, "resume", "--all", tmp_path)
    assert (code, err) == (0, "")
    assert "finished" in out
    assert "removed meanwhile" in out


def test_what_is_not_there_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "resume", tmp_path / "absent")
    assert (code, out) == (1, "")
    sentence = f"daskkern: error: there is no checkpoint at {tmp_path}/absent; "
    assert err == sentence + "give a checkpoint, or the model next to it\n"
    with pytest.raises(StoreError, match="cannot be listed: No such file"):
        find_fits(str(tmp_path / "absent"))
