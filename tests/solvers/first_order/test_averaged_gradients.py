"""SAG and SAGA: the iterates of the sequential method, the bound of the theory, and the norm that ends a fit."""

import math
from dataclasses import replace

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Linear, RandomFeatures
from daskkern.errors import SpecError
from daskkern.estimators import KernelClassifier
from daskkern.events import Event, OptimalityMeasured
from daskkern.kernels import Laplacian
from daskkern.losses import Hinge, Logistic, Loss, Smooth, Squared, SquaredHinge
from daskkern.solvers import SAG
from daskkern.solvers.first_order.sag import SAGRun
from daskkern.solvers.setup import ColumnSetup, RowShare
from daskkern.training.run.settings import FitSettings
from tests.support import naive
from tests.support.fits import Fit, toy_source

ALPHA = 1e-2


def _fit(solver: SAG, loss: Loss, basis: BasisSpec, epochs: int, batch_size: int = 32) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), loss, basis, solver, ALPHA, max_epochs=epochs, batch_size=batch_size, dtype="float64",
        device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True, regression="regression" in loss.tasks), settings)


def _features(fit: Fit) -> HostArray:
    """Return rows (n, p) whose inner products are those of the function space."""
    if fit.prepared.basis.all_rows:
        return np.linalg.cholesky(naive.kernel_matrix(fit.settings.kernel.spec(), fit.source.X, fit.source.X))
    return fit.prepared.basis.kernel.block(fit.source.X, fit.prepared.basis.points(fit.prepared.points))


def _weights(fit: Fit) -> HostArray:
    return fit.source.weight / fit.source.weight.mean()


def _sequential(fit: Fit, epochs: int) -> HostArray:
    """Return the scores after `epochs`, from the textbook's w and table of gradients."""
    phi, plan, loss, solver = _features(fit), fit.prepared.plan, fit.settings.loss, fit.settings.solver
    assert isinstance(solver, SAG)
    assert isinstance(loss, Smooth)
    y, weight, n = fit.prepared.targets.encode(fit.source.y), _weights(fit), len(phi)
    setup = ColumnSetup(n, fit.prepared.state, RowShare.equal(n, 0, 1), False, 0)
    w, table = np.zeros((phi.shape[1], y.shape[1])), np.zeros((n, phi.shape[1], y.shape[1]))
    squares = weight * (phi**2).sum(axis=1)
    largest, step, seen = fit.prepared.state.beta, 0, 0
    for epoch in range(1, epochs + 1):
        for batch in plan.order(epoch):
            at = plan.positions(batch)
            largest = max(largest, squares[at].max())
            run = SAGRun(w, w, table, step, seen, largest, 0.0)
            rows, kappa = solver._rows(run, squares[at], setup, np.arange(len(at)))
            mean = max(fit.prepared.state.mean_square, squares[at].mean())
            smooth = max(largest / 3, min(largest, 2 * mean))
            smooth = largest if seen < n or solver.order != "lipschitz" else smooth
            eta = 1 / ((3 if solver.method == "saga" else 16) * (loss.smoothness * smooth + ALPHA))
            for k in rows:
                i = at[k]
                new = weight[i] * np.outer(phi[i], loss.gradient(phi[[i]] @ w, y[[i]])[0])
                seen = min(seen + 1, n)
                if solver.method == "saga":
                    direction = kappa[k] * (new - table[i]) + table.mean(axis=0)
                    table[i] = new
                else:
                    table[i] = new
                    direction = table.sum(axis=0) / seen
                w = w - eta * (direction + ALPHA * w)
            step += 1
    return phi @ w


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("solver", "loss", "basis"),
    [
        (SAG("sag", tol=0), Logistic(), RandomFeatures(30)),
        (SAG("saga", order="shuffled", tol=0), Squared(), AllRows()),
        (SAG("saga", order="lipschitz", tol=0), Logistic(), Linear()),
        (SAG("sag", order="lipschitz", tol=0), Logistic(), AllRows()),
    ],
    ids=["sag", "saga shuffled", "saga lipschitz", "sag lipschitz"],
)
def test_the_iterates_are_those_of_the_sequential_method(solver: SAG, loss: Loss, basis: BasisSpec) -> None:
    fit = _fit(solver, loss, basis, 3)
    expected = _sequential(fit, 3)
    for ranks in (1, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), expected, atol=1e-9 * np.abs(expected).max())


