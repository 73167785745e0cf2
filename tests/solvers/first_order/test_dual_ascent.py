"""SDCA: the iterates of the sequential method, the duality gap as a certificate, and the answers of liblinear."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import LinearSVC, LinearSVR

from daskkern.arrays import HostArray
from daskkern.backend.random import permutation
from daskkern.basis import AllRows, BasisSpec, Linear, RandomFeatures
from daskkern.errors import SpecError
from daskkern.estimators import KernelClassifier
from daskkern.events import Event, OptimalityMeasured
from daskkern.kernels import Laplacian
from daskkern.losses import Dual, EpsilonInsensitive, Hinge, Huber, Logistic, Loss, MulticlassHinge, Squared
from daskkern.monitor.event_text import line_of
from daskkern.solvers import MISO, SDCA
from daskkern.solvers.first_order.sdca import _STREAM
from daskkern.training.run.settings import FitSettings
from tests.support import naive
from tests.support.fits import Fit, toy_source

ALPHA = 1e-2


def _fit(
    loss: Loss, basis: BasisSpec, epochs: int, tol: float = 0.0, gap_every: int = 1, averaging: float = 0.0
) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), loss, basis, SDCA(tol, gap_every, averaging), ALPHA, max_epochs=epochs, batch_size=32,
        dtype="float64", device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True, regression="regression" in loss.tasks), settings)


def _inner_products(fit: Fit) -> HostArray:
    if fit.prepared.basis.all_rows:
        return naive.kernel_matrix(fit.settings.kernel.spec(), fit.source.X, fit.source.X)
    phi = fit.prepared.basis.kernel.block(fit.source.X, fit.prepared.basis.points(fit.prepared.points))
    return phi @ phi.T


def _path(fit: Fit, epochs: int) -> Iterator[tuple[HostArray, HostArray]]:
    """Yield scores and dual variables after each batch of `epochs`, one row at a time."""
    K, plan, loss = _inner_products(fit), fit.prepared.plan, fit.settings.loss
    assert isinstance(loss, Dual)
    y = fit.prepared.targets.encode(fit.source.y)
    weight = fit.source.weight / fit.source.weight.mean()
    u, n, step = np.zeros_like(y), len(y), 0
    for epoch in range(1, epochs + 1):
        for batch in plan.order(epoch):
            positions = plan.positions(batch)
            for i in positions[permutation(len(positions), 0, _STREAM, step)]:
                z = K[[i]] @ (weight[:, None] * u) / (ALPHA * n)
                u[[i]] = loss.dual_step(z, u[[i]], y[[i]], np.array([[weight[i] * K[i, i] / (ALPHA * n)]]))
            step += 1
            yield K @ (weight[:, None] * u) / (ALPHA * n), u.copy()


def _sequential(fit: Fit, epochs: int) -> tuple[HostArray, HostArray]:
    """Return scores and dual variables after `epochs`."""
    return list(_path(fit, epochs))[-1]


def _mean(fit: Fit, epochs: int, averaging: float) -> tuple[HostArray, HostArray]:
    """Return the means of scores and dual variables over the last share of `epochs`."""
    path = list(_path(fit, epochs))
    last = path[round(len(path) * (1 - averaging)) - 1 :]
    return np.mean([scores for scores, _ in last], axis=0), np.mean([u for _, u in last], axis=0)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("basis", [AllRows(), RandomFeatures(30), Linear()], ids=lambda basis: basis.name)
def test_the_last_iterates_are_averaged(basis: BasisSpec) -> None:
    fit = _fit(Hinge(), basis, 3, gap_every=3, averaging=0.5)
    expected, _ = _mean(fit, 3, 0.5)
    for ranks in (1, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), expected, atol=1e-9)


def test_a_fit_that_converged_keeps_its_mean_when_more_epochs_are_asked() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4))
    y = X[:, 0] + 0.5 * rng.standard_normal(120) > 0
    model = KernelClassifier(
        "gaussian:2",
        "hinge",
        RandomFeatures(40),
        SDCA(0.03, 1, averaging=0.95),
        1e-2,
        20,
        batch_size=16,
        warm_start=True,
    ).fit(X, y)
    before = model.decision_function(X)
    assert 2 <= model.n_iter_ < 20  # the mean has begun in the second
    after = model.set_params(max_epochs=40).fit(X, y).decision_function(X)
    np.testing.assert_array_equal(after, before)


def test_losses_with_kinks_are_averaged() -> None:
    assert SDCA().averaged_share(Hinge()) == 0.5
    assert SDCA().averaged_share(Squared()) == 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("loss", [Hinge(), Logistic(), MulticlassHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("basis", [AllRows(), RandomFeatures(30), Linear()], ids=lambda basis: basis.name)
def test_the_iterates_are_those_of_the_sequential_method(loss: Loss, basis: BasisSpec) -> None:
    fit = _fit(loss, basis, 2, gap_every=2)
    expected, _ = _sequential(fit, 2)
    for ranks in (1, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), expected, atol=1e-9)


def test_miso_takes_the_same_steps_where_the_loss_is_a_parabola() -> None:
    fits = [
        Fit.of(
            toy_source(weighted=True, regression=True),
            FitSettings(
                Laplacian(3.0), Squared(), RandomFeatures(30), solver, ALPHA, max_epochs=2, batch_size=32,
                dtype="float64", device="cpu", fit_intercept=False,
            ),
        )
        for solver in (SDCA(0.0), MISO(0.0))
    ]  # fmt: skip
    np.testing.assert_allclose(*(fit.scores(fit.results(1)) for fit in fits), rtol=1e-12, atol=1e-12)


def test_miso_needs_no_conjugate() -> None:
    assert MISO().sweeps(5, Huber(0.5)) == 2  # a pass for the gap
    assert MISO().sweeps(5, SimpleNamespace(name="mine")) == 1  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="a smooth gradient"):
        KernelClassifier("linear", "hinge", Linear(), MISO(), ALPHA).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("averaging", [0.0, 0.5])
@pytest.mark.parametrize("loss", [Hinge(), Squared(), MulticlassHinge()], ids=lambda loss: loss.name)
def test_the_gap_is_primal_minus_dual(loss: Loss, averaging: float) -> None:
    assert isinstance(loss, Dual)
    fit = _fit(loss, AllRows(), 3, averaging=averaging)
    events: list[Event] = []
    fit.results(2, listen=events.append)
    reported = [event for event in events if isinstance(event, OptimalityMeasured)]
    assert [event.epoch for event in reported] == [1, 2, 3]
    scores, u = _mean(fit, 3, averaging)
    y, weight = fit.prepared.targets.encode(fit.source.y), fit.source.weight / fit.source.weight.mean()
    norm = float((weight[:, None] * u * scores).sum()) / (ALPHA * len(y))
    primal = float(np.mean(weight * loss.value(scores, y))) + ALPHA / 2 * norm
    dual = -float(np.mean(weight * loss.conjugate(-u, y))) - ALPHA / 2 * norm
    assert reported[-1].value == pytest.approx(primal - dual, abs=1e-12)
    assert reported[-1].measure in str(line_of(reported[-1], 3))


def test_a_small_gap_ends_the_fit() -> None:
    fit = _fit(Squared(), AllRows(), 100, tol=1e-6, gap_every=3)
    events: list[Event] = []
    results = fit.results(2, listen=events.append)
    reported = [event for event in events if isinstance(event, OptimalityMeasured)]
    assert {result.reason for result in results} == {"converged"}
    assert results[0].epochs == reported[-1].epoch < 100
    assert reported[-1].epoch % 3 == 0
    assert reported[-1].value <= reported[-1].tol < reported[-2].value
    y, weight = fit.prepared.targets.encode(fit.source.y), fit.source.weight / fit.source.weight.mean()
    assert reported[-1].tol == pytest.approx(1e-6 * float(np.mean(weight * Squared().value(0 * y, y))), rel=1e-12)

    def objective(a: HostArray) -> float:
        return naive.objective(Squared().value, K, K, a, y, ALPHA, weight)

    K, coef = _inner_products(fit), np.empty((len(y), 1))
    for result in results:
        coef[result.ids] = result.coef
    assert 0 <= objective(coef) - objective(naive.ridge(K, y, ALPHA, weight)) <= reported[-1].value


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("loss", "reference"),
    [
        (Hinge(), LinearSVC(loss="hinge", C=10 / 130, fit_intercept=False, tol=1e-9, max_iter=100_000)),
        (
            EpsilonInsensitive(0.3),
            LinearSVR(epsilon=0.3, C=10 / 130, fit_intercept=False, tol=1e-9, max_iter=100_000),
        ),
    ],
    ids=["svc", "svr"],
)
def test_support_vector_machines_are_those_of_liblinear(loss: Loss, reference: Any) -> None:
    fit = _fit(loss, Linear(intercept=False), 200, tol=1e-7, gap_every=10)
    fit = Fit.of(replace(fit.source, weight=None), replace(fit.settings, alpha=0.1))
    y = fit.source.y if fit.prepared.targets.n_classes else fit.prepared.targets.encode(fit.source.y)[:, 0]
    reference.fit(fit.source.X, y)
    expected = fit.source.X @ np.atleast_2d(reference.coef_).T
    np.testing.assert_allclose(fit.scores(fit.results(1)), expected, atol=2e-3)


def test_what_has_no_dual_is_refused() -> None:
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 2
    with pytest.raises(SpecError, match=r"got alpha=0.* for solver sdca.*give alpha > 0"):
        KernelClassifier("gaussian:1", basis=Linear(), solver="sdca", alpha=0.0, device="cpu").fit(X, y)
    with pytest.raises(SpecError, match="a pass of it must meet every row once; choose 'uniform', 'fresh' or 'fixed'"):
        KernelClassifier(
            "gaussian:1", basis=Linear(), solver="sdca", alpha=0.1, class_weight="balanced", sampling="weighted"
        ).fit(X, y)
    with pytest.raises(SpecError, match="got tol=-1"):
        SDCA(tol=-1)
    with pytest.raises(SpecError, match="got gap_every=0"):
        SDCA(gap_every=0)
    with pytest.raises(SpecError, match="got averaging=2 for SDCA"):
        SDCA(averaging=2)
    with pytest.raises(SpecError, match="got averaging=None for SDCA"):
        SDCA(averaging=None)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"got averaging='all' for SDCA.*or 'auto'"):
        SDCA(averaging="all")


def test_sparse_rows_give_the_model_of_dense_ones() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 12)) * (rng.random((80, 12)) < 0.3)
    y = (X[:, 0] + X[:, 3] > 0).astype(int)
    models = [
        KernelClassifier("gaussian:1", "hinge", Linear(), "sdca", 0.01, batch_size=20, dtype="float64", scale=None).fit(
            rows, y
        )
        for rows in (X, scipy.sparse.csr_matrix(X))
    ]
    np.testing.assert_allclose(models[0].decision_function(X), models[1].decision_function(X), atol=1e-9)
