"""Estimators with every solver behave as scikit-learn's do: some of its checks, and all with ``-m slow``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

import daskkern
from daskkern import (
    AllRows,
    DoublyStochastic,
    KernelClassifier,
    KernelRegressor,
    Landmarks,
    Linear,
    LocalRows,
    NystromFeatures,
    RandomFeatures,
)
from daskkern.solvers import (
    AMM,
    BSGD,
    MISO,
    NYTRO,
    S2GD,
    SAG,
    SARAH,
    SDCA,
    SGD,
    SOLVERS,
    SVM,
    SVRG,
    AdaGrad,
    EigenPro,
    Pegasos,
    parse_solver,
)

ALPHA = 1e-3
ESTIMATORS: dict[str, KernelClassifier | KernelRegressor] = {
    "sgd": KernelRegressor("gaussian:median", basis=RandomFeatures(60), solver=SGD(), max_epochs=20, batch_size=10),
    "eigenpro, features": KernelClassifier(
        "gaussian:median", "squared", RandomFeatures(60), EigenPro(), max_epochs=20, dtype="float64"
    ),
    "pegasos": KernelClassifier("linear", "hinge", Linear(), Pegasos(), ALPHA, 10),
    "sdca": KernelClassifier("gaussian:median", "hinge", NystromFeatures(30), SDCA(), ALPHA),
    "sdca, regression": KernelRegressor("gaussian:median", "squared", AllRows(), SDCA(), ALPHA, 40, dtype="float64"),
    "svm": KernelClassifier("gaussian:median", "hinge", AllRows(), SVM(), ALPHA),
    "miso": KernelRegressor("gaussian:median", "huber:1", RandomFeatures(60), MISO(), ALPHA, 40),
    "nytro": KernelClassifier("gaussian:median", "logistic", Landmarks(30), NYTRO(), ALPHA, 40),
    "adagrad": KernelRegressor("linear", "squared", Linear(), AdaGrad(l1=1e-4), ALPHA, 40),
    "coordinate_descent": KernelRegressor("linear", "squared", Linear(), "coordinate_descent", ALPHA),
    "sag": KernelRegressor("linear", "squared", Linear(), SAG(), ALPHA, 40),
    "svrg": KernelClassifier("linear", "logistic", Linear(), SVRG(), ALPHA),
    "preconditioned_svrg": KernelClassifier("linear", "logistic", Linear(), "preconditioned_svrg", ALPHA),
    "s2gd": KernelClassifier("linear", "logistic", Linear(), S2GD(), ALPHA),
    "mixed_gradient": KernelClassifier("linear", "logistic", Linear(), "mixed_gradient", ALPHA, 20),
    "sarah": KernelClassifier("linear", "logistic", Linear(), SARAH(), ALPHA),
    "norma": KernelClassifier("gaussian:median", "hinge", AllRows(), "norma", ALPHA),
    "bsgd": KernelClassifier("gaussian:median", "hinge", Landmarks(30), BSGD(), 10 * ALPHA),
    "amm": KernelClassifier("linear", "multiclass_hinge", Linear(), AMM(), ALPHA),
    "doubly_sgd": KernelClassifier(
        "gaussian:median", "hinge", DoublyStochastic(16), "doubly_sgd", ALPHA, 20, 20, dtype="float64"
    ),
    "block_cd": KernelRegressor("gaussian:median", "squared", AllRows(), "block_cd", ALPHA, dtype="float64"),
    "local_ridge": KernelRegressor("gaussian:median", "squared", LocalRows(20), "local_ridge", ALPHA, dtype="float64"),
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


@pytest.mark.one_in(19)
@pytest.mark.parametrize(("estimator", "check"), list(_cells()))
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_checks_pass_with_every_solver(estimator: Any, check: Any) -> None:
    check(estimator)


def test_every_solver_is_here_or_in_the_conventions() -> None:
    here = {parse_solver(estimator.solver).name for estimator in ESTIMATORS.values()}
    assert here | {"eigenpro", "nystrom_sgd", "falkon", "direct", "pcg"} == set(SOLVERS)


@pytest.mark.parametrize(
    ("loss", "several"),
    [("logistic", True), ("multiclass_hinge", False), ("multinomial_logistic", False), ("?", False)],
)
def test_losses_of_exclusive_classes_are_not_announced_for_several_labels(loss: str, several: bool) -> None:
    assert KernelClassifier(loss=loss).__sklearn_tags__().classifier_tags.multi_label == several


@pytest.mark.parametrize("solver", ["sgd", "pegasos", "sdca"])
@pytest.mark.parametrize("length_scale", [0.05, 0.3])
def test_rows_that_are_far_from_each_other(solver: str, length_scale: float) -> None:
    X = np.random.default_rng(0).standard_normal((500, 20))  # the kernel matrix is nearly the identity
    model = KernelClassifier(f"gaussian:{length_scale}", "hinge", AllRows(), solver, ALPHA, 2, device="cpu")
    assert model.fit(X, X[:, 0] > 0).score(X, X[:, 0] > 0) > 0.9


@pytest.mark.parametrize("kernel", ["gaussian:10", "linear"])
def test_askotch_meets_blocks_of_low_rank(kernel: str) -> None:
    X = np.random.default_rng(0).standard_normal((500, 5))
    model = KernelRegressor(kernel, "squared", AllRows(), "askotch", 1e-6, 20, device="cpu")
    assert model.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.95


def test_models_of_zeros_and_of_one_feature_are_read_again(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((60, 1))
    one = KernelClassifier("linear", "hinge", Linear(), "sdca", 1e-2, device="cpu").fit(X, X[:, 0] > 0)
    zero = KernelRegressor("gaussian:1", "squared", AllRows(), device="cpu").fit(X, np.full(60, 3.0))
    for number, model in enumerate((one, zero)):
        model.save(tmp_path / f"{number}.zarr")
        light = daskkern.load(tmp_path / f"{number}.zarr")
        np.testing.assert_array_equal(light.predict(X), model.predict(X))


def test_growing_features_go_on_with_early_stopping() -> None:
    X = np.random.default_rng(0).standard_normal((200, 3))
    model = KernelClassifier(
        "gaussian:2", "hinge", DoublyStochastic(8), "doubly_sgd", 1e-2, 3, 32, True, warm_start=True, device="cpu"
    ).fit(X, X[:, 0] > 0)
    assert model.set_params(max_epochs=6).fit(X, X[:, 0] > 0).n_iter_ > 3
