"""Estimators with every solver behave as scikit-learn's do: some of its checks, and all with ``-m slow``."""

from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from daskkern import (
    AllRows,
    DoublyStochastic,
    KernelClassifier,
    KernelRegressor,
    Landmarks,
    Linear,
    NystromFeatures,
    RandomFeatures,
)
from daskkern.solvers import AMM, BSGD, SAG, SARAH, SDCA, SGD, SOLVERS, SVRG, EigenPro, Pegasos, parse_solver

ALPHA = 1e-3
ESTIMATORS: dict[str, KernelClassifier | KernelRegressor] = {
    "sgd": KernelRegressor("gaussian:median", basis=RandomFeatures(60), solver=SGD(), max_epochs=20, batch_size=10),
    "eigenpro, features": KernelClassifier("gaussian:median", "squared", RandomFeatures(60), EigenPro(), max_epochs=20),
    "pegasos": KernelClassifier("linear", "hinge", Linear(), Pegasos(), ALPHA, 10),
    "sdca": KernelClassifier("gaussian:median", "hinge", NystromFeatures(30), SDCA(), ALPHA),
    "sdca, regression": KernelRegressor("gaussian:median", "squared", AllRows(), SDCA(), ALPHA, 40, dtype="float64"),
    "sag": KernelRegressor("linear", "squared", Linear(), SAG(), ALPHA, 40),
    "svrg": KernelClassifier("linear", "logistic", Linear(), SVRG(), ALPHA),
    "sarah": KernelClassifier("linear", "logistic", Linear(), SARAH(), ALPHA),
    "norma": KernelClassifier("gaussian:median", "hinge", AllRows(), "norma", ALPHA),
    "bsgd": KernelClassifier("gaussian:median", "hinge", Landmarks(30), BSGD(), ALPHA),
    "amm": KernelClassifier("linear", "multiclass_hinge", Linear(), AMM(), ALPHA),
    "doubly_sgd": KernelClassifier("gaussian:median", "hinge", DoublyStochastic(16), "doubly_sgd", ALPHA, 20, 20),
    "block_cd": KernelRegressor("gaussian:median", "squared", AllRows(), "block_cd", ALPHA, dtype="float64"),
    "askotch": KernelRegressor("gaussian:median", "squared", AllRows(), "askotch", ALPHA, 20, dtype="float64"),
}
SELECTED = {
    "check_dict_unchanged",
    "check_dont_overwrite_attributes",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_classifiers_one_label",
    "check_classifiers_classes",
    "check_estimator_sparse_array",
    "check_regressors_int",
    "check_sample_weights_not_overwritten",
}
KNOWN = {
    "check_parameters_default_constructible",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}
"""Explained in test_sklearn_conventions.py."""


def _name(check: Any) -> str:
    return str(getattr(check, "func", check).__name__)


def _cells() -> Iterator[Any]:
    for name, estimator in ESTIMATORS.items():
        for number, (made, check) in enumerate(estimator_checks_generator(estimator.set_params(device="cpu"))):
            if _name(check) not in KNOWN:
                marks = [] if _name(check) in SELECTED else [pytest.mark.slow]
                yield pytest.param(made, check, id=f"{name}, {_name(check)}, {number}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(_cells()))
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_checks_pass_with_every_solver(estimator: Any, check: Any) -> None:
    check(estimator)


def test_every_solver_is_here_or_in_the_conventions() -> None:
    here = {parse_solver(estimator.solver).name for estimator in ESTIMATORS.values()}
    assert here | {"eigenpro", "nystrom_sgd", "falkon", "direct", "pcg"} == set(SOLVERS)
