"""One table of solvers: each reaches the optimum it is meant for, on any number of ranks, in one run or in several.

A new solver is one row of :data:`TABLE`.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.optimize import minimize
from test_interrupted_runs import Runs
from test_ranks_of_a_fit import Fit, _source

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear, NystromFeatures, RandomFeatures
from daskkern.events import EpochFinished, Event, FitResumed
from daskkern.kernels import Laplacian
from daskkern.linalg import column_blocks
from daskkern.losses import Logistic, Loss, MultinomialLogistic, Squared, SquaredHinge, encode
from daskkern.solvers import (
    MISO,
    NYTRO,
    PCG,
    SAG,
    SARAH,
    SDCA,
    SGD,
    SVRG,
    AdaGrad,
    ASkotch,
    BlockCD,
    Direct,
    EigenPro,
    Falkon,
    Norma,
    NystromSGD,
    Pegasos,
    Solver,
)
from daskkern.training.run.settings import FitSettings
from tests.support import naive

ALPHA = 1e-2


@dataclass(frozen=True)
class Row:
    """A solver, what it minimises, and how near to the optimum it must come.

    `epochs` are enough for an objective above the least one by at most `gap` of its value for the model 0.
    `goes_on` is false where other tests run the solver in parts and on ranks. `stochastic` solvers take steps within
    an epoch: they do not know their training loss, and a repeated row is not one of twice the weight. One that
    `tells_before` knows the loss of the model that an epoch began with.
    """

    solver: Solver[object]
    loss: Loss
    basis: BasisSpec = Landmarks(40)
    epochs: int = 40
    gap: float = 1e-10
    batch_size: int = 130
    regression: bool = False
    goes_on: bool = True
    stochastic: bool = False
    ranks: tuple[int, ...] = (2, 3)
    tells_before: bool = False


TABLE = {
    "eigenpro, all rows": Row(EigenPro(averaging=0.0), Squared(), AllRows(), 200, 1e-5, goes_on=False),
    "eigenpro, landmarks": Row(EigenPro(averaging=0.0), Logistic(), epochs=100, gap=1e-4, goes_on=False),
    "eigenpro, features": Row(EigenPro(averaging=0.0), SquaredHinge(), RandomFeatures(60), 300, 1e-5, stochastic=True),
    "eigenpro, linear": Row(EigenPro(), Logistic(), Linear(), 40, 1e-4, batch_size=30, stochastic=True),
    "eigenpro, nystrom features": Row(
        EigenPro(averaging=0.0), Squared(), NystromFeatures(40), 60, 1e-6, stochastic=True
    ),
    "nystrom_sgd": Row(NystromSGD(mode="streamed"), SquaredHinge(), epochs=300, gap=1e-4, goes_on=False),
    "falkon, squared": Row(Falkon(), Squared(), epochs=40, gap=1e-13, regression=True, batch_size=50),
    "falkon, logistic": Row(Falkon(), Logistic(), epochs=8),
    "nytro, squared": Row(NYTRO(), Squared(), epochs=600, gap=1e-6, regression=True, tells_before=True, batch_size=50),
    "nytro, logistic": Row(NYTRO(1.9), Logistic(), epochs=200, gap=1e-6, tells_before=True),
    "falkon, softmax": Row(Falkon(), MultinomialLogistic(), epochs=8),
    "direct, all rows": Row(Direct(), Squared(), AllRows(), 1, 1e-13, regression=True, batch_size=50, ranks=(1,)),
    "direct, landmarks": Row(Direct(), Squared(), epochs=1, gap=1e-13, ranks=(1,)),
    "direct, random features": Row(Direct(), Squared(), RandomFeatures(40), 1, 1e-13, ranks=(1,)),
    "direct, linear": Row(Direct(), Squared(), Linear(), 1, 1e-13, regression=True, ranks=(1,)),
    "pcg": Row(PCG(), Squared(), AllRows(), 30, 1e-12, regression=True, batch_size=50),
    "pcg, random features": Row(PCG("random_features"), Squared(), AllRows(), 60, 1e-12),
    "pcg, none": Row(PCG("none"), Squared(), AllRows(), 90, 1e-10, regression=True, batch_size=50),
    "falkon, squared hinge": Row(Falkon(newton_passes=10), SquaredHinge(), epochs=12, gap=1e-7),
    "sgd, all rows": Row(SGD(averaging=0.0), Logistic(), AllRows(), 200, 1e-4, stochastic=True),
    "sgd, random features": Row(SGD(), SquaredHinge(), RandomFeatures(60), 60, 1e-3, batch_size=10, stochastic=True),
    "sgd, nystrom features": Row(SGD(averaging=0.0), Squared(), NystromFeatures(40), 200, 1e-5, stochastic=True),
    "sgd, linear": Row(SGD("bottou"), MultinomialLogistic(), Linear(), 60, 1e-4, batch_size=30, stochastic=True),
    "sdca, all rows": Row(SDCA(tol=0), Squared(), AllRows(), 60, 1e-9, regression=True, stochastic=True),
    "sdca, random features": Row(SDCA(tol=0), SquaredHinge(), RandomFeatures(60), 60, 1e-6, 30, stochastic=True),
    "sdca, nystrom features": Row(SDCA(tol=0), Logistic(), NystromFeatures(40), 40, 1e-7, 30, stochastic=True),
    "sdca, linear": Row(SDCA(tol=0), MultinomialLogistic(), Linear(), 20, 2e-4, batch_size=65, stochastic=True),
    "miso, all rows": Row(MISO(tol=0), Squared(), AllRows(), 60, 1e-9, regression=True, stochastic=True),
    "miso, random features": Row(MISO(tol=0), SquaredHinge(), RandomFeatures(60), 60, 1e-6, 30, stochastic=True),
    "miso, linear": Row(MISO(tol=0), MultinomialLogistic(), Linear(), 30, 1e-3, batch_size=65, stochastic=True),
    "sgd, growing": Row(SGD(averaging=0.0, growth=2.0), Logistic(), Linear(), 60, 1e-5, 30, stochastic=True),
    "adagrad, random features": Row(AdaGrad(2.0), Logistic(), RandomFeatures(60), 60, 1e-3, 30, stochastic=True),
    "adagrad, nystrom features": Row(
        AdaGrad(3.0, averaging=0.3), SquaredHinge(), NystromFeatures(40), 60, 1e-3, 30, stochastic=True
    ),
    "adagrad, linear": Row(AdaGrad(), Squared(), Linear(), 60, 1e-3, 30, regression=True, stochastic=True),
    "pegasos, all rows": Row(Pegasos(), SquaredHinge(), AllRows(), 60, 1e-2, 30, stochastic=True),
    "pegasos, random features": Row(Pegasos(3), Logistic(), RandomFeatures(60), 90, 1e-2, 30, stochastic=True),
    "block_cd": Row(BlockCD(), Squared(), AllRows(), 40, 1e-8, 40, regression=True, stochastic=True),
    "askotch": Row(ASkotch(20), Squared(), AllRows(), 60, 1e-8, 40, regression=True, stochastic=True),
    "norma": Row(Norma(averaging=0.5), Logistic(), AllRows(), 60, 1e-2, 30, stochastic=True),
    "pegasos, linear": Row(
        Pegasos(project=True, average_weights="linear"), MultinomialLogistic(), Linear(), 60, 1e-2, 30, stochastic=True
    ),
    "saga, all rows": Row(SAG(tol=0), Squared(), AllRows(), 30, 1e-7, 65, regression=True, stochastic=True),
    "saga, linear": Row(
        SAG(order="lipschitz", tol=0), SquaredHinge(), Linear(), 40, 1e-10, batch_size=30, stochastic=True
    ),
    "sag, random features": Row(SAG("sag", tol=0), Logistic(), RandomFeatures(60), 25, 1e-5, 65, stochastic=True),
    "sag, line search": Row(
        SAG("sag", "line_search", "lipschitz", 0), Logistic(), NystromFeatures(40), 25, 1e-6, 65, stochastic=True
    ),
    "svrg, all rows": Row(SVRG(theta=1.0, tol=0), Squared(), AllRows(), 30, 1e-5, 30, regression=True, stochastic=True),
    "svrg, random features": Row(
        SVRG(theta=1.0, tol=0), Logistic(), RandomFeatures(60), 25, 1e-10, 30, stochastic=True
    ),
    "svrg, linear": Row(SVRG(theta=1.0, tol=0), SquaredHinge(), Linear(), 25, 1e-9, batch_size=30, stochastic=True),
    "sarah, all rows": Row(
        SARAH(theta=1.0, tol=0), Squared(), AllRows(), 30, 1e-5, 30, regression=True, stochastic=True
    ),
    "sarah, nystrom features": Row(
        SARAH(theta=1.0, tol=0), MultinomialLogistic(), NystromFeatures(40), 25, 1e-9, 30, stochastic=True
    ),
}
rows = pytest.mark.parametrize("name", TABLE)


def _fit(row: Row, dtype: str = "float64", **changes: object) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), row.loss, row.basis, row.solver, ALPHA, max_epochs=row.epochs, batch_size=row.batch_size,
        dtype=dtype, device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(_source(weighted=True, regression=row.regression), replace(settings, **changes))


@lru_cache
def _matrices(name: str) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    """Return K_XZ, K_ZZ, encoded targets and weights (n, 1) of mean 1; for explicit features Phi and the identity."""
    fit = _fit(TABLE[name])
    X, indices = fit.source.X, fit.prepared.indices
    K = naive.kernel_matrix(fit.settings.kernel.spec(), X, X)
    targets = fit.prepared.targets
    y = targets.encode(fit.source.y) if not targets.n_classes else encode(fit.settings.loss, fit.source.y, 3, "float64")
    weight = fit.source.weight[:, None]
    weight = weight / weight.mean()
    if indices is None:
        phi = fit.prepared.basis.kernel.block(X, fit.prepared.basis.points(fit.prepared.points))
        return phi, np.eye(phi.shape[1]), y, weight
    return K[:, indices], K[np.ix_(indices, indices)], y, weight


def _objective(name: str, a: HostArray) -> float:
    K_XZ, K_ZZ, y, weight = _matrices(name)
    return naive.objective(TABLE[name].loss.value, K_XZ, K_ZZ, a, y, ALPHA, weight)


@lru_cache
def _least(name: str) -> float:
    """Return the least objective, found by SciPy in coordinates in which the penalty is ``|u|^2``."""
    K_XZ, K_ZZ, y, weight = _matrices(name)
    values, vectors = np.linalg.eigh(K_ZZ)
    root = vectors / np.sqrt(np.maximum(values, 1e-12))
    features, loss = K_XZ @ root, TABLE[name].loss

    def function(flat: HostArray) -> tuple[float, HostArray]:
        u = flat.reshape(features.shape[1], -1)
        f = features @ u
        value = float((weight[:, 0] * loss.value(f, y)).mean()) + ALPHA / 2 * float((u * u).sum())
        return value, (features.T @ (weight * loss.gradient(f, y)) / len(y) + ALPHA * u).ravel()

    start = np.zeros(features.shape[1] * y.shape[1])
    found = minimize(function, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 0, "gtol": 1e-11})
    return float(found.fun)


def _coef(fit: Fit, ranks: int) -> HostArray:
    results = fit.results(ranks)
    coef = np.empty((fit.prepared.basis.n_columns, results[0].coef.shape[1]))
    for result in results:
        coef[result.ids] = result.coef
    return coef


@rows
def test_it_reaches_the_optimum(name: str) -> None:
    row = TABLE[name]
    found = _objective(name, _coef(_fit(row), 1))
    first = _objective(name, np.zeros((_matrices(name)[1].shape[0], _matrices(name)[2].shape[1])))
    assert -1e-9 <= (found - _least(name)) / first <= row.gap


whole = pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.goes_on])
exact = pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.goes_on and not row.stochastic])


@whole
def test_any_number_of_ranks_gives_the_same_scores(name: str) -> None:
    fit = _fit(TABLE[name], "float32", max_epochs=5)
    alone = fit.scores(fit.results(1))
    for ranks in TABLE[name].ranks:
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=1e-4 * np.abs(alone).max())


@whole
def test_a_run_in_parts_has_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.training.run.epochs._ASK_EVERY", 1)
    monkeypatch.setattr("daskkern.training.checkpoints.checkpointing._SHARE", 0.0)
    fit = _fit(replace(TABLE[name], batch_size=30), max_epochs=3)
    ranks = TABLE[name].ranks[0]
    whole = fit.scores(fit.results(ranks))
    runs = Runs(fit)
    for until in (9, 15):
        runs.run(ranks, until=until)
    np.testing.assert_array_equal(runs.scores(ranks), whole)
    assert len([event for event in runs.events if isinstance(event, FitResumed)]) == 2
    epochs = [event.epoch for event in runs.events if isinstance(event, EpochFinished)]
    assert epochs == list(range(1, fit.settings.max_epochs + 1))


@exact
def test_the_loss_of_an_epoch_is_that_of_a_model(name: str) -> None:
    row = TABLE[name]
    events: list[Event] = []
    fit = _fit(row, max_epochs=8)
    fit.results(row.ranks[0], listen=events.append)
    losses = [event.loss for event in events if isinstance(event, EpochFinished)]
    K_XZ, _, y, weight = _matrices(name)

    def loss(epochs: int) -> float:
        f = K_XZ @ _coef(_fit(row, max_epochs=epochs), 1)
        return float((weight[:, 0] * row.loss.value(f, y)).mean())

    # CG and Newton steps end with the loss of their iterate; gradient descent knows that of the model it began with.
    assert losses[-1] == pytest.approx(loss(7 if row.tells_before else 8), rel=1e-9)


@pytest.mark.parametrize("name", [name for name in TABLE if name.startswith(("falkon", "nytro"))])
def test_a_pass_sends_one_sum_of_p_rows_and_a_few(name: str) -> None:
    row = TABLE[name]
    events: list[Event] = []
    fit = _fit(row, max_epochs=2)
    fit.results(2, listen=events.append)
    p, c = 40, fit.prepared.targets.n_outputs
    signals = 4 * 8  # whether to stop, to regroup, to commit, to end in time: with every eighth batch
    newton = isinstance(row.solver, Falkon) and not isinstance(row.loss, Squared)
    squared = isinstance(row.solver, Falkon) and isinstance(row.loss, Squared)
    panels = [(p - block.start) * (block.stop - block.start) for block in column_blocks(p, 0, 2).blocks]
    factor = 8 * sum(panels) if newton else 0  # the inner one, anew for each step
    sent = [event.bytes_sent for event in events if isinstance(event, EpochFinished)]
    for epoch, found in enumerate(sent, 1):
        sweeps = row.solver.sweeps(epoch, row.loss)
        requested = -(-sweeps * fit.prepared.plan.n_batches // 8)
        each = (p + 1) * c
        if squared:  # sums of the rows for the loss after a step; model and direction, once the model is not 0
            each = (p + 2) * c * (2 if epoch > 1 else 1)
        assert found == sweeps * 8 * each + requested * signals + factor


@exact
def test_weights_mean_repeated_rows(name: str) -> None:
    fit = _fit(TABLE[name])
    weight = np.random.default_rng(0).integers(1, 4, len(fit.source.X))
    settings = replace(fit.settings, batch_size=1000)
    if isinstance(settings.basis, Landmarks):  # the same ones for both
        assert fit.prepared.indices is not None
        settings = replace(settings, basis=Landmarks(points=fit.source.X[fit.prepared.indices]))
    source = replace(fit.source, weight=weight.astype(float))
    repeated = replace(
        source,
        X=np.repeat(source.X, weight, axis=0),
        y=np.repeat(source.y, weight, axis=0),
        weight=None,
        info=replace(source.info, n_rows=int(weight.sum())),
    )
    one, other = (Fit.of(rows, settings) for rows in (source, repeated))
    kernel, X = fit.prepared.basis.kernel, source.X
    a = one.scores(one.results(1))
    b = sum(kernel.block(X, result.points) @ result.coef for result in other.results(1))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * np.abs(b).max())
