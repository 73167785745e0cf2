"""Solvers refuse what they cannot minimise before any work, and name those that can."""

import numpy as np
import pytest

from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks, LocalRows
from daskkern.errors import MemoryBudgetError, SpecError
from daskkern.features import FourierFeatures
from daskkern.kernels import Cauchy, Gaussian, Kernel, Laplacian, LinearKernel, Matern
from daskkern.solvers import PCG, Falkon

X = np.random.default_rng(0).standard_normal((60, 3))


@pytest.mark.parametrize(
    ("solver", "loss", "basis", "words"),
    [
        ("falkon", "hinge", Landmarks(20), r"falkon needs a loss with a second derivative.*eigenpro, nystrom_sgd"),
        ("falkon", "squared", AllRows(), r"got all rows as centres for .*falkon.*Landmarks\(n\).*direct, pcg"),
        ("direct", "logistic", Landmarks(20), r"direct needs a loss with linear normal equations.*falkon"),
        ("local_ridge", "logistic", LocalRows(), r"the logistic loss has none; choose the loss 'squared'$"),
        (
            "eigenpro",
            "hinge",
            LocalRows(),
            r"LocalRows\(leaf_rows\): local_ridge, with the loss 'squared'$",
        ),
        ("pcg", "squared", Landmarks(20), r"got Landmarks\(n\) for solver pcg; it needs all rows as centres"),
    ],
)
def test_a_refusal_names_what_is_missing_and_who_would_do(solver, loss, basis, words):
    with pytest.raises(SpecError, match=words):
        KernelClassifier("gaussian:1", loss=loss, basis=basis, solver=solver).fit(X, np.arange(60) % 2)


def test_a_matrix_that_does_not_fit_is_refused_with_its_bytes():
    model = KernelRegressor("gaussian:1", basis=AllRows(), solver="direct", alpha=1e-3, memory_budget=450 << 20)
    rows = np.random.default_rng(0).standard_normal((4000, 3))
    with pytest.raises(MemoryBudgetError, match=r"would need .*matrix 194 MB.*landmarks instead of all 4000 rows"):
        model.fit(rows, rows[:, 0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Falkon(newton_passes=0), "newton_passes=0"),
        (lambda: Falkon(path_start=-1.0), "path_start=-1.0"),
        (lambda: PCG("incomplete_cholesky"), "choose one of nystrom, random_features, none"),
        (lambda: PCG(rank=1), "rank=1"),
        (lambda: FourierFeatures(LinearKernel(), 10, 0), "linear kernel"),
        (lambda: FourierFeatures(Gaussian(1.0), 5, 0), "even number"),
    ],
)
def test_a_setting_without_a_meaning_is_one_sentence(make, words):
    with pytest.raises(SpecError, match=words):
        make()


@pytest.mark.parametrize("kernel", [Gaussian(2.0), Laplacian(2.0), Matern(2.0, nu=2.5), Cauchy((1.0, 2.0, 3.0))])
def test_inner_products_of_random_features_come_near_the_kernel(kernel: Kernel) -> None:
    K = kernel.block(X, X)
    errors = []
    for n in (200, 20_000):
        phi = FourierFeatures(kernel, n, 0)(X)
        errors.append(np.abs(phi @ phi.T - K).mean())
    assert errors[1] < 0.2 * errors[0]  # the error falls like n^(-1/2): by 10
    assert errors[1] < 0.01


def test_rows_that_are_dealt_are_not_sampled():
    model = KernelClassifier(
        "gaussian:1", loss="squared", basis=Landmarks(20), solver="falkon", class_weight="balanced", sampling="weighted"
    )
    with pytest.raises(SpecError, match="got sampling='weighted' for solver falkon"):
        model.fit(X, np.arange(60) % 3 == 0)
