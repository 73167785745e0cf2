"""A dry run of the first day on a GPU: its steps in a clean environment, on a CPU."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "benchmarks" / "on_gpu" / "wheels.txt"
PRESENT = """
numpy scipy scikit-learn llvmlite psutil threadpoolctl pyarrow fsspec click rich packaging pyyaml toolz
cloudpickle jinja2 sortedcontainers urllib3 narwhals contourpy pillow typing-extensions msgpack pandas
pytest pytest-timeout pytest-xdist hypothesis
"""
"""What a machine with GPUs has that is made for neither dask nor zarr."""
LIMIT_S = 550


def _python() -> str | None:
    """Return an interpreter of Python 3.12 that can make environments."""
    pyenv = sorted(map(str, Path.home().glob(".pyenv/versions/3.12*/bin/python3.12")))
    for candidate in (sys.executable, *pyenv, "python3.12"):
        words = [candidate, "-c", "import ensurepip, sys, venv; print(sys.version_info[:2] == (3, 12))"]
        try:
            if subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.strip() == "True":
                return candidate
        except OSError:
            continue
    return None


def _install(python: Path, *words: str) -> None:
    run = subprocess.run([str(python), "-m", "pip", "install", "-q", *words], capture_output=True, text=True)
    if run.returncode:
        last = run.stderr.strip().splitlines()[-1:]
        pytest.skip(f"pip could not install the packages; give it an index that has them ({' '.join(last)})")


@pytest.mark.repeated
@pytest.mark.timeout(LIMIT_S)
def test_the_steps_of_the_first_day_run_in_a_clean_environment(tmp_path: Path) -> None:
    interpreter = _python()
    if interpreter is None:
        pytest.skip("there is no Python 3.12 with ensurepip and venv; install one (pyenv install 3.12)")
    subprocess.run([interpreter, "-m", "venv", str(tmp_path / "bare")], check=True, timeout=120)
    python, site = tmp_path / "bare" / "bin" / "python", tmp_path / "site"
    _install(python, *PRESENT.split())
    missing = (
        "import importlib.util as u; print([n for n in ('dask', 'zarr', 'distributed', 'cupy') if u.find_spec(n)])"
    )
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert _run(python, ["-c", missing], bare).stdout.strip() == "[]"
    _install(python, "--no-deps", "--no-compile", "--only-binary=:all:", "--target", str(site), "-r", str(WHEELS))
    environment = {**bare, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}

    out = tmp_path / "results.json"
    run = _run(python, ["benchmarks/gpu.py", "--tiny", "--device", "cpu", "--out", str(out)], environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert '"failed"' not in out.read_text()
    assert '"streaming"' in out.read_text()

    run = _run(python, ["-m", "pytest", "tests/gpu", "-m", "gpu", "-q", "-p", "no:cacheprovider"], environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "CuPy is not installed; install daskkern[cuda12] or daskkern[cuda13]" in run.stdout
    assert " error" not in run.stdout.splitlines()[-1]

    run = _run(python, ["benchmarks/gpu.py", "--tiny"], environment)  # as it would be told where CuPy is missing
    assert run.returncode == 1
    assert "failed device: " in run.stdout
    assert "CuPy is not installed" in run.stdout


def _run(python: Path, words: Sequence[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(python), *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
