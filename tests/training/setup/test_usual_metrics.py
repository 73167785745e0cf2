"""The metric of fits to tables, which is learned where nobody says whether to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import r2_score

import daskkern
from daskkern import (
    AutoKernelClassifier,
    AutoKernelRegressor,
    KernelClassifier,
    KernelRegressor,
    Linear,
    RandomFeatures,
)
from daskkern.cli.main import cli
from daskkern.cli.options.fit_request import FitRequest
from daskkern.estimators.auto_base import parameters_of
from daskkern.feature_learning import FeatureLearning
from daskkern.model_selection.search import LEAST_ROWS
from daskkern.models import load_model
from daskkern.training.setup.defaults import MOST_CENTRES, MOST_LEARNED


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
        ({}, MOST_LEARNED, 101, False),
        ({}, MOST_LEARNED + 1, 100, True),
        ({}, 10**7, 100, True),
        ({}, 10**7, 101, False),
        ({"max_epochs": 20}, 10**5, 5, True),
        ({"max_seconds": 60.0}, 10**5, 5, False),
        ({"memory_budget": 10**9}, 10**5, 5, False),
        ({"solver": "eigenpro"}, 10**5, 5, False),
        ({"alpha": 0.0}, 10**5, 5, False),
        ({"basis": RandomFeatures(100)}, 10**5, 5, True),
        ({"basis": Linear(), "kernel": "auto"}, 10**5, 5, False),
        ({"loss": "huber"}, 10**5, 5, False),
        ({"warm_start": True}, 10**5, 5, False),
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


def test_classes_of_one_of_twelve_features_are_found() -> None:
    X, y = _one_of_many(700)
    learned, plain = (
        KernelClassifier(random_state=0, learn_features=choice).fit(X[:400], y[:400] > 0) for choice in (None, False)
    )
    errors = [1 - model.score(X[400:], y[400:] > 0) for model in (learned, plain)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize(
    ("changes", "n_rows", "n_features", "n_classes", "expected"),
    [
        ({}, MOST_LEARNED, 100, 10, True),
        ({}, MOST_LEARNED, 101, 10, False),
        ({}, MOST_LEARNED, 100, 11, False),
        ({}, 300, 100, 1000, True),
        ({}, MOST_LEARNED + 1, 5, 2, False),
        ({}, MOST_CENTRES, 5, 2, False),
        ({}, MOST_CENTRES + 1, 100, 10, True),
        ({}, 10**7, 101, 2, False),
        ({}, 10**7, 100, 11, False),
        ({}, None, 5, 2, False),
        ({}, 500, None, 2, False),
        ({}, 500, 5, 0, False),
        ({"loss": "logistic"}, 500, 5, 2, True),
        ({"loss": "squared"}, 500, 5, 2, True),
        ({"max_epochs": 20}, 500, 5, 2, True),
        ({"max_seconds": 60.0}, 500, 5, 2, False),
        ({"memory_budget": 10**9}, 500, 5, 2, False),
        ({"solver": "eigenpro"}, 10**5, 5, 2, False),
        ({"alpha": 0.0}, 500, 5, 2, False),
        ({"warm_start": True}, 500, 5, 2, False),
        ({"basis": Linear(), "kernel": "auto"}, 500, 5, 2, False),
        ({"kernel": "laplacian:median"}, 500, 5, 2, False),
        ({"learn_features": False}, 500, 5, 2, False),
    ],
    ids=str,
)
def test_where_that_of_classes_is_learned(
    changes: dict[str, Any], n_rows: int | None, n_features: int | None, n_classes: int, expected: bool
) -> None:
    settings = KernelClassifier(**changes).fit_settings(n_rows, "classification", n_features, n_classes)
    assert settings.learn_features == (FeatureLearning() if expected else None)
    values = {name: value for name, value in changes.items() if name in ("loss", "solver", "alpha", "kernel")}
    if values == changes:
        found = FitRequest(values).settings("classification", n_rows, None, n_features, n_classes)
        assert found.learn_features == settings.learn_features


def test_several_labels_a_row_have_it_on_request() -> None:
    assert KernelClassifier().fit_settings(500, "regression", 5, 2).learn_features is None
    assert FitRequest({"multilabel": True}).settings("regression", 500, None, 5, 2).learn_features is None


@pytest.mark.parametrize("search", [AutoKernelRegressor, AutoKernelClassifier])
def test_the_defaults_of_a_search_are_those_of_a_fit(search: Any) -> None:
    X, y = _one_of_many(LEAST_ROWS - 1)  # too few for a search
    y = y > 0 if search is AutoKernelClassifier else y
    fitted = search(device="cpu").fit(X, y)
    assert fitted.best_params_["learn_features"] == FeatureLearning()
    make: Any = KernelClassifier if search is AutoKernelClassifier else KernelRegressor
    np.testing.assert_array_equal(fitted.predict(X), make(**fitted.best_params_, device="cpu").fit(X, y).predict(X))


def test_what_a_search_chooses_without_a_metric_has_none_when_it_is_fitted_again() -> None:
    settings = KernelRegressor(learn_features=False).fit_settings(500, "regression", 5)
    again = KernelRegressor(**parameters_of(settings)).fit_settings(500, "regression", 5)
    assert again.learn_features is None


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


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("had_metric", [False, True])
def test_a_run_is_resumed_with_the_metric_that_it_began_with(had_metric: bool, task: str) -> None:
    begun = {"solver": {"name": "eigenpro"}} | ({"learn_features": {}} if had_metric else {})
    settings = FitRequest({}).settings(task, 10**5, begun, 5)
    assert (settings.learn_features is not None) is had_metric


def test_a_run_that_is_resumed_with_less_memory_keeps_its_metric() -> None:
    begun = {"solver": {"name": "eigenpro"}, "learn_features": {}}
    assert FitRequest({"memory": "1GB"}).settings("regression", 10**5, begun, 5).learn_features == FeatureLearning()
    assert FitRequest({"memory": "1GB"}).settings("regression", 10**5, None, 5).learn_features is None
