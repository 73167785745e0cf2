"""Every script of benchmarks/ runs in its tiny form, and what it writes has the one form."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
ELSEWHERE = {
    "kernel_products": "test_kernel_products",
    "soak": "test_soak",
    "gpu": "test_gpu_benchmark",
    "many_fits": "test_many_fits",
}
LONGER = (
    "bigger_than_memory",
    "learned_features",
    "stages",
    "lake",
    "kernel_precision",
    "main_job",
    "overhead",
    "monitoring",
    "collectives",
    "wires",
    "many_ranks",
    "shared_reading",
    "recovery",
)
HERE = (
    "time_to_error",
    "reproduce",
    "scaling",
    "regressions",
    "choices",
    "tables",
    "many_tables",
    "threads",
    "precision",
)


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_every_script_is_listed_and_tried() -> None:
    listed = [each.name for each in import_module("run").BENCHMARKS]
    scripts = {path.stem for path in FOLDER.glob("*.py") if "--tiny" in path.read_text() and path.stem != "run"}
    assert {*HERE, *LONGER, *ELSEWHERE} == set(listed) <= scripts
    assert all(name in (FOLDER / "README.md").read_text() for name in listed)


def _try(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--tiny", "--out", str(out)])
    import_module(name).main()
    (run,) = import_module("figures").read(out)
    assert run.tables
    assert run.machine["n_cores"]
    pictures = import_module("pictures")
    if run.benchmark in pictures.PICTURES:
        assert pictures.draw(out, tmp_path / "figures.png")
        assert (tmp_path / "figures.png").stat().st_size > 5000
    pages = import_module("pages")
    assert len(pages.section([run], out)) > 3 or run.benchmark == "reproduction"


@pytest.mark.repeated
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", HERE)
def test_a_tiny_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _try(name, tmp_path, monkeypatch)


@pytest.mark.repeated
@pytest.mark.timeout(120)
def test_what_asv_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASKKERN_TINY", "1")
    tracked = import_module("tracked.ratios").Ratios()
    found = tracked.setup_cache()
    assert set(found) == set(tracked.params)
    for name in ("track_kernel_product", "track_eigenpro_epoch", "track_set_up"):
        assert all(getattr(tracked, name)(found, size) > 0 for size in tracked.params)
    folder = FOLDER / "tracked"
    settings = json.loads((folder / "asv.conf.json").read_text())
    assert (folder / settings["benchmark_dir"] / "ratios.py").exists()
    assert (folder / settings["repo"] / "pyproject.toml").exists()


@pytest.mark.parametrize("name", LONGER)
def test_a_script_that_takes_longer_finds_what_it_imports(name: str) -> None:
    assert callable(import_module(name).main)


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LONGER)
def test_a_tiny_run_that_takes_longer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _try(name, tmp_path, monkeypatch)
