"""The default loss of an estimator, which is one that its solver can minimise."""

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import daskkern
from daskkern import KernelClassifier, KernelRegressor, LocalRows
from daskkern.cli.main import cli
from daskkern.cli.options.fit_request import FitRequest
from daskkern.errors import SpecError
from daskkern.models import load_model
from daskkern.solvers import SOLVERS, check_fit

_RIDGE = ("direct", "pcg", "block_cd", "askotch", "local_ridge")


def _rows(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0]


@pytest.mark.parametrize("solver", [*_RIDGE, "svm", "pegasos", "sdca", "falkon", "eigenpro"])
def test_classifiers_fit_with_a_solver_alone(solver: str) -> None:
    X, y = _rows()
    model = KernelClassifier(solver=solver, device="cpu").fit(X, y > 0)
    expected = "squared" if solver in _RIDGE else "hinge" if solver == "svm" else "squared_hinge"
    assert model.model_.loss == expected
    assert model.score(X, y > 0) > 0.85


def test_a_regression_by_svm_is_that_of_support_vectors() -> None:
    X, y = _rows()
    assert KernelRegressor(solver="svm", device="cpu").fit(X, y).model_.loss == "epsilon_insensitive:0.1"


@pytest.mark.parametrize(
    ("solver", "task"),
    [
        (solver, task)
        for solver in sorted(SOLVERS.working())
        for task in ("classification", "regression")
        if (solver, task) != ("amm", "regression")  # which takes a loss of classes only
    ],
)
def test_it_is_that_of_the_command_line_and_suits_the_solver(solver: str, task: str) -> None:
    bases = SOLVERS[solver].bases
    usual = any(name in bases for name in ("all rows", "landmarks", "local rows"))
    options = {} if usual else {"basis": "linear" if "linear" in bases else "doubly_stochastic"}
    found = FitRequest({"solver": solver, **options}).settings(task, 1000)
    make: Any = KernelClassifier if task == "classification" else KernelRegressor
    settings = make(solver=solver, basis=found.basis).fit_settings(1000, task)
    assert settings.loss == found.loss
    check_fit(settings.solver, settings.loss, settings.basis.name)


def test_a_loss_that_is_named_is_refused_where_the_solver_cannot_minimise_it() -> None:
    X, y = _rows()
    with pytest.raises(SpecError, match="solver direct needs a loss with linear normal equations"):
        KernelClassifier(loss="squared_hinge", solver="direct").fit(X, y > 0)


def test_it_follows_the_solver_of_the_columns() -> None:
    assert KernelClassifier(basis=LocalRows()).fit_settings(500, "classification", 3).loss.name == "squared"


def test_auto_is_auto_at_the_command_line(tmp_path: Any) -> None:
    X, y = _rows()
    np.savez(tmp_path / "rows.npz", X=X, y=(y > 0).astype(int))
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr", task="classification")
    words = ["fit", str(tmp_path / "rows.zarr"), "--out", str(tmp_path / "m.zarr"), "--workers", "0"]
    result = CliRunner().invoke(cli, [*words, "--loss", "auto", "--solver", "svm"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "m.zarr").loss == "hinge"


def test_several_labels_and_probabilities_follow_it() -> None:
    assert KernelClassifier(solver="svm").__sklearn_tags__().classifier_tags.multi_label
    assert not KernelClassifier(solver="amm").__sklearn_tags__().classifier_tags.multi_label
    assert not hasattr(KernelClassifier(solver="svm", calibrate=False), "predict_proba")


def test_searches_set_parameters_of_the_default_loss() -> None:
    X, y = _rows()
    model = clone(KernelRegressor(solver="svm", kernel="gaussian:2", alpha=1e-3, device="cpu"))
    assert model.get_params()["loss"] == "auto"
    search = GridSearchCV(model, {"loss__epsilon": [0.05]}, cv=2).fit(X, y)
    assert search.best_estimator_.model_.loss == "epsilon_insensitive:0.05"
