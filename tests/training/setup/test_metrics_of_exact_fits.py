"""The metric of exact regressions, which is learned where nobody says whether to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import r2_score

import daskkern
from daskkern import KernelClassifier, KernelRegressor
from daskkern.cli.main import cli
from daskkern.feature_learning import FeatureLearning
from daskkern.models import load_model
from daskkern.training.setup.defaults import MOST_LEARNED


def _one_of_many(n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 12))
    return X, np.sin(3 * X[:, 0])


def test_a_function_of_one_of_twelve_features_is_found() -> None:
    X, y = _one_of_many(700)
    learned = KernelRegressor(random_state=0).fit(X[:400], y[:400])
    plain = KernelRegressor(random_state=0, learn_features=False).fit(X[:400], y[:400])
    errors = [1 - r2_score(y[400:], model.predict(X[400:])) for model in (learned, plain)]
    assert errors[0] < 0.2 * errors[1]


@pytest.mark.parametrize(
    ("changes", "n_rows", "n_features", "expected"),
    [
        ({}, MOST_LEARNED, 100, True),
        ({}, MOST_LEARNED + 1, 100, False),
        ({}, MOST_LEARNED, 101, False),
        ({}, 300, 10_000, True),
        ({}, 301, 10_000, False),
        ({}, 500, None, False),
        ({"learn_features": False}, 500, 5, False),
        ({"kernel": "laplacian:median"}, 500, 5, False),
        ({"kernel": "laplacian:median", "learn_features": True}, 500, 5, True),
        ({"solver": "eigenpro"}, 500, 5, False),
        ({"solver": "direct"}, 500, 5, True),
        ({"loss": "huber"}, 500, 5, False),
    ],
    ids=str,
)
def test_where_it_is_learned(changes: dict[str, Any], n_rows: int, n_features: int | None, expected: bool) -> None:
    settings = KernelRegressor(**changes).fit_settings(n_rows, "regression", n_features)
    assert settings.learn_features == (FeatureLearning() if expected else None)


def test_classifiers_learn_it_on_request() -> None:
    assert KernelClassifier(loss="squared").fit_settings(500, "classification", 5).learn_features is None


def test_the_command_line_has_the_same_default(tmp_path: Path) -> None:
    X, y = _one_of_many(200)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr")
    model = str(tmp_path / "m.zarr")
    for options, expected in ((), True), (("--learn-features", "none"), False), (("--kernel", "gaussian:2"), False):
        words = ["fit", str(tmp_path / "rows.zarr"), "--out", model, "--overwrite", "--workers", "0", *options]
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert ("learn_features" in load_model(model).provenance["settings"]) is expected
