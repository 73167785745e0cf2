"""The GPU benchmark in tiny form, with NumPy and on the stand-in: its text runs, and what it says holds together."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.support.gpu.fake_gpu import FakeGpu

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PARTS = {"products", "susy", "eigenpro_4_small", "eigenpro_4_large", "fashion_mnist", "streaming"}


@pytest.fixture
def gpu_benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The benchmark as a module, for as long as the test lasts."""
    monkeypatch.syspath_prepend(FOLDER)
    module = import_module("gpu")
    yield module
    for name in [name for name in sys.modules if name.partition(".")[0] in ("gpu", "on_gpu", "products", "figures")]:
        del sys.modules[name]


@pytest.mark.repeated
def test_all_parts_with_numpy(gpu_benchmark: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    gpu_benchmark.main(["--tiny", "--device", "cpu", "--parts", "streaming", "--out", str(out)])
    gpu_benchmark.main(["--tiny", "--device", "cpu", "--out", str(out)])
    runs = import_module("figures").read(out)
    assert len(runs) == 2
    tables = runs[-1].tables
    assert set(tables) >= PARTS
    assert runs[-1].settings["device"].startswith("CPU")
    assert not {"skipped", "failed"} & set(tables)
    assert all(record["right"] for record in tables["correctness"])
    assert [record["d"] for record in tables["products"]] == [9, 128]
    assert all(record["seconds"] > 0 < record["share_of_roofline"] for record in tables["products"])
    for name in ("susy", "fashion_mnist"):
        assert tables[name][0]["losses"][1] < tables[name][0]["losses"][0]
    (step,) = tables["eigenpro_4_small"]
    assert step["n_rows"] == step["n_window_batches"] * step["n_batch_rows"]
    assert "tf32_tflops" not in tables["ceilings"][0]


@pytest.mark.repeated
def test_parts_on_the_stand_in(gpu_benchmark: ModuleType, stand_in: FakeGpu, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    with stand_in.installed():
        gpu_benchmark.main(["--tiny", "--device", "gpu", "--parts", "products", "streaming", "--out", str(out)])
    (run,) = import_module("figures").read(out)
    assert run.settings["device"] == "Stand-in"
    assert run.versions["cupy"] == "stand-in"
    assert run.tables["ceilings"][0]["tf32_tflops"] >= 0
    assert set(run.tables) & PARTS == {"products", "streaming"}


def test_wrong_results_are_not_timed(gpu_benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = sys.modules["on_gpu.correctness"].Gaussian
    monkeypatch.setattr(kernel, "matvec", lambda *args: np.zeros((300, 3)))
    with pytest.raises(SystemExit, match="results are wrong, so nothing was timed"):
        gpu_benchmark.main(["--tiny", "--device", "cpu"])


def test_what_would_end_too_late_is_skipped(
    gpu_benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_benchmark, "FULL", gpu_benchmark.TINY)
    monkeypatch.setattr(gpu_benchmark.Budget, "left", lambda self: 50.0)  # whatever this machine is busy with
    gpu_benchmark.main(["--device", "cpu"])
    said = capsys.readouterr().out
    assert "streaming: {" in said
    assert "skipped products: 50 s were left of 450" in said
    assert "skipped eigenpro_4_large: " in said
