"""Coordinate descent beside scikit-learn's lasso and liblinear, on sparse and wide rows, and on several ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

from daskkern import KernelClassifier, KernelRegressor, Linear, RandomFeatures
from daskkern.cli.main import main
from daskkern.errors import SpecError
from daskkern.losses import Huber, Logistic
from daskkern.solvers import CoordinateDescent
from daskkern.solvers.coordinate_descent.quadratic import minimise, violation
from tests.support.solvers.table import Row, row_fit

PLAIN: dict[str, Any] = {"dtype": "float64", "fit_intercept": False, "scale": None, "device": "cpu"}
N, D = 300, 30


def _rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) + rng.standard_normal((N, 1))  # correlated
    weights = np.zeros(D)
    weights[:5] = [3.0, -2.0, 1.5, -1.0, 0.5]
    y = X @ weights + 0.5 * rng.standard_normal(N)
    return X, (y - y.mean()) / y.std()  # targets are fitted in units of their deviation


def _regressor(l1: float, alpha: float = 0.0, working_set: int = 1024) -> KernelRegressor:
    solver = CoordinateDescent(l1, working_set, tol=1e-10)
    return KernelRegressor("linear", "squared", Linear(intercept=False), solver, alpha, max_epochs=60, **PLAIN)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("working_set", [1024, 8])
def test_it_is_the_lasso_and_the_elastic_net(alpha: float, working_set: int) -> None:
    X, y = _rows()
    peer = ElasticNet(0.05 + alpha, l1_ratio=0.05 / (0.05 + alpha), fit_intercept=False, tol=1e-13, max_iter=100000)
    wanted = peer.fit(X, y).coef_
    model = _regressor(0.05, alpha, working_set).fit(X, y)
    np.testing.assert_allclose(model.predict(np.eye(D)), wanted, atol=1e-9)
    assert len(model.dual_coef_) == np.count_nonzero(wanted) < D / 2
    assert len(model.history_) == 2 or working_set < D


def test_wide_sparse_rows_need_no_matrix_of_all_columns() -> None:
    X = sp.random(150, 1500, 0.02, random_state=0, format="csr")
    y = np.asarray(X[:, :20].sum(axis=1)).ravel()
    y = (y - y.mean()) / y.std()
    wanted = Lasso(5e-3, fit_intercept=False, tol=1e-12, max_iter=100000).fit(X, y)
    model = _regressor(5e-3, working_set=200).fit(X, y)
    np.testing.assert_allclose(model.predict(X).ravel(), wanted.predict(X), atol=1e-6)
    assert len(model.dual_coef_) == np.count_nonzero(wanted.coef_)


@pytest.mark.parametrize("working_set", [1024, 8])
def test_it_is_the_sparse_logistic_model_of_liblinear(working_set: int) -> None:
    X, y = _rows()
    peer = LogisticRegression(
        l1_ratio=1, C=1 / (N * 0.02), solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10000
    )
    wanted = peer.fit(X, y > 0).coef_.ravel()
    solver = CoordinateDescent(0.02, working_set, tol=1e-9)
    model = KernelClassifier("linear", "logistic", Linear(intercept=False), solver, 0.0, 60, **PLAIN).fit(X, y > 0)
    found = model.decision_function(np.eye(D)).ravel()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.count_nonzero(found) == np.count_nonzero(wanted)


def test_ranks_find_the_same_sparse_model() -> None:
    solver = CoordinateDescent(1e-2, working_set=40)
    row = Row(solver, Logistic(), RandomFeatures(60), 40)
    fit = row_fit(row)
    alone = fit.scores(fit.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, atol=1e-9)
    used = [
        np.count_nonzero(np.concatenate([each.coef for each in fit.results(ranks)]).any(axis=1)) for ranks in (1, 2)
    ]
    assert used[0] == used[1] < 60


def test_every_move_lowers_the_function_and_rounding_ends_it() -> None:
    rng = np.random.default_rng(1)
    B = rng.standard_normal((20, 40))  # of rank 20
    A, b, l1 = B.T @ B, B.T @ rng.standard_normal(20), 0.5

    def function(v: Any) -> float:
        return float(v @ A @ v / 2 + b @ v + l1 * np.abs(v).sum())

    found = minimise(A, b, l1, np.zeros(40), 0.0)
    assert violation(A @ found + b, found, l1).max() < 1e-10
    assert function(found) <= min(function(found + 1e-3 * rng.standard_normal(40)) for _ in range(50))
    again = minimise(A, b, l1, found, 1e-9)
    np.testing.assert_array_equal(again, found)


def test_more_columns_than_the_rank_are_solved_for_at_once() -> None:
    rng = np.random.default_rng(2)
    B = rng.standard_normal((15, 60)) / 15**0.5
    A, b, l1 = B.T @ B, B.T @ rng.standard_normal(15), 1e-4
    found = minimise(A, b, l1, np.zeros(60), 1e-5)
    assert np.count_nonzero(found) > 15
    assert violation(A @ found + b, found, l1).max() < 1e-3


@pytest.mark.parametrize("max_epochs", [1, 2, 5])
def test_a_fit_that_ends_early_is_no_worse_than_the_model_0(max_epochs: int) -> None:
    """A step of a loss that is flat in places may be far too long; only a pass over the rows says so."""
    X, y = _rows()
    solver = CoordinateDescent(1e-3)
    model = KernelRegressor("linear", Huber(0.1), Linear(intercept=False), solver, 0.0, max_epochs, **PLAIN).fit(X, y)

    def loss(errors: Any) -> float:
        sizes = np.abs(errors)
        return float(np.where(sizes < 0.1, sizes**2 / 2, 0.1 * (sizes - 0.05)).mean())

    assert loss(model.predict(X) - y) <= loss(y) * (1 + 1e-6)


def test_an_automatic_penalty_is_none_beside_l1() -> None:
    X, y = _rows()
    assert KernelRegressor("linear", basis=Linear(), solver=CoordinateDescent(0.05)).fit(X, y).alpha_ == 0.0


def test_a_large_penalty_leaves_nothing() -> None:
    X, y = _rows()
    model = _regressor(10.0).fit(X, y)
    assert not model.predict(X).any()


def test_info_counts_the_columns_of_a_sparse_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = _rows()
    model = _regressor(0.05).fit(X, y)
    model.save(tmp_path / "model.zarr")
    with pytest.raises(SystemExit, match="0"):
        main(["info", str(tmp_path / "model.zarr")])
    assert f"{len(model.dual_coef_)} of 30" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"l1": -1.0}, "l1=-1.0"), ({"working_set": 3}, "working_set=3"), ({"tol": -1.0}, "tol=-1.0")],
)
def test_settings_without_a_meaning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        CoordinateDescent(**changes)


def test_a_loss_without_a_second_derivative_is_refused() -> None:
    X, y = _rows()
    with pytest.raises(SpecError, match="coordinate_descent"):
        KernelClassifier("linear", "hinge", Linear(), "coordinate_descent").fit(X, y > 0)
