"""A few rows that weigh much more, or are much longer, than all that steps are measured on."""

from functools import lru_cache

import numpy as np
import pytest
from sklearn.metrics import r2_score

from daskkern import KernelRegressor
from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear, NystromFeatures, RandomFeatures
from daskkern.errors import DivergenceError
from daskkern.kernels import Gaussian, Polynomial
from daskkern.losses import Squared
from daskkern.preconditioners import StepStatistics, longest_step
from daskkern.solvers import SAG, SARAH, SGD, SVRG, AdaGrad, EigenPro, Norma, NystromSGD, Solver
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.row_sizes import Extremes, RowSizes, clipped_weights

N = 4000


def _data(seed: int, n: int = N) -> tuple[HostArray, HostArray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n), rng


def _weights(rng: np.random.Generator, heavy: float, n: int = N) -> HostArray:
    weight = np.ones(n)
    weight[rng.choice(n, 5, replace=False)] = heavy
    return weight


def _model(solver: str | Solver[object] = "auto", basis: BasisSpec | None = None, **more: object) -> KernelRegressor:
    settings = {"kernel": "gaussian:median", "max_epochs": 4, "device": "cpu", **more}
    return KernelRegressor(basis=basis or Landmarks(150), solver=solver, **settings)


@lru_cache
def _plain_score(seed: int) -> float:
    X, y, _ = _data(seed)
    return float(r2_score(y, _model().fit(X, y).predict(X)))


@pytest.mark.long
@pytest.mark.one_in(13)
@pytest.mark.parametrize("heavy", [100.0, 1000.0])
@pytest.mark.parametrize("seed", range(2))
def test_a_few_heavy_rows_leave_a_good_model(seed: int, heavy: float) -> None:
    X, y, rng = _data(seed)
    weight = _weights(rng, heavy)
    plain = _plain_score(seed)
    model = _model(random_state=seed).fit(X, y, sample_weight=weight)
    assert r2_score(y, model.predict(X)) > plain - 0.1 > 0.8
    assert r2_score(y, model.predict(X), sample_weight=weight) > 0.85


@pytest.mark.long
@pytest.mark.one_in(11)
@pytest.mark.parametrize(
    ("solver", "basis"),
    [
        (EigenPro(), AllRows()),
        (EigenPro(step_scale=1.5, projection="eigenpro"), Landmarks(150)),
        (EigenPro(momentum=0.5, window=1), Landmarks(150)),
        (EigenPro(), RandomFeatures(150)),
        (EigenPro(), NystromFeatures(150)),
        (EigenPro(), Linear()),
        ("nystrom_sgd", Landmarks(150)),
    ],
)
def test_heavy_rows_with_every_form_of_a_preconditioner(solver: str | Solver[object], basis: BasisSpec) -> None:
    X, y, rng = _data(1, 1500)
    model = _model(solver, basis).fit(X, y, sample_weight=_weights(rng, 1000.0, 1500))
    assert r2_score(y, model.predict(X)) > 0.6


@pytest.mark.long
@pytest.mark.one_in(23, 9)
@pytest.mark.parametrize(
    ("solver", "basis"),
    [
        (SGD(), RandomFeatures(150)),
        (SGD(growth=2.0), RandomFeatures(150)),
        (SGD(), AllRows()),
        (SGD(), Linear()),
        (AdaGrad(), RandomFeatures(150)),
        (SVRG(), RandomFeatures(150)),
        (SARAH(), RandomFeatures(150)),
        (SAG(), RandomFeatures(150)),
        (Norma("constant"), AllRows()),
        (NystromSGD(mode="streamed"), Landmarks(150)),
        (NystromSGD(mode="stored"), Landmarks(150)),
    ],
    ids=lambda part: f"{part.name}",
)
@pytest.mark.parametrize("seed", [3, 5])
def test_heavy_rows_that_were_sampled_or_not_leave_every_method_its_model(
    solver: Solver[object], basis: BasisSpec, seed: int
) -> None:
    """Whether a heavy row is among those that steps are measured on is chance, and must not decide on the fit."""
    n = 1500 if isinstance(basis, AllRows) else 2500
    X, y, rng = _data(seed, n)
    plain = _model(solver, basis, alpha=1e-5, random_state=seed).fit(X, y)
    model = _model(solver, basis, alpha=1e-5, random_state=seed).fit(X, y, sample_weight=_weights(rng, 300.0, n))
    assert r2_score(y, model.predict(X)) > r2_score(y, plain.predict(X)) - 0.1
    assert model.best_epoch_ == model.n_iter_


