"""The benchmark of kernel products runs in tiny form, checks its results, and judges its targets."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
_WITHOUT_PAUSES = """
import runpy, sys
sys.path.insert(0, {folder!r})
from products import clock
clock._PAUSE_S = clock._LONG_ENOUGH_S = 0.0
runpy.run_path({folder!r} + "/kernel_products.py", run_name="__main__")
"""


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package of the benchmark's parts, for as long as the test lasts."""
    monkeypatch.syspath_prepend(FOLDER)
    for part in ("clock", "problem", "sizes", "sparse", "targets"):
        import_module(f"products.{part}")
    yield sys.modules["products"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "products"]:
        del sys.modules[name]


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT_PAUSES.format(folder=str(FOLDER)), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.repeated
@pytest.mark.timeout(120)
def test_all_sections_in_small_without_peers(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = _run("--tiny", "--methods", "numpy,daskkern", "--out", str(out))
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(out.read_text())["runs"]
    tables = run["tables"]
    assert len(tables["dense"]) == 2 * 2 * 2 * 2
    assert len(tables["matmul"]) == 2 * 2 * 2
    assert {row["method"] for row in tables["dense"]} == {"numpy", "daskkern"}
    for row in tables["dense"]:
        assert row["largest_relative_error"] < 1e-5
        assert row["ns_per_entry"] > 0
    for row in tables["sparse"]:
        assert row["largest_relative_error"] < 1e-5
        assert row["largest_relative_difference_to_dense"] < 1e-5
    assert [row["n_entries"] for row in tables["scaling"]] == [100 * 50, 300 * 50]
    assert any(verdict["met"] is None and "torch" in verdict["asked"] for verdict in tables["targets"])


@pytest.mark.timeout(60)
def test_an_unknown_section_is_named() -> None:
    done = _run("--sections", "dense,dance")
    assert done.returncode == 2
    assert "dance is not among dense, sparse, scaling" in done.stderr


def test_the_reference_of_sparse_rows_is_that_of_dense_rows(products: ModuleType) -> None:
    sizes = products.sizes.SparseSizes(n_rows=60, n_features=300, n_points=20, density=0.05)
    X = products.sparse.reviews(sizes)
    A = np.random.default_rng(0).standard_normal((20, 2), np.float32)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert X.nnz / 60 / 300 == pytest.approx(0.05, rel=0.2)
    for kernel in ("gaussian", "laplacian"):
        sparse = products.problem.Problem(kernel, 1.0, X, X[:20], A)
        dense = products.problem.Problem(kernel, 1.0, X.toarray(), X[:20].toarray(), A)
        rows = np.arange(60)
        got, expected = products.problem.reference(sparse, rows), products.problem.reference(dense, rows)
        np.testing.assert_allclose(got, expected, atol=1e-6 * np.abs(expected).max())


def test_turns_are_interleaved_and_adapt_to_the_budget(products: ModuleType) -> None:
    clock, turns = products.clock, []

    def contender(name: str) -> Any:
        return clock.Contender(name, "", lambda: turns.append(name), contextlib.nullcontext)

    clock._PAUSE_S = clock._LONG_ENOUGH_S = 0.0
    first = {"quick": 1e-3, "middling": 1.0, "slow": 100.0}
    found = clock.interleaved([contender(name) for name in first], first, budget_s=0.3, most=3)
    assert {name: len(of_one) for name, of_one in found.items()} == {"quick": 3, "middling": 3, "slow": 1}
    assert found["slow"][0].seconds == 100.0, "what is slow is not timed again"
    assert turns == ["quick", "quick", "middling"] * 3, "an untimed product goes before each quick one"


def test_disturbed_turns_do_not_count_where_enough_are_quiet(products: ModuleType) -> None:
    clock = products.clock
    quiet, disturbed = [clock.Turn(s) for s in (1.0, 2.0, 3.0)], [clock.Turn(50.0, quiet=False)] * 5
    assert clock.summary(quiet + disturbed, 10)["median_seconds"] == 2.0
    assert clock.summary(quiet[:2] + disturbed, 10)["median_seconds"] == 50.0


def test_targets_are_missed_met_or_not_judged(products: ModuleType) -> None:
    figures = {"largest_relative_error": 1e-7, "share_of_matmul_distances_rate": 0.5}
    methods = {"daskkern": figures, "torch_whole_block": {"daskkern_speed_ratio": 3.0}}
    dense = [{"kernel": "gaussian", "n_features": d, "n_outputs": 1, "methods": methods} for d in (54, 128, 784)]
    verdicts = products.targets.judge({"sections": {"dense": dense, "sparse": {"failed": "TypeError: no CSR"}}})
    found = {(verdict.target, verdict.asked): verdict.met for verdict in verdicts}
    assert found["gaussian d=54 c=1", "4 x torch_whole_block"] is False
    assert found["gaussian d=54 c=1", "8 x keops"] is None
    assert found["gaussian d=128 c=1", "2 x torch_whole_block"] is True
    assert found["gaussian d=784 c=1", "90% of np.matmul"] is False
    assert found["sparse", "a result"] is False
