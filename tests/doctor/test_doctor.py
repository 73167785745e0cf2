"""``daskkern doctor``: what it finds here and on workers, and what it makes of machines that are not well."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client
from rich.console import Console

import daskkern
from daskkern.backend import devices
from daskkern.backend.devices import CupyDevices, Gpu, cupy_devices, gpus
from daskkern.cli import console
from daskkern.cli.main import main
from daskkern.cluster.connect import membership
from daskkern.doctor import (
    ClusterReport,
    Finding,
    Folder,
    Machine,
    Package,
    WorkerReport,
    inspect_machine,
    judge,
    judge_cluster,
)
from daskkern.doctor import cluster as asking
from tests.support.cluster import local_cluster


@pytest.fixture(scope="module")
def here() -> Machine:
    return inspect_machine()


@pytest.fixture(scope="module")
def well(here: Machine) -> Machine:
    """This machine with nothing to be said about it, whatever it is."""
    folder = Folder("/data", 10**12, True, False)
    packages = tuple(
        replace(package, version=package.version or "9.9", fits=True) for package in here.packages if not package.extra
    )
    free = {"memory": 10**11, "memory_free": 10**11, "processor": "AVX2", "gpus": (), "packages": packages}
    return replace(here, scratch=folder, folder=folder, cuda=CupyDevices(0, "", "", "", "none"), **free)


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0), *capfd.readouterr()


def only(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def test_this_machine_can_fit(capfd: pytest.CaptureFixture[str], here: Machine) -> None:
    assert here.daskkern == daskkern.__version__
    assert here.product_error < 1e-4
    assert here.memory_free <= here.memory
    code, out, err = run(capfd, "doctor")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[-1] == "a fit can run here"
    for package in ("numpy", "distributed", "zarr", "cupy", "dask-cuda"):
        assert any(line.startswith(package) for line in lines), package
    assert f"current folder   {Path.cwd()}, " in out


def test_a_terminal_shows_commands_whole(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "OUT", Console(force_terminal=True, width=60, no_color=True))
    console.listing(("package", "for"), [("cupy", 'GPUs: pip install "daskkern[cuda12]"')])
    assert '"daskkern[cuda12]"' in capfd.readouterr().out


def test_json_holds_everything(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "doctor", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["can_fit"] is True
    assert found["cluster"] is None
    listed = {row["name"] for row in found["machine"]["packages"]}
    assert listed >= {"numpy", "dask", "obstore", "prometheus-client", "nccl"}


def test_nothing_is_said_of_a_machine_that_is_well(well: Machine) -> None:
    assert judge(well) == ()


@pytest.mark.parametrize(
    ("name", "version", "extra", "sentence", "stops"),
    [
        ("zarr", "2.18", "", 'zarr is 2.18 and not >=3.1, which is for work; pip install "zarr>=3.1"', True),
        ("scipy", "", "", 'scipy is missing, which is for work; pip install "scipy>=3.1"', True),
        ("bokeh", "", "", 'bokeh is missing, which is for work; pip install "bokeh>=3.1"', False),
        (
            "h5py",
            "2.0",
            "formats",
            'h5py is 2.0 and not >=3.1, which is for work; pip install "daskkern[formats]"',
            False,
        ),
        ("cupy", "3.0", "cuda", 'not >=3.1, which is for work; pip install "daskkern[cuda12]" (or cuda13)', False),
    ],
)
def test_packages_that_will_not_do(
    well: Machine, name: str, version: str, extra: str, sentence: str, stops: bool
) -> None:
    found = only(judge(replace(well, packages=(Package(name, "work", version, ">=3.1", extra, False),))))
    assert str(found).endswith(sentence)
    assert found.stops == stops


def test_an_optional_package_that_is_not_there_is_no_fault(well: Machine) -> None:
    assert judge(replace(well, packages=(Package("h5py", "HDF5", "", "", "formats", False),))) == ()


_GPU = Gpu("NVIDIA H100", 80 << 30, 79 << 30, "570.1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": (_GPU,)}, '1 GPUs were found and none can be used: none; pip install "daskkern[cuda12]"'),
        (
            {"cuda": CupyDevices(1, "13.1", "13.1", "2.32.1", "")},
            'starts a worker for each GPU; pip install "daskkern[cuda13]"',
        ),
        ({"processor": ""}, "kernel products run in NumPy"),
        ({"product_error": float("nan")}, "a small kernel product was wrong by nan"),
        ({"memory_free": 10**8}, "100 MB of memory are free"),
        ({"folder": Folder("/", 10**12, False, False)}, "the current folder, /, cannot be written to; give --out"),
        ({"scratch": Folder("/s", 10**6, True, False)}, "temporary files, /s, has 1 MB of free disk; set TMPDIR"),
        ({"scratch": Folder("/s", 10**12, True, True)}, "is in memory, not on a disk"),
    ],
)
def test_what_is_wrong_with_a_machine(well: Machine, changes: dict[str, Any], words: str) -> None:
    assert words in str(only(judge(replace(well, **changes))))


def worker(machine: Machine | None, name: str = "7", limit: int = 10**10, problem: str = "") -> WorkerReport:
    return WorkerReport("tcp://h:1", name, 4, limit, machine, problem, unreachable=bool(problem))


def report(machine: Machine, *workers: WorkerReport, problem: str = "") -> ClusterReport:
    return ClusterReport("tcp://h:8786", machine.packages, problem, workers)


def test_a_cluster_like_this_machine_is_well(well: Machine) -> None:
    assert judge_cluster(report(well, worker(well)), well) == ()


def test_what_is_wrong_with_a_cluster(well: Machine) -> None:
    def found(*workers: WorkerReport, problem: str = "") -> str:
        return "\n".join(map(str, judge_cluster(report(well, *workers, problem=problem), well)))

    assert found() == "cluster: it has no workers; start some: dask worker tcp://h:8786 --nthreads 4"
    assert "worker 7: it has daskkern 0.0.9, and this process has" in found(worker(replace(well, daskkern="0.0.9")))
    assert "it runs Python 3.9.1, and this process" in found(worker(replace(well, python="3.9.1")))
    other = tuple(replace(p, version="1.2") if p.name == "numpy" else p for p in well.packages)
    assert f"pip install numpy=={well.version('numpy')}" in found(worker(replace(well, packages=other)))
    assert "its memory limit is 500 MB" in found(worker(well, limit=500_000_000))
    gpu = replace(well, cuda=CupyDevices(1, "12.9", "12.9", "2.32.1", ""))
    assert "1 of 2 workers can use a GPU" in found(worker(well), worker(gpu))
    lost = found(worker(well, "6"), worker(None, problem="it does not answer in 60 s"), problem="no")
    assert lost.splitlines()[0].startswith("worker 7: it does not answer in 60 s; see its log and the network between")
    bare = replace(worker(None, problem="it cannot import this daskkern"), unreachable=False)
    assert "it cannot import this daskkern; install daskkern " in found(bare)
    assert "the scheduler cannot report its packages: no" in lost


def test_what_many_workers_share_is_one_line(well: Machine) -> None:
    small = [worker(well, str(name), limit=500_000_000) for name in range(5)]
    found = str(only(judge_cluster(report(well, *small), well)))
    assert found.startswith("worker 0, worker 1, worker 2 and 2 more: its memory limit is 500 MB")


def test_the_driver_s_own_tool_is_read(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(
        '#!/bin/sh\necho "NVIDIA H100 80GB HBM3, 81559, 81004, 570.1"\necho "GB, 10, [N/A], [N/A], 570.1"\n'
    )
    tool.chmod(0o755)
    assert gpus((str(tool),)) == (
        Gpu("NVIDIA H100 80GB HBM3", 81559 << 20, 81004 << 20, "570.1"),
        Gpu("GB, 10", 0, 0, "570.1"),
    )
    assert gpus(("false",)) == gpus((str(tmp_path / "none"),)) == ()


def test_what_cupy_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(getDeviceCount=lambda: 2, runtimeGetVersion=lambda: 12090, driverGetVersion=lambda: 13010)
    nccl = SimpleNamespace(available=True, get_version=lambda: 23201)
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    cupy.cuda, cuda.runtime, cuda.nccl = cuda, runtime, nccl  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    assert cupy_devices() == CupyDevices(2, "12.9", "13.1", "2.32.1", "")
    nccl.available = False
    assert cupy_devices().nccl == ""

    def no_driver() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver")

    runtime.getDeviceCount = no_driver
    assert cupy_devices() == CupyDevices(0, "", "", "", "RuntimeError: cudaErrorInsufficientDriver")
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert devices.cupy_devices().problem == "CuPy is not installed"


@pytest.mark.cluster
def test_a_cluster_is_looked_at(cluster2: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "doctor", "--scheduler", cluster2)
    assert code == 0, err
    rows = [line.split() for line in out.splitlines()]
    start = next(number for number, row in enumerate(rows) if row[:1] == ["worker"])
    assert [row[0] for row in rows[start + 1 : start + 3]] == ["0", "1"]
    assert "a fit can run on this cluster" in out


@pytest.mark.cluster
def test_a_cluster_that_cannot_fit_ends_with_the_reason(
    client2: Client, cluster2: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> dict[str, Any]:
        missing = ModuleNotFoundError("No module named 'daskkern'")
        return dict.fromkeys(membership.live_workers(client2), missing)

    monkeypatch.setattr(asking, "answers_of", fails)
    code, out, err = run(capfd, "doctor", "--scheduler", cluster2)
    assert code == 1
    assert "0       ?" in out
    assert err.startswith(
        "daskkern: error: no fit can run: worker 0, worker 1: it cannot import this daskkern (No module named"
    )
    assert f"install daskkern {daskkern.__version__} there, from the clone or wheel" in err


@pytest.mark.cluster
def test_a_scheduler_without_workers(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with local_cluster(0) as client:
        code, _, err = run(capfd, "doctor", "--scheduler", str(client.scheduler.address))
        assert code == 1
        assert "cluster: it has no workers; start some: dask worker tcp://" in err
        np.savez(tmp_path / "d.npz", X=np.eye(20, 3), y=np.arange(20) % 2)
        daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
        code, _, err = run(capfd, "plan", str(tmp_path / "d.zarr"), "--scheduler", str(client.scheduler.address))
        assert (code, "has no workers; start some with 'dask worker tcp://" in err) == (1, True), err


@pytest.mark.parametrize("command", [["doctor"], ["doctor", "--workers", "1"], ["plan", "missing.zarr"]])
def test_certificates_without_a_cluster_are_refused(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, *command, "--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c")
    assert (code, "TLS certificates were given without a running cluster" in err) == (2, True)