def test_the_longest_step_of_few_rows_is_bounded_by_their_own_squares() -> None:
    statistics = StepStatistics(2.0, 1.0, 0.1)
    assert statistics.share(10, 1.0, 0.0, 0.0) == 1
    for excess in (3.0, 300.0):
        usual = 2.0 + 9 * 0.1
        expected = min(1.0, 1.5 * usual / (usual + excess))
        assert statistics.share(10, 1.0, 0.0, excess) == pytest.approx(expected)
    assert longest_step(4, 8.0, 0.5) == 1.5 * 4 / (0.5 * 8.0)
    assert longest_step(4, 0.0, 0.5) == np.inf


@pytest.mark.long
@pytest.mark.one_in(7, 1)
@pytest.mark.parametrize("keep_blocks", ["never", "memory"])
@pytest.mark.parametrize("kernel", ["arc_cosine:1", "neural_tangent:2", "linear"])
def test_a_few_long_rows_leave_a_model_that_fits_the_others(kernel: str, keep_blocks: str) -> None:
    X, y, rng = _data(2)
    long = rng.choice(N, 4, replace=False)
    X[long] *= 30
    model = _model(kernel=kernel, keep_blocks=keep_blocks).fit(X, y)
    others = np.delete(np.arange(N), long)
    assert r2_score(y[others], model.predict(X[others])) > 0.5
    assert r2_score(y, model.predict(X)) > 0


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
def test_long_rows_whose_own_loss_is_beyond_that_of_the_model_0_are_found_for_certain(seed: int) -> None:
    """A fit of rows 100 times as long as the others in a cubic kernel: right, or a sentence, but never far off."""
    X, y, rng = _data(seed)
    X[rng.choice(N, 4, replace=False)] *= 100
    try:
        model = _model(kernel="polynomial:3", random_state=seed).fit(X, y)
    except DivergenceError:
        return
    assert r2_score(y, model.predict(X)) > -0.2


def _settings(kernel: object, basis: BasisSpec | None = None) -> FitSettings:
    return FitSettings(kernel, Squared(), basis or Landmarks(10), EigenPro())


def test_rows_that_are_rare_and_large_are_not_measured() -> None:
    X, *_ = _data(0, 1000)
    weight = np.ones(1000)
    weight[[3, 7]] = 50.0
    sizes, kept = RowSizes.measured(_settings(Gaussian(1.0)), X, weight)
    assert set(range(1000)) - set(kept.tolist()) == {3, 7}
    assert sizes.same == sizes.most == 1.0
    weight[:20] = 50.0  # one in fifty is not rare: every batch has one
    assert RowSizes.measured(_settings(Gaussian(1.0)), X, weight)[1].size == 1000


@pytest.mark.parametrize("kernel", [Gaussian(2.0), Polynomial(2, 0.3, 1.0)])
def test_the_excess_bounds_what_extreme_rows_add_to_the_largest_eigenvalue(kernel: object) -> None:
    X, _, rng = _data(0, 400)
    weight = rng.uniform(0.5, 1.5, 400)
    sizes, kept = RowSizes.measured(_settings(kernel), X, weight)
    assert kept.size == 400

    def largest(rows: HostArray, counts: HostArray) -> float:
        K = kernel.block(rows, rows) * np.sqrt(counts[:, None] * counts)
        return float(np.linalg.eigvalsh(K)[-1])

    batch, counts = X[:60].copy(), weight[:60].copy()
    inside = largest(batch, np.minimum(counts, sizes.most / kernel.diagonal(batch)))
    batch[5] *= 10
    counts[[9, 11]] = 200.0
    found = sizes.excess(batch, counts[:, None])
    assert (found[[9, 11]] > 0).all()
    assert largest(batch, counts) <= inside + found.sum() + sizes.most
    assert sizes.excess(X[60:], weight[60:, None]).sum() == 0


def test_a_batch_whose_rows_are_not_read_again_keeps_its_excess() -> None:
    X, *_ = _data(0, 600)
    sizes, _ = RowSizes.measured(_settings(Polynomial(2, 1.0, 1.0)), X, None)
    assert sizes.excess(None, None) is None
    extremes, far = Extremes(sizes), X[:50] * np.where(np.arange(50) == 4, 40, 1)[:, None]
    first = extremes.observe(3, extremes.each(far, None), np.arange(100, 150))
    assert first > 0
    assert extremes.observe(3, extremes.each(None, None), np.arange(100, 150)) == first
    assert extremes.observe(2, None, np.arange(50)) == 0
    assert extremes.rows.tolist() == [104]


def test_weights_of_single_rows_do_not_shape_a_preconditioner() -> None:
    weight = np.ones(1000)
    weight[5] = 1e4
    capped = clipped_weights(weight)
    assert capped[5] == 16 * weight.mean()
    many = np.where(np.arange(1000) < 30, 30.0, 0.1)
    np.testing.assert_array_equal(clipped_weights(many), many)
    assert clipped_weights(None) is None