def test_the_bound_of_the_theory_holds() -> None:
    """Theorem 1 of Schmidt, Le Roux and Bach, for slopes that begin with 0."""
    fit = _fit(SAG("sag", tol=0), Squared(), Linear(), 1)
    phi, weight, y = _features(fit), _weights(fit), fit.prepared.targets.encode(fit.source.y)
    n = len(phi)
    best = np.linalg.solve(
        phi.T @ (weight[:, None] * phi) / n + ALPHA * np.eye(phi.shape[1]), phi.T @ (weight[:, None] * y) / n
    )

    def objective(w: HostArray) -> float:
        return float(np.mean(weight * Squared().value(phi @ w, y)) + ALPHA / 2 * (w**2).sum())

    L = float((weight * (phi**2).sum(axis=1)).max()) + ALPHA
    slopes = weight[:, None] * (phi @ best - y)
    noise = float(np.mean((slopes**2).sum(axis=1) * (phi**2).sum(axis=1)))
    start = objective(0 * best) - objective(best) + 4 * L / n * float((best**2).sum()) + noise / (16 * L)
    rate = 1 - min(ALPHA / (16 * L), 1 / (8 * n))
    for epochs in (5, 20, 60):
        (result,) = _fit(SAG("sag", tol=0), Squared(), Linear(), epochs).results(1)
        assert objective(result.coef) - objective(best) <= rate ** (n * epochs) * start


@pytest.mark.parametrize("basis", [Linear(), AllRows()], ids=lambda basis: basis.name)
def test_a_small_gradient_ends_the_fit(basis: BasisSpec) -> None:
    fit = _fit(SAG(tol=1e-3), Logistic(), basis, 200)
    events: list[Event] = []
    results = fit.results(2, listen=events.append)
    reported = [event for event in events if isinstance(event, OptimalityMeasured)]
    assert {result.reason for result in results} == {"converged"}
    assert len(reported) == results[0].epochs < 200
    assert reported[-1].value <= reported[-1].tol == 1e-3 < reported[-2].value
    phi, weight = _features(fit), _weights(fit)
    y = fit.prepared.targets.encode(fit.source.y)
    scores = fit.scores(results)
    w = np.linalg.lstsq(phi, scores, rcond=None)[0]
    gradient = phi.T @ (weight[:, None] * Logistic().gradient(scores, y)) / len(phi) + ALPHA * w
    norm = float(np.linalg.norm(gradient)) / math.sqrt((weight * (phi**2).sum(axis=1)).max())
    assert norm <= 2e-3  # that of the memory, whose slopes are an epoch old at most, is not that of the model


@pytest.mark.long
def test_few_heavy_rows_do_not_shorten_all_steps() -> None:
    source = toy_source(weighted=True)
    weight = np.where(np.arange(len(source.y)) % 40 == 0, 200.0, 1.0)
    above = {}
    for order in ("auto", "uniform", "lipschitz"):
        fit = _fit(SAG(order=order, tol=0), SquaredHinge(), AllRows(), 30)
        fit = Fit.of(replace(fit.source, weight=weight), fit.settings)
        phi, y = _features(fit), fit.prepared.targets.encode(fit.source.y)
        w = np.linalg.solve(phi, fit.scores(fit.results(1)))
        losses = fit.settings.loss.value(phi @ w, y).reshape(len(phi), -1).sum(axis=1)
        above[order] = float((weight / weight.mean()) @ losses) / len(phi) + ALPHA / 2 * float((w**2).sum())
    assert above["auto"] == above["lipschitz"]
    assert above["auto"] < 0.9 * above["uniform"]


def test_a_loss_with_kinks_is_refused() -> None:
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 2
    with pytest.raises(SpecError, match=r"sag needs a loss with a smooth gradient, and the hinge loss has none.*sdca"):
        KernelClassifier("gaussian:1", loss=Hinge(), basis=Linear(), solver="sag", device="cpu").fit(X, y)
    for words, sentence in (
        ({"method": "svrg"}, "got method='svrg' for SAG; choose one of sag, saga"),
        ({"steps": "long"}, "steps='long'"),
        ({"order": "cyclic"}, "order='cyclic'"),
        ({"method": "sag", "order": "shuffled"}, "can diverge; choose 'uniform' or 'lipschitz'"),
        ({"tol": -1.0}, "got tol=-1.0"),
    ):
        with pytest.raises(SpecError, match=sentence):
            SAG(**words)
