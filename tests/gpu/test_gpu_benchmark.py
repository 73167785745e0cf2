"""The GPU benchmark in tiny form: its steps and processes with NumPy, what it runs on a GPU on the stand-in."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support.cluster import wait_until
from tests.support.gpu.fake_gpu import FakeGpu

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PARTS = ("ceilings", "correctness", "sanitizer", "products", "steps", "susy", "cifar5m", "streaming", "kept_blocks")
TINY = ["--tiny", "--device", "cpu"]


@pytest.fixture
def gpu_benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The benchmark as a module, for as long as the test lasts."""
    monkeypatch.syspath_prepend(FOLDER)
    module = import_module("gpu")
    monkeypatch.setattr(module.signal, "signal", lambda *args: None)
    yield module
    for name in [name for name in sys.modules if name.partition(".")[0] in ("gpu", "on_gpu", "products", "figures")]:
        del sys.modules[name]


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _is_gone(number: int) -> bool:
    try:
        return bool(psutil.Process(number).status() == psutil.STATUS_ZOMBIE)  # until the system collects it
    except psutil.NoSuchProcess:
        return True


@pytest.mark.repeated
def test_all_parts_with_numpy(gpu_benchmark: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    gpu_benchmark.main([*TINY, "--parts", "device", "--out", str(out)])
    gpu_benchmark.main([*TINY, "--out", str(out)])
    first, run = import_module("figures").read(out)
    assert first.settings == run.settings == {"device": "CPU: not a measurement of a GPU", "tiny": True}
    assert set(run.tables) >= set(PARTS)
    assert not {"skipped", "failed"} & set(run.tables)
    assert all(record["right"] for record in run.tables["correctness"])
    assert [record["d"] for record in run.tables["products"]] == [9, 128]
    assert all(record["seconds"] > 0 < record["share_of_roofline"] for record in run.tables["products"])
    steps = [(record["part"], record["precision"]) for record in run.tables["steps"]]
    names = ("eigenpro_10k", "eigenpro_262k", "falkon", "nystrom_sgd")
    assert steps == [(name, precision) for name in names for precision in ("float32", "tf32", "float16")]
    for record in (*run.tables["steps"], *run.tables["susy"], *run.tables["kept_blocks"]):
        assert record["losses"][-1] < record["losses"][0]
        assert record["planned_bytes"] > 0 < record["used_bytes"]
    assert [record["keep_blocks"] for record in run.tables["kept_blocks"]] == ["never", "memory", "disk"]


@pytest.mark.long
def test_a_part_without_its_package_fails_alone(
    gpu_benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("dask", "distributed", "zarr"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    out = tmp_path / "results.json"
    with pytest.raises(SystemExit, match="these parts failed: streaming"):
        gpu_benchmark.main([*TINY, "--parts", "ceilings", "streaming", "products", "--out", str(out)])
    (run,) = import_module("figures").read(out)
    assert len(run.tables["products"]) == 2
    assert run.tables["ceilings"][0]["float32_tflops"] >= 0
    assert "No module named" in run.tables["failed"][0]["streaming"]


def test_a_part_that_hangs_is_ended_with_what_it_started_and_keeps_its_records(
    gpu_benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    text = f'#!/bin/sh\n[ "$2" = memcheck ] && exit 0\necho $$ > {started}\nexec sleep 600\n'
    _program(tmp_path / "compute-sanitizer", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    stream = import_module("on_gpu.processes").records_of(["sanitizer", *TINY], 60.0)
    assert next(stream) == ("sanitizer", {"tool": "memcheck", "result": "clean"})
    while not (started.exists() and started.read_text().strip()):
        time.sleep(0.01)
    late = SimpleNamespace(monotonic=lambda: float("inf"), sleep=time.sleep)  # for this module: clusters use the clock
    monkeypatch.setattr(import_module("on_gpu.processes"), "time", late)
    with pytest.raises(TimeoutError, match="did not end in 60 s"):
        next(stream)
    wait_until(lambda: _is_gone(int(started.read_text())))


def test_what_a_sanitizer_finds_is_recorded(
    gpu_benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = """#!/bin/sh
case "$2" in
  memcheck) echo "========= COMPUTE-SANITIZER"; echo "========= Invalid __global__ read of size 4 bytes"; exit 9;;
  racecheck) echo "Device not supported" >&2; exit 1;;
esac
"""
    _program(tmp_path / "compute-sanitizer", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = import_module("on_gpu.sanitizer").sanitizer(None, None, "cpu", {})
    assert [record["result"] for _, record in found] == [
        "Invalid __global__ read of size 4 bytes", "could not run: Device not supported", "clean", "clean",
    ]  # fmt: skip


def test_every_record_is_in_the_file_at_once_and_a_bad_one_costs_itself_alone(
    gpu_benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out, figures = tmp_path / "results.json", import_module("figures")

    def records(words: list[str], limit_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "products", {"d": 9, "seconds": 1.0}
        assert figures.read(out)[0].tables["products"] == [{"d": 9, "seconds": 1.0}]
        yield "products", {"d": 18, "seconds": 2.0}
        assert len(figures.read(out)[0].tables["products"]) == 2
        yield "products", {"speed": 3.0}

    monkeypatch.setattr(gpu_benchmark, "records_of", records)
    with pytest.raises(SystemExit, match="these parts failed: products"):
        gpu_benchmark.main([*TINY, "--parts", "products", "--out", str(out)])
    (run,) = figures.read(out)
    assert len(run.tables["products"]) == 2
    assert "speed does not name its unit" in run.tables["failed"][0]["products"]
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_wrong_results_are_not_timed(
    gpu_benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels, correctness = import_module("daskkern.kernels"), import_module("on_gpu.correctness")
    monkeypatch.setattr(kernels.Gaussian, "matvec", lambda *args: np.zeros((300, 10)))
    found = correctness.products_of(np, kernels.Gaussian(3.0), 9)
    assert not found["right"]

    def records(words: list[str], limit_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        assert words[0] in ("correctness", "sanitizer"), "timed"
        if words[0] == "correctness":
            yield "correctness", dict(found)

    monkeypatch.setattr(gpu_benchmark, "records_of", records)
    with pytest.raises(SystemExit, match="results are wrong: "):
        gpu_benchmark.main([*TINY, "--parts", "correctness", "sanitizer", "products", "susy"])
    assert capsys.readouterr().out.count("so nothing was timed") == 2


def test_no_part_begins_when_the_time_is_used_up(gpu_benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    gpu_benchmark.main([*TINY, "--budget", "5"])
    assert capsys.readouterr().out.count("s were left of 5") == len(gpu_benchmark.PARTS)


def test_the_script_needs_the_standard_library_alone() -> None:
    text = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import gpu; print([n for n in sys.modules])"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "on_gpu.processes" in run.stdout
    assert not {"numpy", "daskkern"} & set(json.loads(run.stdout.replace("'", '"')))


def test_launches_waits_and_work_are_counted_from_a_trace(gpu_benchmark: ModuleType) -> None:
    events = [
        {"cat": "kernel", "name": "scores", "ts": 0.0, "dur": 10.0},
        {"cat": "kernel", "name": "profile", "ts": 5.0, "dur": 10.0},  # overlaps
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 30.0, "dur": 10.0},
        {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": 1.0, "dur": 2.0},
        {"cat": "cuda_driver", "name": "cuLaunchKernel", "ts": 1.0, "dur": 2.0},
        {"cat": "cpu_op", "name": "cudaStreamSynchronize", "ts": 1.0, "dur": 2.0},
        {"ph": "M", "name": "process_name"},
    ]
    counts = import_module("on_gpu.trace").counts
    assert counts(events, 2) == {"n_launches_of_a_step": 1.5, "n_waits_of_a_step": 0.5, "busy_share": 0.625}
    assert counts(events[3:], 2) == {}


@pytest.mark.parametrize("with_rmm", [False, True])
def test_allocations_are_timed_from_both_pools_and_these_are_given_back(
    gpu_benchmark: ModuleType, stand_in: FakeGpu, monkeypatch: pytest.MonkeyPatch, with_rmm: bool
) -> None:
    ceilings = import_module("on_gpu.ceilings")
    monkeypatch.setattr(ceilings, "LAUNCHES", 3)
    resources, first = ["its own"], stand_in.module.cuda.get_allocator()
    mr = SimpleNamespace(
        get_current_device_resource=lambda: resources[-1],
        set_current_device_resource=resources.append,
        PoolMemoryResource=lambda upstream_mr, initial_pool_size: ("pool", upstream_mr, initial_pool_size),
    )
    allocators: dict[str, Any] = {"rmm": ModuleType("rmm"), "rmm.allocators": ModuleType("rmm.allocators")}
    allocators["rmm"].mr = mr
    allocators["rmm.allocators.cupy"] = SimpleNamespace(rmm_cupy_allocator=lambda size: None)
    for name, module in allocators.items():
        monkeypatch.setitem(sys.modules, name, module if with_rmm else None)
    found = ceilings.allocations(stand_in.module)
    assert found["cupy_pool_us"] > 0
    assert ("rmm_pool_us" in found) == with_rmm == ("note" not in found)
    assert resources == (["its own", ("pool", "its own", 64 << 20), "its own"] if with_rmm else ["its own"])
    assert stand_in.module.cuda.get_allocator() == first


@pytest.mark.repeated
@pytest.mark.parametrize("part", ["device", "ceilings", "correctness", "products", "streaming", "nystrom_sgd"])
def test_a_part_on_the_stand_in(gpu_benchmark: ModuleType, stand_in: FakeGpu, tmp_path: Path, part: str) -> None:
    records = tmp_path / "records"
    with stand_in.installed():
        import_module("on_gpu.one").main([part, "--tiny", "--device", "gpu", "--records", str(records)])
    found = [json.loads(line) for line in records.read_text().splitlines()]
    assert all(record.get("right", True) for _, record in found), found
    tables: dict[str, Any] = dict(found)
    if part == "device":
        assert tables["versions"]["cupy"] == "stand-in"
        assert tables["card"]["name"] == "Stand-in"
    elif part == "ceilings":
        assert tables["ceilings"].keys() >= {"tf32_tflops", "float16_tflops"}
    else:
        assert found
