"""Rounded features reach the products of a fit, and nothing else."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from daskkern import KernelClassifier
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian
from daskkern.solvers import EigenPro, NystromSGD, Solver


def _fit(precision: str | None, basis: BasisSpec, solver: Solver, scale: float = 1.0) -> KernelClassifier:
    X, y = load_digits(return_X_y=True)
    X = X * scale + 1 / 3
    model = KernelClassifier(
        Gaussian(20.0 * scale), basis=basis, solver=solver, max_epochs=3, device="cpu", precision=precision
    )
    return model.fit(X[:600], y[:600])


@pytest.mark.long
@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("basis", "solver"),
    [
        (Landmarks(200), EigenPro()),
        (Landmarks(200), EigenPro(window=3)),
        (AllRows(), EigenPro()),
        (Landmarks(100), NystromSGD(mode="streamed")),
        (Landmarks(100), NystromSGD(mode="stored")),
    ],
)
def test_rounded_features_change_the_model_a_little(basis: BasisSpec, solver: Solver) -> None:
    exact = _fit(None, basis, solver)
    same = _fit("float32", basis, solver)
    rounded = _fit("tf32", basis, solver)
    assert np.array_equal(exact.dual_coef_, same.dual_coef_)
    assert not np.array_equal(exact.dual_coef_, rounded.dual_coef_)
    X, y = load_digits(return_X_y=True)
    X = X + 1 / 3
    assert abs(exact.score(X[1200:], y[1200:]) - rounded.score(X[1200:], y[1200:])) < 0.02


def test_float64_is_a_dtype_too() -> None:
    assert _fit("float64", Landmarks(50), EigenPro()).dual_coef_.dtype == np.float64


def test_precisions_that_do_not_exist_or_do_not_fit_are_refused() -> None:
    with pytest.raises(SpecError, match="got precision 'half'; choose one of"):
        _fit("half", Landmarks(50), EigenPro())
    X, y = load_digits(return_X_y=True)
    with pytest.raises(SpecError, match="got both dtype"):
        KernelClassifier(precision="tf32", dtype="float64").fit(X, y)
