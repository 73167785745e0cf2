"""The commands that deploy/ starts workers with form one encrypted cluster here, on which the command line fits."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern.cli.main import main
from daskkern.cluster.connect.clients import Certificates, client_at, scheduler_file_address
from tests.support.cluster import wait_until
from tests.support.deploy_files import DEPLOY, Command, commands, is_gpu, without
from tests.support.processes import started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("apt-get install openssl")
    folder = tmp_path_factory.mktemp("deployed")
    script = DEPLOY / "tls" / "make-certificates.sh"
    subprocess.run([str(script), str(folder), "localhost,127.0.0.1", "alice"], check=True, capture_output=True)
    again = subprocess.run([str(script), str(folder), "alice", "bob"], check=True, capture_output=True, text=True)
    assert [line.split()[1:3] for line in again.stdout.splitlines()] == [["is", "there"], ["holds", "ca.pem,"]]
    return folder


def here(command: Command, folder: Path, keys: Path) -> Command:
    """Return a command of deploy/ for this machine: its own options, but for addresses, folders and certificates."""
    places = ("--tls-ca-file", "--tls-cert", "--tls-key", "--protocol", "--port", "--scheduler-file", "--host")
    kept = without(
        command, *places, "--local-directory", "--dashboard-address", "--name", "--nworkers", "--death-timeout"
    )
    words = [word for word in kept[2:] if "://" not in word]
    tls = ["--tls-ca-file", keys / "ca.pem", "--tls-cert", keys / "cert.pem", "--tls-key", keys / "key.pem"]
    places_here = [
        "--scheduler-file",
        folder / "scheduler.json",
        "--host",
        "tls://127.0.0.1:0",
        "--dashboard-address",
        ":0",
    ]
    own = ["--no-nanny", "--local-directory", folder, "--death-timeout", 120] if command[1] == "worker" else []
    own += ["--preload", "daskkern.training.run.fit"]  # what ranks import, before anybody waits for an answer
    program = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{command[1]}"]
    return [*program, *words, *map(str, [*tls, *places_here, *own])]


@pytest.fixture(scope="module")
def cluster(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The scheduler of systemd and a worker of every environment; the folder of their scheduler file."""
    folder = tmp_path_factory.mktemp("cluster")
    found = commands()
    chosen = [found["daskkern-scheduler.service"][0]]
    for name in ("compose.yaml", "cluster.yaml", "fit-cpu.sbatch", "daskkern-worker.service"):
        chosen += [words for words in found[name] if words[1] == "worker" and not is_gpu(words)]
    assert len(chosen) == 5
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log, ExitStack() as stack:
        for command in chosen:
            words = here(command, folder, keys / "localhost")
            stack.enter_context(started(words, stdout=log, stderr=log, env=environment))
        wait_until((folder / "scheduler.json").exists, 180, "the scheduler file")
        yield folder


@pytest.mark.repeated  # five processes start here; other tests encrypt clusters and name their scheduler files
def test_a_fit_on_workers_of_every_environment(
    cluster: Path, keys: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = keys / "alice"
    tls = Certificates(str(own / "ca.pem"), str(own / "cert.pem"), str(own / "key.pem"))
    address = scheduler_file_address(cluster / "scheduler.json")
    assert address.startswith("tls://")
    with client_at(address, 60, tls.security()) as client:
        assert isinstance(client, Client)
        client.wait_for_workers(4, timeout=120)
        threads = sorted(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
    assert threads == [2, 2, 4, 8]  # as their files say

    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0).astype(int))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    words = ["fit", str(tmp_path / "d.zarr"), "--out", str(tmp_path / "m.zarr"), "--kernel", "gaussian:2"]
    where = ["--scheduler-file", str(cluster / "scheduler.json")]
    files = ["--tls-ca", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--landmarks", "40", "--epochs", "1", *where, *files])
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    assert "on 4 ranks" in out + err
    assert daskkern.load(tmp_path / "m.zarr").scores(X[:3]).shape[0] == 3
