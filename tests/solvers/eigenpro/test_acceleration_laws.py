"""What preconditioning and momentum are for: fewer epochs for the same training error, and the same optimum."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks, RandomFeatures
from daskkern.data.schema.schema import Scaling
from daskkern.errors import SpecError
from daskkern.events import EpochFinished, Event
from daskkern.kernels import ArcCosine, Gaussian, InversePolynomial, Kernel
from daskkern.losses import Hinge, Loss, Squared, SquaredHinge
from daskkern.solvers import SGD, EigenPro, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.settings import FitSettings
from tests.support import naive
from tests.support.fits import Fit, Runs

N, D = 400, 5
PLAIN, STEEP = SGD(averaging=0.0), EigenPro(averaging=0.0)


def _source(n: int = N, *, regression: bool = True, weighted: bool = False) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, D))
    values = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.cos(3 * X[:, 3])
    y = values[:, None] if regression else (values > 0).astype(int)
    task, classes = ("regression", None) if regression else ("classification", ("no", "yes"))
    weight = rng.uniform(0.2, 2.0, n) if weighted else None
    return ArraySource(X, y, weight, SourceInfo(n, D, task, classes, Scaling(), None, 1, True))


def _fit(
    solver: Solver[object],
    basis: BasisSpec,
    epochs: int,
    m: int = 64,
    loss: Loss | None = None,
    kernel: Kernel | None = None,
    alpha: float = 0.0,
    dtype: str = "float64",
    source: ArraySource | None = None,
) -> Fit:
    settings = FitSettings(
        kernel or Gaussian(2.0), loss or Squared(), basis, solver, alpha, max_epochs=epochs, batch_size=m,
        dtype=dtype, device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(source or _source(), settings)


def _losses(fit: Fit) -> list[float]:
    events: list[Event] = []
    fit.results(1, listen=events.append)
    return [event.loss for event in events if isinstance(event, EpochFinished)]


@pytest.mark.long
@pytest.mark.one_in(2, 1)
@pytest.mark.parametrize("basis", [AllRows(), RandomFeatures(200)], ids=["all_rows", "random_features"])
def test_eigenpro_takes_a_fifth_of_the_epochs_of_sgd(basis: BasisSpec) -> None:
    steep, plain = _losses(_fit(STEEP, basis, 10, 32)), _losses(_fit(PLAIN, basis, 50, 32))
    assert min(plain) > steep[-1]


@lru_cache
def _table_two(kernel: str, loss: str, *, conditioned: bool) -> float:
    chosen = {"gaussian": Gaussian(D**0.5), "arc": ArcCosine(1), "inverse": InversePolynomial()}[kernel]
    losses: dict[str, Loss] = {"squared": Squared(), "hinge": Hinge(), "squared_hinge": SquaredHinge()}
    solver: Solver[object] = EigenPro(rho=0.5, averaging=0.0) if conditioned else PLAIN
    source = _source(300, regression=False)
    return _losses(_fit(solver, AllRows(), 10, loss=losses[loss], kernel=chosen, source=source))[-1]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kernel", ["gaussian", "arc", "inverse"])
@pytest.mark.parametrize("loss", ["squared", "hinge", "squared_hinge"])
def test_conditioning_beats_none_for_every_loss_and_kernel(kernel: str, loss: str) -> None:
    # Table 2 of Pfahler and Morik, ECML PKDD 2018, at equal epochs.
    assert _table_two(kernel, loss, conditioned=True) < _table_two(kernel, loss, conditioned=False)


def test_eigenpro_with_rho_one_half_is_conditioned_sgd() -> None:
    # Pfahler and Morik's equation (20), with the subsample for its N: a -= eta/|B| sum l' (e_i - D K_Ni).
    q, loss = 12, SquaredHinge()
    fit = _fit(
        EigenPro(subsample=80, n_directions=q, rho=0.5, averaging=0.0), AllRows(), 3, 32, loss,
        source=_source(150, regression=False),
    )  # fmt: skip
    plan, state, S = fit.prepared.plan, fit.prepared.state, fit.prepared.basis.head
    K = naive.kernel_matrix(Gaussian(2.0).spec(), fit.source.X, fit.source.X)
    y = fit.prepared.targets.encode(fit.source.y)
    values, U = np.linalg.eigh(K[np.ix_(S, S)])
    lam, U = values[::-1] / S.size, U[:, ::-1][:, :q]
    middle = (U * (1 - np.sqrt(lam[q] / lam[:q])) / (S.size * lam[:q])) @ U.T
    a = np.zeros((150, 1))
    for epoch in (1, 2, 3):
        for number in plan.order(epoch):
            B = plan.positions(number)
            g = loss.gradient(K[B] @ a, y[B])
            eta = state.step_size(B.size, loss.smoothness)
            a[S] += eta / B.size * middle @ (K[np.ix_(S, B)] @ g)
            a[B] -= eta / B.size * g
    result = fit.results(1)[0]
    found = np.empty_like(a)
    found[result.ids] = result.coef
    np.testing.assert_allclose(found, a, atol=1e-9 * np.abs(a).max())


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize("basis", [AllRows(), RandomFeatures(200)], ids=["all_rows", "random_features"])
def test_momentum_halves_the_epochs_of_small_batches(basis: BasisSpec) -> None:
    steep = _losses(_fit(STEEP, basis, 24, 32))
    pushed = _losses(_fit(EigenPro(averaging=0.0, momentum=0.97), basis, 12, 32))
    assert pushed[-1] < steep[-1]


def _coefficients(fit: Fit, ranks: int = 1) -> HostArray:
    results = fit.results(ranks)
    coef = np.empty((fit.prepared.basis.n_columns, results[0].coef.shape[1]))
    for result in results:
        coef[result.ids] = result.coef
    return coef


PUSHED = {
    "all rows": (EigenPro(averaging=0.0, momentum=0.9), AllRows()),
    "random features": (EigenPro(averaging=0.0, momentum=0.9), RandomFeatures(60)),
    "landmarks": (EigenPro(averaging=0.0, momentum=0.9, window=1), Landmarks(40)),
}
pushed = pytest.mark.parametrize("name", PUSHED)


@pytest.mark.long
@pytest.mark.one_in(2)
@pushed
def test_momentum_ends_at_the_optimum(name: str) -> None:
    solver, basis = PUSHED[name]
    n, alpha = 120, 1e-2
    fit = _fit(solver, basis, 250, n, alpha=alpha, source=_source(n, weighted=True))
    X, w = fit.source.X, fit.source.weight[:, None] / fit.source.weight.mean()
    points = X[fit.prepared.indices] if fit.prepared.points is None else fit.prepared.points
    kernel = fit.prepared.basis.kernel
    phi = kernel.block(X, points)
    penalty = np.eye(len(points)) if fit.prepared.points is not None else kernel.block(points, points)
    y = fit.prepared.targets.encode(fit.source.y)
    a = np.linalg.lstsq(phi.T @ (w * phi) / n + alpha * penalty, phi.T @ (w * y) / n, rcond=None)[0]
    scores = phi @ _coefficients(fit)
    np.testing.assert_allclose(scores, phi @ a, atol=2e-4 * np.abs(y).max())


@pytest.mark.one_in(2)
@pushed
def test_momentum_is_the_same_on_any_number_of_ranks_and_in_parts(name: str) -> None:
    solver, basis = PUSHED[name]
    fit = _fit(solver, basis, 4, 20, alpha=1e-2, source=_source(120, weighted=True))
    alone = fit.scores(fit.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=1e-9 * np.abs(alone).max())
    runs = Runs(fit)
    runs.run(2, until=9)
    np.testing.assert_array_equal(runs.scores(2), fit.scores(fit.results(2)))


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(SpecError, match="from 0 to below 1"):
        EigenPro(momentum=1.0)
    with pytest.raises(SpecError, match="momentum over landmarks needs window=1"):
        _fit(EigenPro(momentum=0.9, window=3), Landmarks(40), 2).results(1)
    with pytest.raises(SpecError, match="random features, which needs no projections"):
        _fit(EigenPro(window=3), RandomFeatures(40), 2)


@pytest.mark.parametrize("sampling", ["uniform", "weighted"])
def test_heavy_rows_are_met_or_weighed_alike(sampling: str) -> None:
    source = _source(200, weighted=True)
    source = replace(source, weight=source.weight * np.where(np.arange(200) % 20 == 0, 20.0, 1.0))
    fit = _fit(EigenPro(), RandomFeatures(60), 40, 20, alpha=1e-2, source=source)
    fit = Fit.of(source, replace(fit.settings, sampling=sampling))
    kernel, points = fit.prepared.basis.kernel, fit.prepared.points
    phi, w = kernel.block(source.X, points), source.weight[:, None] / source.weight.mean()
    y = fit.prepared.targets.encode(source.y)
    best = np.linalg.solve(phi.T @ (w * phi) / 200 + 1e-2 * np.eye(60), phi.T @ (w * y) / 200)
    off = fit.scores(fit.results(1)) - phi @ best
    assert (w * off**2).mean() < 0.01 * (w * (phi @ best) ** 2).mean()
