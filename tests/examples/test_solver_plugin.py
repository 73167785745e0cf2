"""A solver in a project of its own: planned, fitted on a cluster and resumed like those of the package."""

import importlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.errors import SpecError
from daskkern.solvers import NYTRO, parse_solver

ROOT = Path(daskkern.__file__).parents[1]
PROJECT = ROOT / "examples" / "solver_plugin"
COLUMNS = ["--landmarks", "120", "--kernel", "gaussian:4", "--loss", "squared_hinge", "--solver", "landweber"]

pytestmark = pytest.mark.skipif(
    not PROJECT.exists(), reason="the project lies in the repository: run the tests from a clone"
)


@dataclass(frozen=True)
class Environment:
    """A folder with a store, and an environment in which the project is installed."""

    folder: Path
    variables: dict[str, str]

    def run(self, *words: str) -> str:
        """Run the command line and return all that it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "daskkern", *words],
            cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("landweber")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    pip += ["--disable-pip-version-check", "--target", str(site), str(PROJECT)]
    subprocess.run(pip, check=True, capture_output=True, timeout=120)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 12)).astype(np.float32)
    np.savez(folder / "d.npz", X=X, y=(X[:, 0] > 0) + 2 * (X[:, 1] > 0))
    daskkern.ingest([str(folder / "d.npz")], folder / "d.zarr")
    return Environment(folder, os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])})


@pytest.mark.repeated
@pytest.mark.timeout(240)
def test_its_plan_has_its_bytes_and_its_seconds(environment: Environment) -> None:
    said = environment.run("plan", "d.zarr", *COLUMNS, "--workers", "2")
    assert "factor of the landmarks" in said
    assert "solves" in said


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_fit_on_a_cluster_is_resumed_to_the_same_bits(environment: Environment) -> None:
    fit = ["fit", "d.zarr", *COLUMNS, "--workers", "2", "--set", "solver.step_scale=1.5"]
    said = environment.run(*fit, "--epochs", "6", "--out", "whole.zarr")
    assert "rows distributed to 2 ranks, all columns on each" in said
    environment.run(*fit, "--epochs", "3", "--out", "part.zarr", "--checkpoint", "c")
    said = environment.run(*fit, "--epochs", "6", "--out", "part.zarr", "--checkpoint", "c", "--resume")
    assert "going on after batch 0 of epoch 4" in said
    whole, part = (daskkern.load(environment.folder / name) for name in ("whole.zarr", "part.zarr"))
    X = np.random.default_rng(1).standard_normal((80, 12))
    np.testing.assert_array_equal(part.decision_function(X), whole.decision_function(X))


@pytest.mark.long
def test_it_is_as_accurate_as_the_same_method_in_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "src"))
    solver = importlib.import_module("daskkern_landweber").Landweber()
    X, y = load_digits(return_X_y=True)
    scores = [
        KernelClassifier("gaussian:20", "squared_hinge", Landmarks(200), each, max_epochs=30).fit(X, y).score(X, y)
        for each in (solver, NYTRO())
    ]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)
    assert scores[0] > 0.9


def test_where_it_is_not_installed_its_name_is_unknown() -> None:
    with pytest.raises(SpecError, match=r"solver 'landweber' is unknown"):
        parse_solver("landweber")
