"""Estimators warn, as scikit-learn's do, when a fit ran out of epochs before it converged."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from daskkern import KernelClassifier, KernelRegressor
from daskkern.basis import BasisSpec, DoublyStochastic, Landmarks, NystromFeatures
from daskkern.kernels import Laplacian


def _fitted(solver: str, epochs: int, basis: BasisSpec = Landmarks(200)) -> tuple[KernelRegressor, list[str]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(200)
    model = KernelRegressor(Laplacian(3.0), solver=solver, basis=basis, alpha=1e-3, max_epochs=epochs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, [str(one.message) for one in caught if issubclass(one.category, ConvergenceWarning)]


@pytest.mark.parametrize("solver", ["sgd", "adagrad", "nytro"])
def test_a_slow_solver_that_ran_out_of_epochs_says_so(solver: str) -> None:
    model, said = _fitted(solver, 12, Landmarks(200) if solver == "nytro" else NystromFeatures(200))
    assert len(said) == 1
    losses = [epoch.loss for epoch in model.history_]
    assert f"fell from {losses[5]:.3g} to {losses[11]:.3g} in the last 6 of 12 epochs; raise max_epochs" in said[0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("solver", "epochs"), [("falkon", 20), ("direct", 1), ("eigenpro", 20), ("nystrom_sgd", 20)])
def test_a_fit_that_has_converged_does_not(solver: str, epochs: int) -> None:
    assert not _fitted(solver, epochs)[1]


def test_parts_of_a_fit_are_not_judged() -> None:
    rng = np.random.default_rng(0)
    model = KernelRegressor(Laplacian(3.0), solver="sgd", basis=NystromFeatures(50), alpha=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(6):
            X = rng.standard_normal((100, 3))
            model.partial_fit(X, X[:, 0])


def test_warnings_name_the_line_that_fits() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    model = KernelRegressor(Laplacian(3.0), solver="sgd", basis=NystromFeatures(200), alpha=1e-3, max_epochs=12)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, X[:, 0])
    assert caught[0].filename == __file__
    classifier = KernelClassifier(Laplacian(3.0), basis=Landmarks(1000))
    with pytest.warns(ConvergenceWarning, match="of which 200 are landmarks") as caught:
        classifier.partial_fit(X, X[:, 0] > 0)
    assert caught[0].filename == __file__


def test_the_solver_of_doubly_stochastic_features_is_chosen() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    chosen = KernelRegressor(Laplacian(3.0), basis=DoublyStochastic(32), alpha=1e-3, calibrate=False, max_epochs=2)
    named = clone(chosen).set_params(solver="doubly_sgd")
    expected = named.fit(X, X[:, 0]).predict(X)
    np.testing.assert_array_equal(chosen.fit(X, X[:, 0]).predict(X), expected)
