"""The batch script fits on a Slurm of this machine, where Slurm is installed, through a time limit and a requeue."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import daskkern
from tests.support.cluster import wait_until
from tests.support.deploy_files import DEPLOY

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

_ONE_MACHINE = str(DEPLOY / "slurm" / "one_machine.sh")
_JOB = ("--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--mem-per-cpu=1G")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "srun", "munged") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip("as root: apt-get install slurm-wlm munge")
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        monkeypatch.setenv("SLURMCTLD_PORT", str(one.getsockname()[1]))
        monkeypatch.setenv("SLURMD_PORT", str(other.getsockname()[1]))
    begun = subprocess.run(
        [_ONE_MACHINE, "start", str(tmp_path / "slurm")], capture_output=True, text=True, check=False
    )
    assert begun.returncode == 0, begun.stderr
    assert begun.stdout.startswith(f"for this Slurm: export SLURM_CONF={tmp_path}/slurm/slurm.conf\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm" / "slurm.conf"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    try:
        yield
    finally:
        subprocess.run(["scancel", "--user=root"], check=True)
        wait_until(lambda: not _said("squeue", "-h"), 60, "the end of all jobs")
        subprocess.run([_ONE_MACHINE, "stop", str(tmp_path / "slurm")], check=True)


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _submitted(folder: Path, *settings: str, wait: bool = False) -> subprocess.CompletedProcess[str]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)).astype(np.float32)
    np.savez(folder / "d.npz", X=X, y=(X[:, 0] > 0).astype(int))
    daskkern.ingest([str(folder / "d.npz")], folder / "d.zarr")
    script = [str(DEPLOY / "slurm" / "fit-cpu.sbatch"), str(folder / "d.zarr"), str(folder / "m.zarr")]
    words = ["sbatch", "--parsable", *(["--wait"] if wait else []), *_JOB, "--time=20", *script]
    words += ["--kernel", "gaussian:2", "--landmarks", "40", *settings]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _output(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("daskkern-*.out"))


def test_a_fit_in_a_job(slurm: None, tmp_path: Path) -> None:
    ended = _submitted(tmp_path, "--epochs", "1", wait=True)
    out = _output(tmp_path)
    assert ended.returncode == 0, out
    assert "a fit can run on this cluster" in out
    assert daskkern.load(tmp_path / "m.zarr").scores(np.zeros((3, 4), np.float32)).shape[0] == 3
    left = sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".out"))
    assert left == ["d.npz", "d.zarr", "m.zarr", "slurm"]
    wait_until(lambda: not _dask_of(tmp_path), 20, "the end of all Dask processes of the job")


@pytest.mark.timeout(1500)
def test_a_job_at_its_time_limit_goes_on_after_a_requeue_and_leaves_no_key(slurm: None, tmp_path: Path) -> None:
    job = _submitted(tmp_path, "--epochs", "100000").stdout.strip()
    wait_until(lambda: _epochs(tmp_path) > 1, 600, "epochs")
    minutes = int(_said("squeue", "-h", "-j", job, "-o", "%M").split(":")[0])
    subprocess.run(["scontrol", "update", f"jobid={job}", f"timelimit={minutes + 3}"], check=True)  # USR1@180
    wait_until(lambda: _said("squeue", "-h", "-j", job, "-o", "%T").strip() == "PENDING", 180, "the requeue")
    out = _output(tmp_path)
    assert "the time limit is near: the job is requeued, and goes on from its checkpoint" in out
    assert sorted(path.name for path in tmp_path.glob("daskkern-*")) == [f"daskkern-{job}.out"]
    subprocess.run(["scontrol", "update", f"jobid={job}", "timelimit=20"], check=True)
    done = _epochs(tmp_path)
    wait_until(lambda: _epochs(tmp_path) > done + 2, 300, "epochs after the requeue")
    again = re.findall(r"epoch +(\d+)/", _output(tmp_path)[len(out) :])
    assert int(again[0]) > 1  # it goes on, and does not begin again
    subprocess.run(["scancel", job], check=True)
    wait_until(lambda: not _said("squeue", "-h"), 60, "the end of the job")
    assert sorted(path.name for path in tmp_path.glob("daskkern-*")) == [f"daskkern-{job}.out"]


def _epochs(folder: Path) -> int:
    """Return the last epoch that the output of a job reports."""
    return max((int(found) for found in re.findall(r"epoch +(\d+)/", _output(folder))), default=0)


def _dask_of(folder: Path) -> list[str]:
    """Return the Dask commands that run for a job submitted in `folder`."""
    words = (" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [line for line in words if "dask" in line and str(folder) in line]
