"""Epoch mixed gradient descent against the loop of its paper, and its balls."""

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Linear, RandomFeatures
from daskkern.errors import SpecError
from daskkern.estimators import KernelClassifier
from daskkern.kernels import Laplacian
from daskkern.losses import Logistic, Smooth
from daskkern.solvers import MixedGradient
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, Runs, toy_source

ALPHA, EPOCHS = 2e-2, 3


def _fit(solver: MixedGradient, basis: BasisSpec, epochs: int = EPOCHS) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), Logistic(), basis, solver, ALPHA, max_epochs=epochs, batch_size=30, dtype="float64",
        device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True), settings)


def _reference(fit: Fit, phi: HostArray) -> tuple[HostArray, int, list[float]]:
    """Return w after algorithm 1, how many steps its balls cut short, and their radii."""
    solver, plan, loss = fit.settings.solver, fit.prepared.plan, fit.settings.loss
    assert isinstance(solver, MixedGradient)
    assert isinstance(loss, Smooth)
    y, weight = fit.prepared.targets.encode(fit.source.y), fit.source.weight / fit.source.weight.mean()

    def gradient(w: HostArray, at: HostArray | slice) -> HostArray:
        g = weight[at, None] * loss.gradient(phi[at] @ w, y[at])
        return phi[at].T @ g / len(g) + ALPHA * w

    w, cut, radii = np.zeros((phi.shape[1], y.shape[1])), 0, []
    for epoch in range(1, EPOCHS + 1):
        anchor, full = w, gradient(w, slice(None))
        auto = solver.radius == "auto"
        radii.append(np.linalg.norm(full) / ALPHA if auto else float(solver.radius) / 2 ** ((epoch - 1) / 2))
        iterates = [w]
        for sweep in range(1, solver.inner + 1):
            for batch in plan.order(epoch + (sweep << 32)):
                at = plan.positions(batch)
                eta = solver.theta * fit.prepared.state.step_size(len(at), loss.smoothness, ALPHA)
                w = w - eta * (full + gradient(w, at) - gradient(anchor, at))
                distance = np.linalg.norm(w - anchor)
                if distance > radii[-1]:
                    cut, w = cut + 1, anchor + (w - anchor) * (radii[-1] / distance)
                iterates.append(w)
        w = np.mean(iterates, axis=0)
    return w, cut, radii


@pytest.mark.parametrize("radius", ["auto", 0.2])
@pytest.mark.parametrize("basis", [Linear(), RandomFeatures(30)], ids=lambda basis: basis.name)
def test_the_iterates_are_those_of_the_paper(radius: float | str, basis: BasisSpec) -> None:
    fit = _fit(MixedGradient(theta=0.7, tol=0, radius=radius), basis)
    phi = fit.prepared.basis.kernel.block(fit.source.X, fit.prepared.basis.points(fit.prepared.points))
    w, cut, _ = _reference(fit, phi)
    assert (cut > 0) == (radius != "auto")
    for ranks in (1, 3):
        found = fit.scores(fit.results(ranks))
        np.testing.assert_allclose(found, phi @ w, atol=1e-9 * np.abs(phi @ w).max())


def test_automatic_balls_hold_the_optimum_and_shrink() -> None:
    fit = _fit(MixedGradient(tol=0), Linear())
    phi = fit.prepared.basis.kernel.block(fit.source.X, fit.prepared.basis.points(fit.prepared.points))
    best = _optimum(phi)
    w, _, radii = _reference(fit, phi)
    assert np.linalg.norm(best) < radii[0]
    assert np.linalg.norm(best - w) < radii[-1] < radii[0] / 2


def _optimum(phi: HostArray) -> HostArray:
    """Return w of a run to the end."""
    fit = _fit(MixedGradient(theta=1.0, tol=0), Linear(), 40)
    (result,) = fit.results(1)
    w = np.empty_like(result.coef)
    w[result.ids] = result.coef
    np.testing.assert_allclose(fit.scores([result]), phi @ w, atol=1e-9)
    return w


def test_a_run_may_be_interrupted_anywhere() -> None:
    fit = _fit(MixedGradient(tol=0, radius=0.3), Linear())
    runs = Runs(fit)
    for until in (2, 7, 12):
        runs.run(2, until=until)
    np.testing.assert_array_equal(runs.scores(2), fit.scores(fit.results(2)))


@pytest.mark.parametrize("radius", [0, -1.0, np.inf, "wide", True])
def test_a_radius_that_is_none_is_refused(radius: object) -> None:
    with pytest.raises(SpecError, match="for mixed_gradient; give a positive number"):
        MixedGradient(radius=radius)  # type: ignore[arg-type]


def test_what_it_needs_is_said() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    with pytest.raises(SpecError, match="give alpha above 0, or a radius"):
        KernelClassifier("linear", "logistic", Linear(), MixedGradient(), 0.0).fit(X, X[:, 0] > 0)
    with pytest.raises(SpecError, match="mixed_gradient"):
        KernelClassifier("gaussian:1", "logistic", AllRows(), MixedGradient(), 0.1).fit(X, X[:, 0] > 0)
