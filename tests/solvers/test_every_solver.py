"""One table of solvers: each reaches the optimum it is meant for, on any number of ranks, in one run or in several.

A new solver is one row of :data:`tests.support.solvers.table.TABLE`.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.optimize import minimize

from daskkern.arrays import HostArray
from daskkern.basis import Landmarks
from daskkern.events import EpochFinished, Event, FitResumed
from daskkern.linalg import column_blocks
from daskkern.losses import Smooth, Squared, encode
from daskkern.solvers import (
    Falkon,
)
from tests.support import naive
from tests.support.fits import Fit, Runs
from tests.support.solvers.table import ALPHA, TABLE, coefficients, row_fit

rows = pytest.mark.parametrize("name", TABLE)


@lru_cache
def _matrices(name: str) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    """Return K_XZ, K_ZZ, encoded targets and weights (n, 1) of mean 1; for explicit features Phi and the identity."""
    fit = row_fit(TABLE[name])
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


@pytest.mark.one_in(11)
@rows
def test_it_reaches_the_optimum(name: str) -> None:
    row = TABLE[name]
    found = _objective(name, coefficients(row_fit(row), 1))
    first = _objective(name, np.zeros((_matrices(name)[1].shape[0], _matrices(name)[2].shape[1])))
    below = 1e-9 if isinstance(row.loss, Smooth) else row.gap  # at kinks SciPy stops above the optimum
    assert -below <= (found - _least(name)) / first <= row.gap


whole = pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.goes_on])
exact = pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.goes_on and not row.stochastic])


@pytest.mark.one_in(11, 3)
@whole
def test_any_number_of_ranks_gives_the_same_scores(name: str) -> None:
    fit = row_fit(TABLE[name], "float32", max_epochs=5)
    alone = fit.scores(fit.results(1))
    for ranks in TABLE[name].ranks:
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=1e-4 * np.abs(alone).max())


@pytest.mark.one_in(11, 6)
@whole
def test_a_run_in_parts_has_the_same_bits(name: str) -> None:
    fit = row_fit(replace(TABLE[name], batch_size=30), max_epochs=3)
    ranks = TABLE[name].ranks[0]
    whole = fit.scores(fit.results(ranks))
    runs = Runs(fit)
    for until in (9, 15):
        runs.run(ranks, until=until)
    np.testing.assert_allclose(runs.scores(ranks), whole, rtol=0, atol=TABLE[name].rounding * np.abs(whole).max())
    assert len([event for event in runs.events if isinstance(event, FitResumed)]) == 2
    epochs = [event.epoch for event in runs.events if isinstance(event, EpochFinished)]
    assert epochs == list(range(1, fit.settings.max_epochs + 1))


@pytest.mark.one_in(5)
@exact
def test_the_loss_of_an_epoch_is_that_of_a_model(name: str) -> None:
    row = TABLE[name]
    events: list[Event] = []
    fit = row_fit(row, max_epochs=8)
    fit.results(row.ranks[0], listen=events.append)
    losses = [event.loss for event in events if isinstance(event, EpochFinished)]
    K_XZ, _, y, weight = _matrices(name)

    def loss(epochs: int) -> float:
        f = K_XZ @ coefficients(row_fit(row, max_epochs=epochs), 1)
        return float((weight[:, 0] * row.loss.value(f, y)).mean())

    # CG and Newton steps end with the loss of their iterate; gradient descent knows that of the model it began with.
    assert losses[-1] == pytest.approx(loss(7 if row.tells_before else 8), rel=1e-9)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [name for name in TABLE if name.startswith(("falkon", "nytro"))])
def test_a_pass_sends_one_sum_of_p_rows_and_a_few(name: str) -> None:
    row = TABLE[name]
    events: list[Event] = []
    fit = row_fit(row, max_epochs=2)
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


@pytest.mark.one_in(7)
@exact
def test_weights_mean_repeated_rows(name: str) -> None:
    fit = row_fit(TABLE[name])
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
