"""The penalty that is chosen for a fit: as good as a search, and the same on any number of ranks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.backend.random import generator
from daskkern.basis import (
    AllRows,
    BasisSpec,
    DoublyStochastic,
    Landmarks,
    Linear,
    LocalRows,
    NystromFeatures,
    RandomFeatures,
)
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError, SpecError
from daskkern.estimators import KernelClassifier, KernelRegressor
from daskkern.events import Event, StageFinished
from daskkern.kernels import Gaussian, Laplacian
from daskkern.linalg.best_penalties import BestPenalty, best_penalty, order_of
from daskkern.losses import Hinge, Logistic, Squared, SquaredHinge, parse_loss
from daskkern.solvers import SOLVERS, Direct, EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.memory_plan import available_memory
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup import choice_rows, penalty
from daskkern.training.setup.choice_rows import noisy_rows, sample_rows
from daskkern.training.setup.penalty import penalty_bytes
from tests.support.fits import Fit, toy_settings, toy_source

RNG = np.random.default_rng
OTHERS = {
    "interpreter and libraries",
    "libraries of estimators",
    "set-up peak above training peak",
    "penalty choice peak above training peak",
    "all rows",
}
SQUARED = {"direct", "pcg", "block_cd", "askotch"}
AMM_LOSS = parse_loss("multiclass_hinge")


def _regression(X: Any, y: HostArray, weight: HostArray | None = None) -> ArraySource:
    y = y if y.ndim == 2 else y[:, None]
    n, d = X.shape
    return ArraySource(X, y, weight, SourceInfo(n, d, "regression", None, Scaling(), None, y.shape[1], y.shape[1] == 1))


def _classes(X: Any, y: HostArray) -> ArraySource:
    names = tuple(str(k) for k in range(int(y.max()) + 1))
    return ArraySource(X, y, None, SourceInfo(*X.shape, "classification", names, Scaling(), None, 1, True))


def _waves(n: int, noise: float, seed: int = 0) -> tuple[HostArray, HostArray]:
    rng = RNG(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + noise * rng.standard_normal(n)


def _ridge(**changes: Any) -> FitSettings:
    made = FitSettings(
        Gaussian(0.7), Squared(), AllRows(), Direct(), "auto", max_epochs=1, dtype="float64", device="cpu"
    )
    return replace(made, **changes)


def _left_out(K: HostArray, y: HostArray, w: HostArray, alpha: float) -> float:
    """Return the weighted leave-one-out error from a solution for each row left out."""
    s, total = len(y), 0.0
    for i in range(s):
        rest = np.flatnonzero((np.arange(s) != i) & (w > 0))
        a = np.linalg.solve(K[np.ix_(rest, rest)] + s * alpha * np.diag(1 / w[rest]), y[rest])
        total += w[i] * float(((K[i, rest] @ a - y[i]) ** 2).sum())
    return total


@pytest.mark.parametrize("weighted", [False, True])
def test_it_has_the_least_error_of_rows_left_out(weighted: bool) -> None:
    X, y = _waves(60, 0.3)
    w = np.where(np.arange(60) % 7 == 0, 0.0, RNG(1).uniform(0.2, 2, 60)) if weighted else np.ones(60)
    Y = np.stack([y, y**2 - 0.4], axis=1)
    K = Gaussian(0.7).block(X, X)
    found = best_penalty(K.copy(), Y, w if weighted else None, 1e-8)
    assert found is not None
    alpha = found.alpha
    least = _left_out(K, Y, w, alpha)
    assert least <= 1.001 * min(_left_out(K, Y, w, other) for other in np.logspace(-6, 0, 25))


@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0])
def test_a_noisy_problem_is_solved_as_well_as_with_the_best_of_a_grid(noise: float) -> None:
    X, y = _waves(300, noise)
    X_new, truth = _waves(1500, 0.0, seed=5)
    y_new = truth + noise * RNG(6).standard_normal(1500)
    K, K_new, mean = Gaussian(0.7).block(X, X), Gaussian(0.7).block(X_new, X), y.mean()

    def error(alpha: float) -> float:
        found = K_new @ np.linalg.solve(K + 300 * alpha * np.eye(300), y - mean) + mean
        return float(np.sqrt(np.mean((found - y_new) ** 2)))

    model = fit(_regression(X, y), _ridge()).model
    auto = float(np.sqrt(np.mean((model.predict(X_new).ravel() - y_new) ** 2)))
    assert auto <= 1.02 * min(error(alpha) for alpha in np.logspace(-8, 1, 28))
    assert auto < 0.9 * error(1e-9)


def test_quantiles_do_not_follow_single_rows() -> None:
    """With the penalty of squared errors half of the new rows are below either quantile."""
    X, y = _waves(200, 0.3)
    X_new, y_new = _waves(1500, 0.3, seed=5)
    model = KernelRegressor("laplacian:median", "quantile:0.1,0.9", AllRows(), "svm", calibrate=False).fit(X, y)
    low, high = (y_new[:, None] < model.predict(X_new)).mean(axis=0)
    assert 0.05 < low < 0.3
    assert 0.7 < high < 0.95


def test_without_noise_it_is_tiny_and_harms_nothing() -> None:
    X, y = _waves(700, 0.0)
    X_new, y_new = _waves(500, 0.0, seed=5)
    errors = {}
    for alpha in ("auto", 0.0):
        result = fit(_regression(X, y), _ridge(alpha=alpha, solver=EigenPro(), basis=Landmarks(300), max_epochs=10))
        errors[alpha] = float(np.mean((result.model.predict(X_new).ravel() - y_new) ** 2))
    assert errors["auto"] <= 1.05 * errors[0.0]
    assert _chosen(_regression(X, y), _ridge(dtype="float32")) < 1e-6


def _chosen(source: ArraySource, settings: FitSettings) -> float:
    return float(fit(source, settings).model.provenance["settings"]["alpha"])


def test_more_rows_get_a_smaller_penalty_and_bent_losses_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice_rows, "SAMPLES", (200,))
    X, y = _waves(800, 0.5)
    settings = _ridge(basis=Landmarks(50), solver=EigenPro(), max_epochs=2)
    some = np.sort(generator(0, penalty._SAMPLE).permutation(800)[:200])
    alone, among_all = (_chosen(_regression(*rows), settings) for rows in ((X[some], y[some]), (X, y)))
    assert 0.9 * alone / 4**1.25 < among_all < 1.1 * alone / 2  # but for the mean of other targets
    labels = (y > 0).astype(np.int64)
    squared, hinge = (
        _chosen(_classes(X, labels), replace(settings, loss=loss)) for loss in (Squared(), SquaredHinge())
    )
    assert hinge == pytest.approx(2 * squared, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noisy_targets_of_many_rows_have_the_penalty_of_a_large_sample(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr("daskkern.training.setup.choice_rows.NOISY_SAMPLES", (2000,))
    X, y = _waves(6000, 3.0)  # a tenth of the variance is no noise
    settings = _ridge(kernel=Laplacian(0.3), basis=Landmarks(1500), solver=EigenPro(), dtype=dtype)
    stages: list[Event] = []
    fit(_regression(X, y), settings, listener=stages.append)
    (stage,) = (event for event in stages if isinstance(event, StageFinished) and event.stage == "penalty")
    assert "cross-validation on 2,000 rows" in stage.detail
    alpha = _chosen(_regression(X, y), settings)
    assert _chosen(_regression(X, y), replace(settings, alpha="auto/4")) == pytest.approx(alpha / 4)
    for order in (np.argsort(y), np.argsort(X[:, 0])):  # the halves of the sample are not those of the rows
        assert 0.4 < _chosen(_regression(X[order], y[order]), settings) / alpha < 2.5
    X_new, y_new = _waves(2000, 0.0, seed=1)
    errors = {}
    for factor in (0.03, 1.0, 30.0):
        model = KernelRegressor(
            Laplacian(0.3), basis=Landmarks(1500), alpha=factor * alpha, loss="squared", calibrate=False
        )
        errors[factor] = np.mean((model.fit(X, y).predict(X_new) - y_new) ** 2)
    assert errors[1.0] < min(errors[0.03], errors[30.0])


@pytest.mark.parametrize("by", ["feature", "target"])
def test_noisy_targets_of_sorted_rows_have_the_penalty_of_shuffled_ones(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr("daskkern.training.setup.choice_rows.NOISY_SAMPLES", (2000,))
    X, y = _waves(6000, 1.5)
    order = np.argsort(X[:, 0] if by == "feature" else y)
    settings = _ridge(kernel=Laplacian(0.3), basis=Landmarks(1500), solver=EigenPro())
    shuffled, ordered = (_chosen(_regression(X[rows], y[rows]), settings) for rows in (np.arange(6000), order))
    assert shuffled / 3 < ordered < 3 * shuffled


def test_noisy_targets_of_sparse_rows_have_the_penalty_of_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.training.setup.choice_rows.NOISY_SAMPLES", (2000,))
    X, y = _waves(6000, 1.5)
    settings = _ridge(kernel=Laplacian(0.3), basis=Landmarks(1500), solver=EigenPro())
    dense, sparse = (_chosen(_regression(rows, y), settings) for rows in (X, scipy.sparse.csr_array(X)))
    assert sparse == pytest.approx(dense, rel=1e-2)


def test_it_does_not_depend_on_the_number_of_ranks() -> None:
    settings = replace(toy_settings(Landmarks(60), EigenPro(), Logistic()), alpha="auto")
    runs = Fit.of(toy_source(weighted=True), settings)
    alpha = runs.prepared.alpha
    assert alpha > 0
    alone = runs.scores(runs.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(runs.scores(runs.results(ranks)), alone, rtol=0, atol=1e-9 * np.abs(alone).max())
    given = Fit.of(toy_source(weighted=True), replace(settings, alpha=alpha))
    np.testing.assert_array_equal(given.scores(given.results(1)), alone)


BASES: dict[str, BasisSpec] = {
    "all rows": AllRows(),
    "landmarks": Landmarks(30),
    "random features": RandomFeatures(40),
    "nystrom features": NystromFeatures(30),
    "linear": Linear(),
    "doubly stochastic": DoublyStochastic(16),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name for name in SOLVERS if name != "local_ridge"])  # from leaves: test_local_rows
def test_every_solver_takes_it(name: str) -> None:
    solver = SOLVERS[name]()
    source = toy_source()
    loss = Squared() if name in SQUARED else {"amm": AMM_LOSS, "svm": Hinge()}.get(name, SquaredHinge())
    settings = FitSettings(
        Laplacian(3.0), loss, BASES[solver.bases[0]], solver, "auto", max_epochs=2, batch_size=32, device="cpu"
    )
    stages: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "penalty":
            stages.append(event.detail)

    result = fit(source, settings, listener=listen)
    chosen = result.model.provenance["settings"]["alpha"]
    assert chosen > 0
    assert stages == [f"alpha {chosen:.2g} (leave-one-out on 130 rows)"]
    assert np.isfinite(result.model.coef).all()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
def test_sparse_rows_and_several_targets_get_that_of_dense_ones(basis: BasisSpec) -> None:
    rng = RNG(0)
    X = rng.standard_normal((80, 6)) * (rng.random((80, 6)) < 0.4)
    y = X[:, :2] + 0.5 * rng.standard_normal((80, 2))
    solver = SOLVERS["doubly_sgd" if isinstance(basis, DoublyStochastic) else "direct"]()
    settings = _ridge(basis=basis, solver=solver, kernel=Gaussian(2.0), max_epochs=2)
    dense, sparse = (_chosen(_regression(rows, y), settings) for rows in (X, scipy.sparse.csr_matrix(X)))
    assert dense > 0
    assert sparse == pytest.approx(dense, rel=1e-6)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("n", [2, 3, 5, 9, 10, 20])
@pytest.mark.parametrize("solver", [EigenPro(), Direct()], ids=["eigenpro", "direct"])
def test_few_rows_are_fitted(n: int, solver: Any) -> None:
    X, y = _waves(n, 0.0)
    result = fit(_regression(X, y), _ridge(solver=solver, dtype="float32", max_epochs=30))
    assert 0 < result.model.provenance["settings"]["alpha"] < 1
    assert np.isfinite(result.model.predict(X)).all()


def test_targets_and_kernels_that_say_nothing_are_no_obstacle() -> None:
    X, _ = _waves(40, 0.0)
    same = fit(_regression(X, np.full(40, 3.0)), _ridge()).model
    np.testing.assert_allclose(same.predict(X), 3.0)
    assert best_penalty(np.zeros((40, 40)), X, None, 1e-7) is None
    assert best_penalty(np.eye(40), X, np.r_[np.ones(9), np.zeros(31)], 1e-7) is None
    noise = RNG(0).standard_normal((40, 1))
    found = best_penalty(np.eye(40), noise, None, 1e-7)
    assert found is not None
    assert found.alpha > 0.5 / 40  # the columns of a unit matrix say nothing of other rows: all models are equally bad


def test_overflowing_kernel_values_are_refused() -> None:
    X, y = _waves(40, 0.1)
    with pytest.raises(DataError, match=r"not finite|overflow"), np.errstate(all="ignore"):
        fit(_regression(X * 1e200, y), _ridge(basis=Linear()))


@pytest.mark.parametrize("alpha", ["best", "", -1.0, float("nan"), float("inf"), None, True])
def test_other_words_and_numbers_are_refused(alpha: Any) -> None:
    with pytest.raises(SpecError, match=r"got alpha=.*; expected a number of 0 or more, or 'auto'"):
        _ridge(alpha=alpha)


def test_the_sample_takes_little_of_the_work_and_follows_no_machine() -> None:
    settings = _ridge(solver=EigenPro())
    assert sample_rows(60_000, 10_000, 784, 10, settings) == 1000
    assert sample_rows(60_000, 10_000, 784, 10, replace(settings, max_epochs=99)) == 1000
    assert sample_rows(10_000_000, 10_000, 100, 10, settings) == 2000
    assert sample_rows(1000, 1000, 20, 1, settings) == 700
    assert sample_rows(300, 300, 20, 1, settings) == 300
    assert sample_rows(1000, 20_000, 20_000, 1, replace(settings, basis=Linear())) == 300
    assert sample_rows(1000, 10, 1_000_000, 1, settings) == 0
    assert sample_rows(1000, 1000, 20, 1, settings, n_grams=3) == 500


def test_large_samples_are_for_kernels_whose_fits_take_longer() -> None:
    settings = _ridge(solver=EigenPro(), basis=Landmarks(10_000))
    assert noisy_rows(100_000, 10_000, 9, 1, settings) == 6000
    assert noisy_rows(11_999, 10_000, 9, 1, settings) == 4000
    assert noisy_rows(7999, 7999, 9, 1, settings) == 0
    assert noisy_rows(100_000, 10, 100_000, 1, replace(settings, basis=Landmarks(10))) == 0
    for basis in (RandomFeatures(10_000), Linear(), LocalRows(2000)):
        assert noisy_rows(100_000, 10_000, 9, 1, replace(settings, basis=basis)) == 0


@pytest.mark.parametrize("solver", [EigenPro(), SOLVERS["falkon"](), Direct()], ids=["eigenpro", "falkon", "direct"])
def test_the_memory_plan_knows_of_it(solver: Any) -> None:
    n, d = 700, 1500  # wide rows, whose sample takes more than training does
    source = _regression(np.broadcast_to(0.0, (n, d)), np.broadcast_to(0.0, n))
    settings = _ridge(basis=Landmarks(5), solver=solver, batch_size=8)
    s = sample_rows(n, 5, d, 1, settings)
    for alpha, n_bytes in {"auto": 8 * s * (5 * s + 5 * d + 4), 1e-3: 0}.items():
        given = replace(settings, alpha=alpha)
        assert penalty_bytes(n, 5, 1, d, source.info, given) == n_bytes
        items = dict(upper_bound_plan(source, given, 1, 1, available_memory()).items)
        training = sum(size for name, size in items.items() if name not in OTHERS)
        found = items.get("penalty choice peak above training peak", 0)
        assert found == pytest.approx(max(0, n_bytes - training), abs=5e5)
        assert (found > 1e7) == (alpha == "auto" and not isinstance(solver, EigenPro))


def test_estimators_keep_it_in_later_calls() -> None:
    X, y = _waves(300, 0.5)
    model = KernelRegressor(Gaussian(0.7), basis=Landmarks(50), alpha="auto", device="cpu")
    model.partial_fit(X[:200], y[:200])
    first = model.alpha_
    assert first > 0
    assert model.partial_fit(X[200:], y[200:]).alpha_ == first
    assert model.set_params(alpha="auto/4").partial_fit(X[200:], y[200:]).alpha_ == pytest.approx(first / 4)
    assert model.partial_fit(X[200:], y[200:]).alpha_ == pytest.approx(first / 4)
    assert model.set_params(alpha="auto").partial_fit(X[200:], y[200:]).alpha_ == pytest.approx(first)
    assert model.set_params(alpha=0.5).partial_fit(X[200:], y[200:]).alpha_ == 0.5
    labels = KernelClassifier(Gaussian(0.7), basis=Landmarks(50), alpha=1e-3, device="cpu").fit(X, y > 0)
    assert labels.alpha_ == 1e-3


def test_the_penalty_of_many_rows_follows_from_that_of_a_sample_and_its_quarters() -> None:
    X, y = _waves(1600, 0.5)
    K, Y = Laplacian(2.0).block(X, X.copy()), y[:, None]
    quarter, best = best_penalty(K[:400, :400], Y[:400], None, 1e-8), best_penalty(K, Y, None, 1e-8)
    assert quarter is not None
    assert best is not None
    b = order_of(K[:400, :400], Y[:400], None, quarter)
    assert abs(np.log10(quarter.alpha * 4.0**-b / best.alpha)) < 0.3


def test_rough_targets_have_a_penalty_that_falls_with_the_number_of_rows() -> None:
    X = RNG(0).standard_normal((1200, 3))
    y = np.sign(X[:, :1] * X[:, 1:2] + X[:, 2:]) + 0.5 * RNG(1).standard_normal((1200, 1))
    K = Laplacian(2.0).block(X, X.copy())
    best = best_penalty(K, y, None, 1e-8)
    assert best is not None
    assert order_of(K, y, None, best) > 0.8


def test_the_order_is_the_slowest_where_quarters_say_nothing() -> None:
    K, Y = np.eye(400), RNG(0).standard_normal((400, 1))
    best = best_penalty(K, Y, None, 1e-7)
    assert best is not None
    assert order_of(K, Y, None, best) == 0.5
    assert order_of(K[:100, :100], Y[:100], None, BestPenalty(0.1, 1e-7, 1.0)) == 0.5
