"""Estimators warn, as scikit-learn's do, when a fit ran out of epochs before it converged."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from daskkern import KernelRegressor
from daskkern.basis import BasisSpec, Landmarks, NystromFeatures
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
