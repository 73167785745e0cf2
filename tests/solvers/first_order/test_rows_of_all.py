"""SAG and SAGA over rows that are drawn from all of them, against the loop of the lecture."""

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, Linear
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.errors import SpecError
from daskkern.kernels import LinearKernel
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import SAG, SGD
from daskkern.training.feeding.sampling import IndependentSampling
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, N, toy_source

ALPHA, EPOCHS = 0.02, 3


def _fit(method: str, loss: Loss) -> Fit:
    settings = FitSettings(
        LinearKernel(), loss, Linear(), SAG(method, order="independent", tol=0), ALPHA, max_epochs=EPOCHS,
        batch_size=40, dtype="float64", device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True, regression=isinstance(loss, Squared)), settings)


def _draws(fit: Fit) -> list[int]:
    """Return the numbers of the drawn rows, one after the other."""
    plan, sampling, rows = fit.prepared.plan, fit.prepared.sampling, fit.source.open("float64")
    assert isinstance(plan, BatchPlan)
    assert isinstance(sampling, IndependentSampling)
    found: list[int] = []
    for epoch in range(1, EPOCHS + 1):
        drawn = sampling.rows(rows, epoch)
        for batch in plan.order(epoch):
            found += sampling.positions(drawn, plan.positions(int(batch), epoch)).tolist()
    return found


def _features(fit: Fit) -> HostArray:
    basis = fit.prepared.basis
    features: HostArray = basis.kernel.block(fit.source.X, basis.points(fit.prepared.points))
    return features


def _reference(fit: Fit, method: str) -> HostArray:
    """Return w after the loop: d = d - y_i + f_i', y_i = f_i', x = x - alpha / n d; SAGA with its unbiased part.

    n is the number of all rows from the first step on, as the lecture prints it.
    """
    X, loss, alpha = _features(fit), fit.settings.loss, fit.settings.ridge
    y, weight = fit.prepared.targets.encode(fit.source.y), fit.source.weight / fit.source.weight.mean()
    w, d = np.zeros((X.shape[1], y.shape[1])), np.zeros((X.shape[1], y.shape[1]))
    kept = np.zeros_like(y)
    L = loss.smoothness * max(fit.prepared.state.beta, (weight * (X**2).sum(axis=1)).max()) + alpha
    eta = 1 / (16 * L) if method == "sag" else 1 / (3 * L)
    for i in _draws(fit):
        slope = weight[i] * loss.gradient((X[i] @ w)[None], y[i : i + 1])[0]
        change = np.outer(X[i], slope - kept[i])
        direction = d / N + (change if method == "saga" else change / N)
        w = w - eta * (alpha * w + direction)
        d, kept[i] = d + change, slope
    return w


@pytest.mark.parametrize("method", ["sag", "saga"])
@pytest.mark.parametrize("loss", [Squared(), Logistic()])
def test_steps_are_those_of_the_loop_on_any_number_of_ranks(method: str, loss: Loss) -> None:
    fit = _fit(method, loss)
    draws = np.array(_draws(fit)).reshape(EPOCHS, N)
    batches = [part for epoch in draws for part in np.split(epoch, [32, 65, 97])]
    assert any(len(set(part.tolist())) < len(part) for part in batches)  # one row twice in a batch
    assert all(len(set(epoch.tolist())) < N for epoch in draws)
    expected = _features(fit) @ _reference(fit, method)
    for ranks in (1, 2):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), expected, rtol=1e-9, atol=1e-11)


def test_the_order_and_the_sampling_of_a_fit_agree() -> None:
    def settings(solver: object, sampling: str = "uniform", basis: object = None) -> FitSettings:
        return FitSettings(LinearKernel(), Squared(), basis or Linear(), solver, 0.1, sampling=sampling)  # type: ignore[arg-type]

    assert settings(SAG(order="independent")).sampling == "independent"
    assert settings(SAG()).sampling == "uniform"
    SAG(order="independent").check_sampling("independent")
    SAG().check_sampling("fresh")
    SGD().check_sampling("independent")
    for solver, sampling in ((SAG(order="independent"), "fresh"), (SAG(), "independent")):
        with pytest.raises(SpecError, match="give order='independent' and leave sampling out"):
            solver.check_sampling(sampling)
    with pytest.raises(SpecError, match="give landmarks or features"):
        settings(SAG(order="independent"), basis=AllRows())
