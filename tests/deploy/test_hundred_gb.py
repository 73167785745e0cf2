"""The page on 100 GB: its commands, on a small lake on a local S3 server and a cluster of two workers."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from distributed import Client

from tests.support.cluster import child_processes
from tests.support.deploy.hundred_gb import CHECKED, ENTRY, INGESTED, PARQUET_ROW, rows_of_page
from tests.support.object_server import ObjectServer, object_server
from tests.support.processes import ROOT, ended, started

PAGE = (ROOT / "docs" / "hundred-gb.md").read_text()
DAYS = (0, 1, 9, 89, 90, 98)


def commands(program: str) -> list[str]:
    """Return the lines of the page's blocks that call a program."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(program)]


@dataclass
class Ran:
    """What a command printed, and the seconds that it took."""

    command: str
    output: str
    seconds: float


def make_lake(server: ObjectServer, rows: int, day: Any) -> None:
    """Put a file of `rows` rows for each day on the server; `day` makes a table of its number and rows."""
    from obstore.fsspec import FsspecStore

    system = FsspecStore("s3", client_options={"allow_http": True}, skip_instance_cache=True)
    for number, name in enumerate(DAYS):
        sink = pa.BufferOutputStream()
        pq.write_table(day(number, rows), sink)
        system.pipe_file(f"{server.bucket}/lake/day={name}/part-0.parquet", sink.getvalue().to_pybytes())


def small_day(number: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(number)
    made: dict[str, Any] = {"id": np.arange(number * rows, (number + 1) * rows)}
    made |= {f"f{j}": rng.normal(size=rows).astype(np.float32) for j in range(4)}
    made["g"] = pa.array(rng.normal(size=rows), mask=rng.random(rows) < 0.1)
    made["kind"] = np.array(["north", "south", "west"])[rng.integers(0, 3, rows)]
    made["date"] = np.datetime64("2024-01-01", "D") + rng.integers(0, 700, rows)
    made["y"] = made["f0"] + 0.1 * rng.normal(size=rows)
    return pa.table(made)


@contextmanager
def cluster(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Yield the address of a scheduler with two workers, processes of their own, as in Kubernetes."""
    how: dict[str, Any] = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        file = folder / "scheduler.json"
        words = ["--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--scheduler-file", file]
        stack.enter_context(started([sys.executable, "-m", "distributed.cli.dask_scheduler", *words], **how))
        for _ in range(600):
            if file.exists() and file.stat().st_size:
                break
            time.sleep(0.1)
        address = str(yaml.safe_load(file.read_text())["address"])
        for _ in range(2):
            words = [address, "--nthreads", "1", "--no-dashboard", "--local-directory", folder]
            stack.enter_context(started([sys.executable, "-m", "distributed.cli.dask_worker", *words], **how))
        with Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        yield address


def run_page(server: ObjectServer, folder: Path, landmarks: int) -> list[Ran]:
    """Run the commands of the page, one after the other."""
    environment = {**os.environ, **server.environment(), "PYTHONPATH": str(ROOT)}
    ran = []
    with cluster(folder, environment) as address:
        known = {"BUCKET": f"s3://{server.bucket}", "LANDMARKS": str(landmarks), "SCHEDULER": address}
        for command in commands("daskkern "):
            line = command.replace("daskkern", f"{sys.executable} -m daskkern", 1)
            begun = time.perf_counter()
            done = ended(["sh", "-c", line], 240, env={**environment, **known}, cwd=folder)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            ran.append(Ran(command, done.stdout, time.perf_counter() - begun))
    return ran


def check_results(server: ObjectServer, n_rows: int) -> None:
    """Check that every row has one prediction, in the folder of its day."""
    import pyarrow.fs

    endpoint = server.endpoint.removeprefix("http://")
    system = pyarrow.fs.S3FileSystem(endpoint_override=endpoint, scheme="http", access_key="key", secret_key="secret")
    found = ds.dataset(f"{server.bucket}/predictions.parquet", filesystem=system, partitioning="hive").to_table()
    assert np.array_equal(np.sort(found["id"].to_numpy()), np.arange(len(DAYS) * n_rows))
    day = np.array(DAYS)[found["id"].to_numpy() // n_rows]
    assert np.array_equal(found["day"].to_numpy(), day)


@pytest.mark.long
def test_the_commands_of_the_page_run_on_a_small_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_server("page") as server:  # moto keeps the buckets of all servers of a process together
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        make_lake(server, 300, small_day)
        ran = {run.command.split()[1]: run.output for run in run_page(server, tmp_path, 40)}
        assert list(ran) == [
            "doctor", "ingest", "check", "info", "plan", "fit", "status", "watch", "resume", "score", "predict",
        ]  # fmt: skip
        assert "1,200 rows" in ran["info"]
        assert "600 rows: RMSE" in ran["score"]
        check_results(server, 300)
    children = [" ".join(child.cmdline()) for child in child_processes()]
    assert not any("distributed.cli" in line for line in children), children


def test_the_manifests_without_a_volume(tmp_path: Path) -> None:
    piped = [line for line in commands("sed ") if line.endswith("| kubectl apply -f -")]
    assert len(piped) == 2
    for line in piped:
        done = ended(["sh", "-c", line.partition(" | kubectl")[0]], 20, cwd=ROOT)
        assert "daskkern-data" not in done.stdout
        spec = yaml.safe_load(done.stdout)["spec"]
        pods = [spec] if "containers" in spec else [spec["worker"]["spec"], spec["scheduler"]["spec"]]
        for pod in pods:
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            for container in pod["containers"]:
                assert {mount["name"] for mount in container.get("volumeMounts", [])} == volumes
                assert container["envFrom"] == [{"secretRef": {"name": "daskkern-store", "optional": True}}]
    assert any("create secret generic daskkern-store " in line for line in commands("kubectl "))


def test_the_figures_follow_from_the_rates() -> None:
    for row in rows_of_page():
        assert f"{row}\n" in PAGE
    for rate in (
        f"{INGESTED:,.0f} rows/s",
        f"{CHECKED / 1e6:.0f} MB/s",
        f"{1e9 * ENTRY:.0f} ns",
        f"{PARQUET_ROW:,} bytes",
    ):
        assert rate in PAGE
