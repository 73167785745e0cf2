"""The dtype of fits that name none: float64 where few rows are solved exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import daskkern
from daskkern import KernelClassifier, KernelRegressor
from daskkern.cli.main import cli
from daskkern.errors import SpecError
from daskkern.models import load_model
from daskkern.training.setup.defaults import MOST_EXACT


def _smooth(n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])


def _relative_error(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(((model.predict(X) - y) ** 2).mean() / y.var())


def test_functions_without_noise_are_resolved_beyond_float32() -> None:
    X, y = _smooth(600)
    wide = KernelRegressor(random_state=0).fit(X[:300], y[:300])
    assert wide.model_.coef.dtype == np.float64
    assert _relative_error(wide, X[300:], y[300:]) < 1e-7
    named = KernelRegressor(random_state=0, dtype="float32").fit(X[:300], y[:300])
    assert named.model_.coef.dtype == np.float32
    assert _relative_error(named, X[300:], y[300:]) > 10 * _relative_error(wide, X[300:], y[300:])


@pytest.mark.parametrize(
    ("changes", "n_rows", "expected"),
    [
        ({}, MOST_EXACT, "float64"),
        ({}, MOST_EXACT + 1, "float32"),
        ({}, None, "float32"),
        ({"dtype": "float32"}, 500, "float32"),
        ({"dtype": "float64"}, MOST_EXACT + 1, "float64"),
        ({"solver": "direct"}, 500, "float64"),
        ({"solver": "direct"}, MOST_EXACT + 1, "float32"),
        ({"solver": "direct", "precision": "float32"}, 500, "float32"),
        ({"solver": "eigenpro"}, 500, "float32"),
        ({"max_epochs": 3}, 500, "float32"),
        ({"warm_start": True}, 500, "float32"),
    ],
    ids=str,
)
def test_it_follows_solver_and_rows(changes: dict[str, Any], n_rows: int | None, expected: str) -> None:
    assert KernelRegressor(**changes).fit_settings(n_rows).dtype == expected


@pytest.mark.parametrize("dtype", ["float16", np.float32, None])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(SpecError, match="expected one of 'auto', 'float32', 'float64'"):
        KernelRegressor(dtype=dtype).fit_settings(100)


def test_classifiers_with_other_losses_keep_float32() -> None:
    assert KernelClassifier().fit_settings(300).dtype == "float32"
    assert KernelClassifier(loss="squared").fit_settings(300).dtype == "float64"


def test_the_command_line_chooses_likewise(tmp_path: Path) -> None:
    X, y = _smooth(300)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr")
    model = str(tmp_path / "m.zarr")
    for options, expected in (
        ((), np.float64),
        (("--dtype", "auto"), np.float64),
        (("--dtype", "float32"), np.float32),
        (("--solver", "eigenpro"), np.float32),
    ):
        words = ["fit", str(tmp_path / "rows.zarr"), "--out", model, "--overwrite", "--workers", "0", *options]
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert load_model(model).coef.dtype == expected


def test_a_store_can_follow_an_exact_fit_batch_by_batch() -> None:
    X, y = _smooth(300)
    model = KernelRegressor(random_state=0).fit(X, y)
    again = KernelRegressor(random_state=0).partial_fit(X[:150], y[:150]).partial_fit(X[150:], y[150:])
    assert (model.model_.coef.dtype, again.model_.coef.dtype) == (np.float64, np.float32)
