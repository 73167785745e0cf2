"""What the rows of a fit choose - the kernel, and whether features are bent - is good for them, and scale-free."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern import KernelClassifier, KernelRegressor, load
from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks, Linear, RandomFeatures
from daskkern.data.schema.schema import Scaling
from daskkern.errors import SpecError
from daskkern.events import Event, StageFinished
from daskkern.kernels import AutoKernel, Gaussian, L1Laplacian, Laplacian, LinearKernel, Matern, from_spec, parse_kernel
from daskkern.kernels.functions.auto import MANY_FEATURES, MOST_FEATURES, SEVERAL_FEATURES
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.kernel_choice import n_kernels

RNG = np.random.default_rng
FIT: dict[str, Any] = {"max_epochs": 1, "device": "cpu"}


def _smooth(n: int, seed: int = 0) -> tuple[HostArray, HostArray]:
    X = RNG(seed).standard_normal((n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * np.cos(X[:, 2])


def _rings(n: int) -> tuple[HostArray, HostArray]:
    """Return two normal clouds, one wide and one narrow (Breiman's ringnorm): distances from the centre tell."""
    rng, y = RNG(0), np.arange(n) % 2
    return np.where(y[:, None] == 0, 2.0, 1.0) * rng.standard_normal((n, 20)) + 0.45 * y[:, None], y


def _tails(n: int) -> tuple[HostArray, HostArray]:
    """Return amounts of which the ratio to the median tells."""
    rng = RNG(0)
    X = np.exp(2 * rng.standard_normal((n, 6)))
    return X, (np.log(X[:, :2]).sum(axis=1) > 0).astype(int)


def test_a_smooth_function_gets_a_smooth_kernel_and_less_error() -> None:
    X, y = _smooth(600)
    X_new, y_new = _smooth(400, seed=1)
    models = [KernelRegressor(kernel, random_state=0).fit(X, y) for kernel in ("auto", "laplacian:median")]
    assert isinstance(models[0].model_.kernel, Gaussian | Matern)
    errors = [float(np.mean((model.predict(X_new) - y_new) ** 2)) for model in models]
    assert errors[0] < 0.8 * errors[1]


def test_exact_solutions_may_have_smooth_kernels_of_twice_the_length_scale() -> None:
    X = RNG(0).standard_normal((500, 4))
    y = X @ [1.0, 2.0, -1.0, 0.5] + 0.1 * X[:, 0] ** 2 + 0.05 * RNG(1).standard_normal(500)
    longer = AutoKernel().candidates(X, longer=True)
    assert {kernel.spec()["name"] for kernel in set(longer) - set(AutoKernel().candidates(X))} == {
        "gaussian",
        "matern32",
    }
    errors = {}
    for kernel in ("auto", "gaussian:median", "matern32:median"):
        model = KernelRegressor(kernel).fit(X[:300], y[:300])
        errors[kernel] = float(np.mean((model.predict(X[300:]) - y[300:]) ** 2))
    assert errors["auto"] < 0.9 * min(errors["gaussian:median"], errors["matern32:median"])


def test_solvers_that_leave_small_eigenvalues_as_they_were_have_the_laplacian() -> None:
    X, y = _smooth(600)
    for solver in ("falkon", "nytro", "pcg"):
        basis = AllRows() if solver == "pcg" else Landmarks(50)
        model = KernelRegressor(basis=basis, solver=solver, alpha=1e-3, random_state=0, **FIT).fit(X, y).model_
        assert isinstance(model.kernel, Laplacian), solver


@pytest.mark.parametrize("n", [2, 9, 300])
def test_where_rows_say_nothing_it_is_the_laplacian_with_the_median_distance(n: int) -> None:
    X, y = RNG(0).standard_normal((n, 4)), RNG(1).standard_normal(n)
    model = KernelRegressor(**FIT).fit(X, y).model_
    named = KernelRegressor("laplacian:median", **FIT).fit(X, y).model_
    assert model.kernel == named.kernel
    assert isinstance(model.kernel, Laplacian)
    np.testing.assert_array_equal(model.coef, named.coef)


def _rules(n: int, seed: int = 0) -> tuple[HostArray, HostArray]:
    """Return classes that bounds of two of twelve features tell apart, as in a tree."""
    X = RNG(seed).standard_normal((n, 12))
    return X, (X[:, 0] > 0.3).astype(int) + 2 * (X[:, 1] > -0.2)


@pytest.mark.long
def test_rules_about_single_features_get_the_l1_laplacian_and_less_error() -> None:
    X, y = _rules(800)
    X_new, y_new = _rules(1000, seed=1)
    models = [KernelClassifier(kernel, random_state=0).fit(X, y) for kernel in ("auto", "laplacian:median")]
    assert isinstance(models[0].model_.kernel, L1Laplacian)
    wrong = [1 - model.score(X_new, y_new) for model in models]
    assert wrong[0] < 0.9 * wrong[1]


def test_other_kernels_must_clearly_surpass_the_l1_laplacian() -> None:
    X, noise = RNG(0).standard_normal((300, SEVERAL_FEATURES)), RNG(1).standard_normal(300)
    assert isinstance(KernelRegressor(**FIT).fit(X, noise).model_.kernel, L1Laplacian)
    assert isinstance(AutoKernel().candidates(X)[0], L1Laplacian)
    assert isinstance(AutoKernel().candidates(X[:, 1:])[0], Laplacian)
    assert isinstance(AutoKernel().candidates(X[:, 1:])[1], L1Laplacian)


@pytest.mark.parametrize("make", [scipy.sparse.csr_array, lambda X: np.tile(X, (1, 1 + MOST_FEATURES // 12))])
def test_sparse_and_wide_rows_have_kernels_of_matrix_products(make: Callable[[HostArray], Any]) -> None:
    X, y = _rules(300)
    rows = make(X)
    assert not any(isinstance(kernel, L1Laplacian) for kernel in AutoKernel().candidates(rows))
    assert AutoKernel().slowest(rows) == Laplacian("median").resolve(rows)
    assert not isinstance(KernelClassifier(**FIT).fit(rows, y).model_.kernel, L1Laplacian)


def test_wide_rows_have_the_l1_laplacian_where_it_is_clearly_better() -> None:
    X, y = _rules(300)
    wide = np.tile(X, (1, 2 + MANY_FEATURES // X.shape[1]))
    first, *others = AutoKernel().candidates(wide)
    assert not isinstance(first, L1Laplacian)
    assert any(isinstance(kernel, L1Laplacian) for kernel in others)
    assert not any(isinstance(kernel, L1Laplacian) for kernel in AutoKernel().with_metric(wide))
    assert AutoKernel().slowest(wide) == Laplacian("median").resolve(wide)
    plain = KernelClassifier(learn_features=False, **FIT)
    assert isinstance(plain.fit(wide, y).model_.kernel, L1Laplacian)


@pytest.mark.parametrize("basis", [RandomFeatures(40), RandomFeatures(40, "orthogonal"), DoublyStochastic(16)])
def test_random_features_have_a_kernel_that_they_can_be_drawn_of(basis: BasisSpec) -> None:
    X, y = _rules(300)
    assert isinstance(AutoKernel().candidates(X)[0], L1Laplacian)  # which has no random features here
    solver = "doubly_sgd" if isinstance(basis, DoublyStochastic) else "eigenpro"
    KernelClassifier(basis=basis, solver=solver, **FIT).fit(X, y)


@pytest.mark.parametrize("basis", [AllRows(), RandomFeatures(40)])
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array, lambda X: np.tile(X, (1, 1 + MOST_FEATURES))])
def test_the_number_of_kernels_is_known_without_rows(basis: BasisSpec, make: Callable[[HostArray], Any]) -> None:
    rows = make(_rules(30)[0])
    info = SourceInfo(
        *rows.shape, "regression", None, Scaling(), None, 1, True, None if isinstance(rows, np.ndarray) else rows.nnz
    )
    every = AutoKernel().candidates(rows)
    assert n_kernels(FitSettings(AutoKernel(), Squared(), basis, EigenPro()), info) == sum(map(basis.suits, every))


def test_it_is_told_and_the_same_for_the_same_seed() -> None:
    X, y = _smooth(300)
    reported: list[Event] = []
    models = [KernelRegressor(random_state=3, callbacks=[reported.append], **FIT).fit(X, y).model_ for _ in range(2)]
    assert models[0].kernel == models[1].kernel
    stages = [event.detail for event in reported if isinstance(event, StageFinished) and event.stage == "kernel"]
    assert len(stages) == 2
    assert all(re.fullmatch(r"[a-z0-9]+:[\d.]{1,6} \(leave-one-out on 300 rows\)", stage) for stage in stages), stages


@pytest.mark.long
@settings(max_examples=6, deadline=None)
@given(exponents=st.lists(st.integers(-20, 20), min_size=3, max_size=3))
def test_other_units_choose_the_same_and_predict_the_same(exponents: list[int]) -> None:
    X, y = _smooth(200)
    units = 2.0 ** np.array(exponents)
    first, second = (KernelRegressor(**FIT, dtype="float64").fit(rows, y) for rows in (X, X * units))
    assert type(first.model_.kernel) is type(second.model_.kernel)
    np.testing.assert_allclose(second.predict(X * units), first.predict(X), rtol=1e-6, atol=1e-8)


def test_sparse_rows_and_landmarks_choose_too() -> None:
    X, y = _smooth(400)
    sparse = KernelRegressor(basis=Landmarks(50), **FIT).fit(scipy.sparse.csr_array(X), y)
    assert isinstance(sparse.model_.kernel, Gaussian | Matern)


def test_the_word_is_read_and_written_alone() -> None:
    assert parse_kernel(" Auto ") == AutoKernel() == from_spec(AutoKernel().spec())
    for words in ("auto:2", "2*auto", "auto+linear"):
        with pytest.raises(SpecError, match="unknown"):
            parse_kernel(words)
    with pytest.raises(SpecError, match="expected neither"):
        AutoKernel(2.0)


def test_a_plan_takes_it_for_the_laplacian() -> None:
    X, _ = _smooth(50)
    assert AutoKernel().resolve(X) == Laplacian("median").resolve(X)
    assert not AutoKernel().has_units


def test_features_with_tails_are_bent_and_the_model_on_disk_bends_them_too(tmp_path: Path) -> None:
    X, y = _tails(500)
    bent, plain = (
        KernelClassifier(scale=scale, learn_features=False).fit(X[:300], y[:300]) for scale in ("auto", "standard")
    )
    assert all(bent.model_.scaling.bend)
    assert bent.score(X[300:], y[300:]) > plain.score(X[300:], y[300:]) + 0.05
    bent.save(str(tmp_path / "model.zarr"))
    loaded = load(str(tmp_path / "model.zarr"))
    assert loaded.scaling == bent.model_.scaling
    np.testing.assert_array_equal(loaded.decision_function(X[300:]), bent.decision_function(X[300:]))


def test_where_bent_features_lose_they_stay_as_they_are() -> None:
    X, y = _rings(600)
    assert KernelClassifier(**FIT).fit(X, y).model_.scaling.bend == ()


def test_a_linear_model_stays_linear_in_its_features() -> None:
    X, y = _tails(300)
    for settings_ in ({"basis": Linear(), "solver": "sgd"}, {"kernel": LinearKernel()}):
        assert KernelClassifier(**{**FIT, **settings_}).fit(X, y).model_.scaling.bend == ()


@pytest.mark.parametrize("estimator", [KernelClassifier, KernelRegressor])
def test_a_fit_says_which_kernel_it_used(estimator: type[KernelClassifier | KernelRegressor]) -> None:
    X, y = _rules(200)
    chosen = estimator(random_state=0, **FIT).fit(X, y)
    assert not isinstance(chosen.kernel_, AutoKernel)
    assert chosen.kernel_ == chosen.model_.kernel
    again = estimator(chosen.kernel_, alpha=chosen.alpha_, scale="always", random_state=0, **FIT).fit(X, y)
    assert again.kernel_ == chosen.kernel_
    np.testing.assert_allclose(again.dual_coef_, chosen.dual_coef_, rtol=1e-4, atol=1e-6)
    assert estimator("gaussian:median", **FIT).fit(X, y).kernel_.length_scale > 0
