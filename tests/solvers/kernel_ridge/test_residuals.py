"""Solvers of linear systems say how far they are from the solution, and the loss of the model that they give back."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern import KernelRegressor
from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.errors import DataError, SpecError
from daskkern.events import EpochFinished, Event, OptimalityMeasured
from daskkern.kernels import Gaussian, Laplacian
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import PCG, Falkon, Snapshot, Solver
from daskkern.training.run.settings import FitSettings
from tests.support import naive
from tests.support.fits import Fit, toy_source

ALPHA = 1e-2


def _fit(
    solver: Solver[object],
    loss: Loss | None = None,
    dtype: str = "float64",
    epochs: int = 60,
    basis: BasisSpec | None = None,
) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), loss or Squared(), basis or Landmarks(40), solver, ALPHA, max_epochs=epochs, batch_size=50,
        dtype=dtype, device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True, regression=loss is None), settings)


def _reported(events: list[Event]) -> list[OptimalityMeasured]:
    return [event for event in events if isinstance(event, OptimalityMeasured)]


def _unit_cube(rows: int = 600) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(0)
    X = rng.random((rows, 5))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + 0.1 * rng.standard_normal(rows)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("ranks", "outputs"), [(1, 1), (2, 1), (2, 9)])
def test_falkon_ends_at_its_tolerance_and_the_residual_is_the_true_one(ranks: int, outputs: int) -> None:
    given = _fit(Falkon(tol=1e-5))
    source = replace(
        given.source, y=np.tile(given.source.y, outputs)
    )  # of nine outputs only every tenth pass evaluates
    fit, events = Fit.of(source, given.settings), list[Event]()
    results = fit.results(ranks, listen=events.append)
    reported = _reported(events)
    assert {result.reason for result in results} == {"converged"}
    assert results[0].epochs == len(reported) < 60
    assert all(event.value > 1e-5 for event in reported[:-2])
    assert reported[-1].measure == "relative residual"
    assert reported[-1].note == ""
    assert reported[-1].value <= 1e-5
    coef = np.concatenate([result.coef for result in results])
    ids = np.concatenate([result.ids for result in results])
    a, X, indices = coef[np.argsort(ids)], fit.source.X, fit.prepared.indices
    K = naive.kernel_matrix(fit.settings.kernel.spec(), X, X)
    K_XZ, K_ZZ = K[:, indices], K[np.ix_(indices, indices)]
    weight = fit.source.weight[:, None] / fit.source.weight.mean()
    y = fit.prepared.targets.encode(fit.source.y)
    H = K_XZ.T @ (weight * K_XZ) / len(X) + ALPHA * K_ZZ
    b = K_XZ.T @ (weight * y) / len(X)
    inverse = np.linalg.inv(H)  # the preconditioner is near it: residuals in its norm are near those in this one
    found = np.sqrt(((H @ a - b) * (inverse @ (H @ a - b))).sum() / (b * (inverse @ b)).sum())
    assert reported[-1].value / 3 < found < 3 * reported[-1].value
    f = K_XZ @ a
    (loss,) = [event.loss for event in events if isinstance(event, EpochFinished)][-1:]
    assert loss == pytest.approx(float(0.5 * (weight * (f - y) ** 2).sum(axis=1).mean()), rel=1e-9)


def test_without_a_tolerance_falkon_ends_where_rounding_does_and_says_so() -> None:
    fit, events = _fit(Falkon(tol=0.0), dtype="float32"), list[Event]()
    (result,) = fit.results(1, listen=events.append)
    assert result.reason == "converged"
    assert _reported(events)[-1].note == "the rounding of float32 lets it fall no further"
    exact = Fit.of(fit.source, replace(fit.settings, dtype="float64", solver=Falkon(tol=1e-12)))
    wanted = exact.scores(exact.results(1))
    np.testing.assert_allclose(fit.scores([result]), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_falkon_without_a_penalty_is_no_worse_than_nothing_and_tells_its_loss(scale: float) -> None:
    X, y = _unit_cube()
    settings = {"basis": Landmarks(200), "solver": "falkon", "loss": "squared", "alpha": 0.0, "max_epochs": 12}
    model = KernelRegressor(Gaussian(scale), device="cpu", random_state=0, **settings).fit(X, y)
    found = model.predict(X).astype(np.float64)
    reported = model.history_[-1].loss * y.var()
    assert reported == pytest.approx(0.5 * float(((found - y) ** 2).mean()), rel=2e-2)
    assert model.score(X, y) > 0.3
    notes = [stage.detail for stage in model.history_.stages if stage.stage == "precision"]
    assert all("float32 tells" in note and "in place of 0.0e+00; set alpha" in note for note in notes)
    assert len(notes) == 1
    losses = [row.loss for row in model.history_]
    assert min(losses) >= losses[-1] * (1 - 1e-2)


@pytest.mark.parametrize(("alpha", "notes"), [(1e-9, 1), (1e-7, 0)])
def test_only_a_penalty_below_what_the_dtype_resolves_is_worth_a_line(alpha: float, notes: int) -> None:
    X, y = _unit_cube(200)
    model = KernelRegressor(
        Gaussian(10.0), basis=Landmarks(60), solver="falkon", loss="squared", alpha=alpha, max_epochs=2, device="cpu"
    ).fit(X, y)
    assert len([stage for stage in model.history_.stages if stage.stage == "precision"]) == notes


def test_falkon_in_float64_without_a_penalty_comes_as_near() -> None:
    X, y = _unit_cube()
    settings = {"basis": Landmarks(200), "solver": "falkon", "loss": "squared", "alpha": 0.0, "max_epochs": 12}
    models = [
        KernelRegressor(Gaussian(1.0), device="cpu", random_state=0, dtype=dtype, **settings).fit(X[:400], y[:400])
        for dtype in ("float32", "float64")
    ]
    one, other = (1 - model.score(X[400:], y[400:]) for model in models)
    assert other < 1.5 * one  # its landmarks are not followed to where they know nothing of the rows


@pytest.mark.parametrize("loss", [None, Logistic()], ids=["squared", "logistic"])
def test_a_state_of_an_older_falkon_is_refused(loss: Loss | None) -> None:
    fit, kept = _fit(Falkon(newton_passes=2), loss, epochs=2), list[Snapshot]()

    class Watching(Falkon):
        def snapshot(self, problem: object, state: object) -> Snapshot | None:
            found = super().snapshot(problem, state)
            if found is not None:
                kept.append(found)
                older = {name: value for name, value in found.numbers.items() if name in ("sweep", "loss", "told")}
                with pytest.raises(DataError, match=r"older Falkon.*start the fit again"):
                    super().restore(problem, replace(found, numbers=older))
            return found

    settings = replace(fit.settings, solver=Watching(newton_passes=2))
    Fit(fit.source, settings, fit.prepared).results(1)
    assert kept


def test_a_newton_step_tells_the_loss_after_it() -> None:
    fit, events = _fit(Falkon(), Logistic(), epochs=1), list[Event]()
    (result,) = fit.results(1, listen=events.append)
    (reported,) = [event.loss for event in events if isinstance(event, EpochFinished)]
    y = fit.prepared.targets.encode(fit.source.y)
    weight = fit.source.weight / fit.source.weight.mean()
    found = float((weight * Logistic().value(fit.scores([result]), y)).mean())
    assert reported == pytest.approx(found, rel=1e-9)
    assert reported < float((weight * Logistic().value(np.zeros_like(y), y)).mean())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("preconditioner", ["nystrom", "none"])
def test_pcg_ends_at_its_tolerance_and_the_residual_is_the_true_one(preconditioner: str, ranks: int) -> None:
    fit, events = _fit(PCG(preconditioner, tol=1e-5), basis=AllRows()), list[Event]()
    results = fit.results(ranks, listen=events.append)
    reported = _reported(events)
    assert {result.reason for result in results} == {"converged"}
    assert results[0].epochs == len(reported) < 60
    assert reported[-1].value <= 1e-5
    root = np.sqrt(fit.source.weight[:, None] / fit.source.weight.mean())
    y = fit.prepared.targets.encode(fit.source.y)
    ids = np.concatenate([result.ids for result in results])
    a = np.concatenate([result.coef for result in results])[np.argsort(ids)]
    K = naive.kernel_matrix(fit.settings.kernel.spec(), fit.source.X, fit.source.X)
    residual = root * (y - K @ a) - len(K) * ALPHA * a / root
    assert reported[-1].value == pytest.approx(np.linalg.norm(residual) / np.linalg.norm(root * y), rel=1e-3)


def test_pcg_ends_where_rounding_does_and_says_so() -> None:
    fit, events = _fit(PCG(tol=0.0), dtype="float32", basis=AllRows()), list[Event]()
    fit = replace(fit, settings=replace(fit.settings, alpha=1e-6))
    (result,) = fit.results(1, listen=events.append)
    reported = _reported(events)
    assert result.reason == "converged"
    assert reported[-1].note == "the rounding of float32 lets it fall no further"
    assert reported[-2].value < reported[-1].value  # the recursion went on to fall
    (loss,) = [event.loss for event in events if isinstance(event, EpochFinished)][-1:]
    y = fit.prepared.targets.encode(fit.source.y)
    weight = fit.source.weight[:, None] / fit.source.weight.mean()
    assert loss == pytest.approx(float(0.5 * (weight * (fit.scores([result]) - y) ** 2).mean()), rel=5e-2)


def test_the_state_of_an_older_pcg_is_refused() -> None:
    fit = _fit(PCG(), basis=AllRows())
    with pytest.raises(DataError, match=r"older PCG.*start the fit again"):
        fit.settings.solver.restore(None, Snapshot({}, {"square": np.ones(1)}, {}))


def test_a_tolerance_that_is_none_is_refused() -> None:
    with pytest.raises(SpecError, match=r"got tol=nan for PCG"):
        PCG(tol=float("nan"))
    with pytest.raises(SpecError, match=r"got tol=-1.0 for Falkon"):
        Falkon(tol=-1.0)
