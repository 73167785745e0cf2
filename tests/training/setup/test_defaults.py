"""The columns and the solver of fits that name none."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score

import daskkern
from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks
from daskkern.cli.main import cli
from daskkern.losses import Squared
from daskkern.models import load_model
from daskkern.solvers import EigenPro
from daskkern.training.setup.defaults import MOST_EXACT


def solver_of(model: Any) -> str:
    return str(model.provenance["settings"]["solver"]["name"])


def test_few_rows_are_solved_exactly_by_default() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=400)
    settings: dict[str, Any] = {"kernel": "gaussian:1.5", "alpha": 1e-4, "scale": None, "fit_intercept": False}
    found = KernelRegressor(**settings).fit(X, y)
    assert (solver_of(found.model_), found.n_iter_) == ("direct", 1)
    exact = KernelRidge(kernel="rbf", gamma=0.5 / 1.5**2, alpha=400 * 1e-4).fit(X, y)
    np.testing.assert_allclose(found.predict(X), exact.predict(X), atol=2e-3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "direct"),
        ({"basis": AllRows()}, "direct"),
        ({"device": "cpu", "calibrate": False, "random_state": 3, "alpha": 0.1}, "direct"),
        ({"solver": "eigenpro"}, "eigenpro"),
        ({"solver": EigenPro()}, "eigenpro"),
        ({"basis": Landmarks(50)}, "eigenpro"),
        ({"loss": "huber"}, "eigenpro"),
        ({"max_epochs": 3}, "eigenpro"),
        ({"batch_size": 50}, "eigenpro"),
        ({"early_stopping": True}, "eigenpro"),
        ({"max_seconds": 100.0}, "eigenpro"),
        ({"warm_start": True}, "eigenpro"),
        ({"checkpoint": "progress.zarr"}, "eigenpro"),
        ({"virtual_shards": 4}, "eigenpro"),
        ({"groups": 1}, "eigenpro"),
        ({"keep_blocks": "memory"}, "eigenpro"),
        ({"memory_budget": 1 << 30}, "eigenpro"),
        ({"alpha": 0.0}, "eigenpro"),
    ],
    ids=str,
)
def test_what_asks_for_epochs_or_ranks_keeps_the_iterative_solver(changes: dict[str, Any], expected: str) -> None:
    assert KernelRegressor(**changes).fit_settings(n_rows=500).solver.name == expected


def test_more_rows_and_rows_that_follow_are_iterated_over() -> None:
    assert KernelRegressor().fit_settings(MOST_EXACT).solver.name == "direct"
    assert KernelRegressor().fit_settings(MOST_EXACT + 1).solver.name == "eigenpro"
    assert KernelRegressor().fit_settings(None).solver.name == "eigenpro"
    assert KernelClassifier().fit_settings(100).solver.name == "eigenpro"
    assert KernelClassifier(loss=Squared()).fit_settings(100).solver.name == "direct"


@pytest.mark.parametrize("scale", ["minmax", "auto"])
def test_targets_without_noise_are_fitted_in_float32(scale: str) -> None:
    """Their best penalty is below the rounding of the kernel, whose matrix then has negative eigenvalues."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    y = np.sin(X[:, 0]) + X[:, 1]
    model = KernelRegressor(scale=scale).fit(X[:400], y[:400])
    assert solver_of(model.model_) == "direct"
    assert r2_score(y[400:], model.predict(X[400:])) > 0.98


def test_the_command_line_has_the_same_default(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", X=X, y=X[:, 0] + 0.1 * rng.normal(size=300))
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr")
    store, model = str(tmp_path / "rows.zarr"), str(tmp_path / "m.zarr")
    for options, expected in ((), "direct"), (("--epochs", "10"), "eigenpro"), (("--solver", "falkon"), "falkon"):
        words = ["fit", store, "--out", model, "--overwrite", *options]
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert solver_of(load_model(model)) == expected


def test_a_resumed_fit_has_the_solver_that_it_began_with(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(300, 3)).astype(np.float32), y=rng.normal(size=300))
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr")
    store, model = str(tmp_path / "rows.zarr"), str(tmp_path / "m.zarr")

    def fit(progress: str, *options: str) -> tuple[int, str]:
        words = ["fit", store, "--out", model, "--checkpoint", str(tmp_path / progress), *options]
        result = CliRunner().invoke(cli, words)
        return result.exit_code, str(result.exception or "")

    assert fit("iterated", "--epochs", "3") == (0, "")
    shutil.rmtree(model)
    assert fit("iterated", "--resume") == (0, "")
    assert solver_of(load_model(model)) == "eigenpro"
    assert len(load_model(model).provenance["history"]) == 10
    shutil.rmtree(model)
    assert fit("exact") == (0, "")
    shutil.rmtree(model)
    assert fit("exact", "--resume") == (0, "")
    assert solver_of(load_model(model)) == "direct"
    shutil.rmtree(model)
    code, error = fit("exact", "--resume", "--epochs", "20")
    assert code != 0
    assert "got --epochs with solver direct, which has no epochs" in error
