"""The batch script fits on a Slurm of this one machine, where Slurm is installed: slurmctld and slurmd of its own."""

import os
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
from tests.support.processes import started

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

_SETTINGS = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={first}
SlurmdPort={second}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "srun") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip("as root: apt-get install slurm-wlm")
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = {"first": one.getsockname()[1], "second": other.getsockname()[1]}
    host = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(_SETTINGS.format(host=host, folder=folder, **ports))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    quiet = {"stderr": subprocess.DEVNULL}
    with started(("slurmctld", "-D"), **quiet) as controller, started(("slurmd", "-D"), **quiet) as daemon:
        wait_until(lambda: "idle" in _said("sinfo", "-h"), 30, "a node that is idle")
        yield
        for process in (daemon, controller):
            process.terminate()
            process.wait(30)


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def test_a_fit_in_a_job(slurm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0).astype(int))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    job = ["--wait", "--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--mem-per-cpu=0", "--time=5"]
    script = [str(DEPLOY / "slurm" / "fit-cpu.sbatch"), str(tmp_path / "d.zarr"), str(tmp_path / "m.zarr")]
    settings = ["--kernel", "gaussian:2", "--landmarks", "40", "--epochs", "1"]
    ended = subprocess.run(["sbatch", *job, *script, *settings], capture_output=True, text=True, check=False)
    out = next(tmp_path.glob("daskkern-*.out")).read_text()
    assert ended.returncode == 0, out
    assert "a fit can run on this cluster" in out
    assert daskkern.load(tmp_path / "m.zarr").scores(X[:3]).shape[0] == 3
    left = sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".out"))
    assert left == ["d.npz", "d.zarr", "m.zarr", "slurm"]
    wait_until(lambda: not _dask_of(tmp_path), 20, "the end of all Dask processes of the job")


def _dask_of(folder: Path) -> list[str]:
    """Return the Dask commands that run for a job submitted in `folder`."""
    words = (" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [line for line in words if "dask" in line and str(folder) in line]
