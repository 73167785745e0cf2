"""Variance-reduced solvers converge linearly where the objective is strongly convex, and step as their papers say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from daskkern.arrays import HostArray
from daskkern.backend.random import generator
from daskkern.basis import AllRows, BasisSpec, Linear, RandomFeatures
from daskkern.errors import SpecError
from daskkern.estimators import KernelClassifier
from daskkern.events import Event, OptimalityMeasured
from daskkern.kernels import Laplacian
from daskkern.losses import Logistic, Loss, Smooth, Squared, SquaredHinge
from daskkern.solvers import SAG, SARAH, SGD, SVRG, Solver
from daskkern.solvers.variance_reduced.full_gradients import FullGradients
from daskkern.training.run.settings import FitSettings
from tests.support import naive
from tests.support.fits import Fit, Runs, toy_source

ALPHA = 2e-2


def _fit(solver: Solver[object], loss: Loss, basis: BasisSpec, epochs: int, batch_size: int = 20) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), loss, basis, solver, ALPHA, max_epochs=epochs, batch_size=batch_size, dtype="float64",
        device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True, regression="regression" in loss.tasks), settings)


def _features(fit: Fit) -> HostArray:
    if fit.prepared.basis.all_rows:
        return np.linalg.cholesky(naive.kernel_matrix(fit.settings.kernel.spec(), fit.source.X, fit.source.X))
    return fit.prepared.basis.kernel.block(fit.source.X, fit.prepared.basis.points(fit.prepared.points))


def _gradient(fit: Fit, phi: HostArray, w: HostArray, rows: HostArray | slice) -> HostArray:
    """Return the mean gradient of the losses of some rows."""
    y = fit.prepared.targets.encode(fit.source.y)[rows]
    weight = (fit.source.weight / fit.source.weight.mean())[rows, None]
    return phi[rows].T @ (weight * fit.settings.loss.gradient(phi[rows] @ w, y)) / len(y)


def _least(fit: Fit) -> float:
    phi, loss = _features(fit), fit.settings.loss
    y, weight = fit.prepared.targets.encode(fit.source.y), fit.source.weight / fit.source.weight.mean()

    def function(flat: HostArray) -> tuple[float, HostArray]:
        w = flat.reshape(phi.shape[1], -1)
        gradient = _gradient(fit, phi, w, slice(None)) + ALPHA * w
        return float(np.mean(weight * loss.value(phi @ w, y))) + ALPHA / 2 * float((w * w).sum()), gradient.ravel()

    start = np.zeros(phi.shape[1] * y.shape[1])
    found = minimize(function, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 0, "gtol": 1e-12})
    return float(found.fun)


def _gaps(solver: Solver[object], epochs: tuple[int, ...]) -> HostArray:
    """Return how far the objective is above the least one after so many epochs."""
    gaps = []
    for count in epochs:
        fit = _fit(solver, SquaredHinge(), Linear(), count)
        (result,) = fit.results(1)
        y, weight = fit.prepared.targets.encode(fit.source.y), fit.source.weight / fit.source.weight.mean()
        phi = _features(fit)
        w = np.empty_like(result.coef)
        w[result.ids] = result.coef
        value = float(np.mean(weight * fit.settings.loss.value(phi @ w, y))) + ALPHA / 2 * float((w * w).sum())
        gaps.append(value - _least(fit))
    return np.array(gaps)


@pytest.mark.repeated
@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("solver", "epochs"),
    [(SAG("sag", tol=0), 16), (SAG("saga", tol=0), 6), (SVRG(tol=0), 6), (SARAH(tol=0), 6)],
    ids=["sag", "saga", "svrg", "sarah"],
)
def test_the_gap_falls_by_a_factor_in_every_few_epochs(solver: Solver[object], epochs: int) -> None:
    gaps = _gaps(solver, (epochs, 2 * epochs, 3 * epochs, 4 * epochs))
    assert (gaps[1:] <= 0.3 * gaps[:-1] + 1e-13).all()
    assert gaps[-1] < 1e-4


def test_steps_without_variance_reduction_stay_where_their_noise_keeps_them() -> None:
    gaps = _gaps(SGD("constant", averaging=0.0), (8, 16))
    assert gaps.min() > 1e-5


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "solver",
    [SVRG(theta=0.7, tol=0), SVRG(theta=0.7, tol=0, restart="random"), SARAH(theta=0.7, tol=0)],
    ids=["svrg", "svrg, random restarts", "sarah"],
)
@pytest.mark.parametrize("basis", [AllRows(), RandomFeatures(30)], ids=lambda basis: basis.name)
def test_the_iterates_are_those_of_the_papers(solver: FullGradients, basis: BasisSpec) -> None:
    fit = _fit(solver, Logistic(), basis, 2, 30)
    phi, plan, loss = _features(fit), fit.prepared.plan, fit.settings.loss
    assert isinstance(loss, Smooth)
    everything = slice(None)
    w = np.zeros((phi.shape[1], 3))

    def eta(m: int) -> float:
        return solver.theta * fit.prepared.state.step_size(m, loss.smoothness, ALPHA)

    for epoch in (1, 2):
        anchor, full = w, _gradient(fit, phi, w, everything) + ALPHA * w
        last = len(plan.positions(plan.order(epoch)[-1]))
        before, v = w, full
        if isinstance(solver, SARAH):
            w = w - eta(last) * v
        iterates = [w]
        for sweep in (1, 2):
            for batch in plan.order(epoch + (sweep << 32)):
                at = plan.positions(batch)
                old = before if isinstance(solver, SARAH) else anchor
                change = _gradient(fit, phi, w, at) + ALPHA * w - _gradient(fit, phi, old, at) - ALPHA * old
                v = v + change if isinstance(solver, SARAH) else full + change
                before, w = w, w - eta(len(at)) * v
                iterates.append(w)
        if isinstance(solver, SVRG) and solver.restart == "random":
            chosen = int(generator(0, 77, epoch - 1).integers(len(iterates)))
            assert epoch == 1 or chosen < len(iterates) - 1  # else the other rule would do the same
            w = iterates[chosen]
    for ranks, keeps_rows in ((1, True), (3, False)):
        found = fit.scores(fit.results(ranks, keeps_rows=keeps_rows))
        np.testing.assert_allclose(found, phi @ w, atol=1e-9 * np.abs(phi @ w).max())


def test_a_run_with_random_restarts_may_be_interrupted_anywhere() -> None:
    fit = _fit(SVRG(tol=0, restart="random"), Logistic(), Linear(), 3, 30)
    runs = Runs(fit)
    for until in (7, 9):
        runs.run(2, until=until)
    np.testing.assert_array_equal(runs.scores(2), fit.scores(fit.results(2)))


@pytest.mark.parametrize("solver", [SVRG(tol=1e-3), SARAH(tol=1e-3)], ids=["svrg", "sarah"])
def test_a_small_gradient_ends_the_fit(solver: FullGradients) -> None:
    fit = _fit(solver, Squared(), Linear(), 50)
    events: list[Event] = []
    results = fit.results(2, listen=events.append)
    reported = [event for event in events if isinstance(event, OptimalityMeasured)]
    assert {result.reason for result in results} == {"converged"}
    assert results[0].epochs == len(reported) < 50
    assert reported[-1].value <= 1e-3 < reported[-2].value
    phi = _features(fit)
    before = _fit(replace(solver, tol=0.0), Squared(), Linear(), results[0].epochs - 1)
    (result,) = before.results(1)
    gradient = _gradient(fit, phi, result.coef, slice(None)) + ALPHA * result.coef
    unit = np.sqrt((fit.source.weight / fit.source.weight.mean() * (phi**2).sum(axis=1)).max())
    assert reported[-1].value == pytest.approx(np.linalg.norm(gradient) / unit, rel=1e-6)


def test_what_they_cannot_do_is_refused() -> None:
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 2
    with pytest.raises(SpecError, match="svrg needs a loss with a smooth gradient"):
        KernelClassifier("gaussian:1", loss="hinge", basis=Linear(), solver="svrg", device="cpu").fit(X, y)
    with pytest.raises(SpecError, match=r"sampling='balanced' for solver sarah.*every row once"):
        KernelClassifier("gaussian:1", basis=Linear(), solver="sarah", sampling="balanced", device="cpu").fit(X, y)
    for words, sentence in (
        ({"inner": 0}, "got inner=0 for svrg; give a whole number of at least 1"),
        ({"theta": 0.0}, "got theta=0.0 for svrg"),
        ({"tol": -1.0}, "got tol=-1.0 for svrg"),
        ({"restart": "first"}, "got restart='first' for SVRG; expected 'last' or 'random'"),
    ):
        with pytest.raises(SpecError, match=sentence):
            SVRG(**words)
