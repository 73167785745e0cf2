"""Doubly stochastic gradients: the paper's algorithm, its rate, and models that hold no features."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern.arrays import HostArray
from daskkern.basis import DoublyStochastic
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Drawn, Gaussian, Kernel
from daskkern.losses import Logistic, Loss, Squared, SquaredHinge
from daskkern.solvers import SGD, DoublySGD
from daskkern.solvers.first_order.doubly_sgd import DoublyRun, preconditioned
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.settings import FitSettings
from tests.support import naive
from tests.support.fits import Fit, Runs, toy_source

ALPHA = 0.05


def _fit(
    loss: Loss | None = None,
    epochs: int = 3,
    block: int = 16,
    dtype: str = "float64",
    seed: int = 0,
    m: int = 20,
    theta: float = 1.5,
) -> Fit:
    loss = loss or Squared()
    settings = FitSettings(
        Gaussian(2.0), loss, DoublyStochastic(block), DoublySGD(theta), ALPHA, max_epochs=epochs, batch_size=m,
        dtype=dtype, device="cpu", fit_intercept=False, seed=seed,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True, regression=isinstance(loss, Squared)), settings)


def _coef(fit: Fit, ranks: int = 1) -> HostArray:
    results = fit.results(ranks)
    coef = np.empty((fit.prepared.basis.n_columns, results[0].coef.shape[1]))
    for result in results:
        coef[result.ids] = result.coef
    return coef


@pytest.mark.parametrize("share", [1, 1.5, 2, 3])
def test_it_is_the_papers_algorithm(share: float) -> None:
    loss = SquaredHinge()
    fit = _fit(loss, theta=share)
    plan, drawn, X = fit.prepared.plan, fit.prepared.basis.kernel, fit.source.X
    assert isinstance(drawn, Drawn)
    y = fit.prepared.targets.encode(fit.source.y)
    w = fit.source.weight[:, None] / fit.source.weight.mean()
    theta, a, t = share / ALPHA, np.zeros((fit.prepared.basis.n_columns, 3)), 0
    phi = drawn.block(X, drawn.points(fit.prepared.points))
    for epoch in (1, 2, 3):
        for number in plan.order(epoch):
            B, own = plan.positions(number, epoch), slice(16 * t, 16 * t + 16)
            t += 1
            gamma = theta / (max(theta * loss.smoothness * w.max(), share) + t)
            g = w[B] * loss.gradient(phi[B] @ a, y[B])
            a *= 1 - gamma * ALPHA
            a[own] = -gamma / B.size * phi[B, own].T @ g
    assert t * 16 == len(a)
    np.testing.assert_allclose(_coef(fit), a, atol=1e-10)


@pytest.mark.parametrize("block", [8, 32], ids=["fewer features than rows", "more"])
def test_preconditioned_steps_solve_the_equations_of_their_features(block: int) -> None:
    loss = SquaredHinge()
    fit = _fit(loss, block=block, epochs=2)
    fit = replace(fit, settings=replace(fit.settings, solver=DoublySGD(preconditioner="covariance", ridge=0.01)))
    plan, drawn, X = fit.prepared.plan, fit.prepared.basis.kernel, fit.source.X
    y = fit.prepared.targets.encode(fit.source.y)
    w = fit.source.weight[:, None] / fit.source.weight.mean()
    a, t = np.zeros((fit.prepared.basis.n_columns, 3)), 0
    phi = drawn.block(X, drawn.points(fit.prepared.points))
    for epoch in (1, 2):
        for number in plan.order(epoch):
            B, own = plan.positions(number, epoch), slice(block * t, block * t + block)
            gamma = 1 / (loss.smoothness * (1 + t / 10) ** 0.5)
            g, here = w[B] * loss.gradient(phi[B] @ a, y[B]), phi[B, own]
            C = sum(each * np.outer(row, row) for each, row in zip(w[B, 0], here, strict=True)) / B.size
            a *= 1 - gamma * ALPHA
            a[own] = -gamma * np.linalg.inv(C + 0.01 * w.max() * np.eye(block)) @ here.T @ g / B.size
            t += 1
    for ranks in (1, 3):
        np.testing.assert_allclose(_coef(fit, ranks), a, atol=1e-9)
    bytes_of = {
        solver: dict(upper_bound_plan(fit.source, replace(fit.settings, solver=solver), 1, 1, 1 << 30).items)
        for solver in (DoublySGD(), fit.settings.solver)
    }
    plain, held = (items["one batch"] for items in bytes_of.values())
    assert held - plain >= 8 * (20 * block + min(20, block) ** 2)


def test_rows_of_weight_0_do_not_count_in_the_equations() -> None:
    rng = np.random.default_rng(0)
    weight = np.array([1.0, 0, 2, 0, 1])[:, None]
    for width in (3, 9):
        phi, g = rng.standard_normal((5, width)), rng.standard_normal((5, 2)) * (weight > 0)
        found = preconditioned(phi, g, weight, 0.1)
        expected = np.linalg.inv(phi.T @ (phi * weight) / 5 + 0.1 * np.eye(width)) @ (phi.T @ g)
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_preconditioned_steps_come_nearer_in_as_many() -> None:
    fit = _fit(epochs=4, block=64, m=65)
    again = replace(fit, settings=replace(fit.settings, solver=DoublySGD(preconditioner="covariance", ridge=1e-2)))
    y = fit.prepared.targets.encode(fit.source.y)
    plain, solved = (float(((each.scores(each.results(1)) - y) ** 2).mean()) for each in (fit, again))
    assert solved < 0.6 * plain


def test_coefficients_that_shrink_step_by_step_never_underflow() -> None:
    v = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    run, wanted = DoublyRun(v, 1.0, 0), v.astype(np.float64)
    for factor in (0.5, 1e-3, 1e-4, 0.9, 1e-5, 1e-2):
        run, wanted, before = run.shrunk(factor), wanted * factor, run
        assert 1e-6 <= run.scale <= 1
        assert run.v is not before.v
        np.testing.assert_allclose(run.v.astype(np.float64) * run.scale, wanted, rtol=1e-6)


def _distance(epochs: int, seed: int) -> float:
    """Return the mean square distance from the kernel ridge solution, at the rows."""
    fit = _fit(epochs=epochs, seed=seed, block=32)
    K = naive.kernel_matrix(Gaussian(2.0).spec(), fit.source.X, fit.source.X)
    w, y = fit.source.weight / fit.source.weight.mean(), fit.prepared.targets.encode(fit.source.y)
    best = K @ np.linalg.solve(w[:, None] * K + len(y) * ALPHA * np.eye(len(y)), w[:, None] * y)
    return float(((fit.scores(fit.results(1)) - best) ** 2).mean())


@pytest.mark.repeated
def test_the_distance_from_the_optimum_falls_like_one_over_t() -> None:
    few, many = (np.mean([_distance(epochs, seed) for seed in range(2)]) for epochs in (4, 14))
    assert many < 0.4 * few


@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-10), ("float32", 1e-4)])
def test_any_number_of_ranks_makes_the_same_model(dtype: str, accuracy: float) -> None:
    fit = _fit(Logistic(), dtype=dtype)
    alone = fit.scores(fit.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=accuracy * np.abs(alone).max())


def test_a_run_in_parts_has_the_same_bits_and_may_become_longer() -> None:
    fit = _fit(Logistic())
    runs = Runs(fit)
    for until in (5, 9):
        runs.run(2, until=until)
    np.testing.assert_array_equal(runs.scores(2), fit.scores(fit.results(2)))
    longer = _fit(Logistic(), epochs=5)
    runs.fit = longer
    np.testing.assert_allclose(runs.scores(3), longer.scores(longer.results(1)), atol=1e-10)
    runs.fit = _fit(Logistic(), epochs=1)
    with pytest.raises(DataError, match="a run of 7 steps cannot continue a checkpoint of 35"):
        runs.run(1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kernel", [Gaussian("median"), "arc_cosine:1"])
def test_a_saved_model_predicts_the_same_and_holds_numbers_only(kernel: Kernel | str, tmp_path: Path) -> None:
    source = toy_source(regression=True)
    model = daskkern.KernelRegressor(
        kernel=kernel, basis=daskkern.DoublyStochastic(32), solver="doubly_sgd", alpha=1e-2, max_epochs=12,
        batch_size=20, random_state=0,
    )  # fmt: skip
    model.fit(source.X, source.y[:, 0])
    assert model.score(source.X, source.y[:, 0]) > 0.5
    model.save(tmp_path / "model")
    again = daskkern.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(source.X), model.predict(source.X), atol=1e-5)
    assert again.points.shape == (12 * 7 * 32, 1)


def test_what_has_no_meaning_is_refused() -> None:
    fit = _fit()
    for theta in (2.5, 0.5, 0, -1, float("inf"), float("nan")):
        with pytest.raises(SpecError, match="give a number from 1 to 2, or a whole number above 2"):
            DoublySGD(theta=theta)
    with pytest.raises(SpecError, match="got preconditioner='newton' for DoublySGD; expected 'none' or 'covariance'"):
        DoublySGD(preconditioner="newton")
    with pytest.raises(SpecError, match=r"got ridge=0 for DoublySGD; give a positive number"):
        DoublySGD(ridge=0)
    with pytest.raises(SpecError, match="got alpha=0 for DoublySGD"):
        replace(fit, settings=replace(fit.settings, alpha=0.0)).results(1)
    with pytest.raises(SpecError, match=r"got DoublyStochastic\(\) for solver sgd"):
        upper_bound_plan(fit.source, replace(fit.settings, solver=SGD()), 1, 1, 1 << 30)
    with pytest.raises(SpecError, match="is the most: take larger batches"):
        _fit(epochs=100_000, block=64)
    with pytest.raises(SpecError, match="got 0 random features a step;"):
        DoublyStochastic(0)


def test_memory_is_that_of_numbers_and_one_block() -> None:
    fit = _fit(epochs=200, block=256)
    items = dict(upper_bound_plan(fit.source, fit.settings, 1, 1, 1 << 30).items)
    p = 200 * 7 * 256
    assert items["own columns"] + items["precomputed column data"] <= 32 * p
    assert items["one batch"] < 40 * p < 20 * p * 8  # no block of all columns
