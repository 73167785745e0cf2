"""The examples run, in small form, and say what they did."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from daskkern.testing.cluster import child_processes, wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _percent(text: str, before: str) -> float:
    found = re.search(rf"{before}: ([\d.]+)%", text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.timeout(60)
def test_quickstart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _load("quickstart").main(["--landmarks", "200", "--epochs", "5", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert _percent(out, "accuracy on the test rows") > 95
    assert "the same predictions: True" in out
    assert (tmp_path / "digits-model.zarr").is_dir()


@pytest.mark.cluster
@pytest.mark.timeout(90)
def test_out_of_core_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {process.pid for process in child_processes()}
    small = ["--rows", "10000", "--features", "30", "--landmarks", "300", "--memory-limit", "2GB"]
    _load("out_of_core").main([*small, "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "store: 10,000 rows x 30 features" in out
    assert re.search(r"highest memory of a worker: [1-9][\d,]* MB of 2,000 MB", out)
    assert _percent(out, "accuracy on test.zarr") > 50
    wait_until(lambda: {process.pid for process in child_processes()} <= before, what="the end of the workers")


def test_out_of_core_writes_the_store_that_it_says(tmp_path: Path) -> None:
    example = _load("out_of_core")
    size = example.write_store(tmp_path / "rows.zarr", 10_000, 20, seed=1)
    assert size >= 10_000 * 20 * 4
