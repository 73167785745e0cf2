"""S2GD makes a random number of steps in an epoch, with the probabilities of its paper."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import Linear
from daskkern.errors import SpecError
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.solvers import S2GD, SVRG, Solver
from daskkern.solvers.variance_reduced.svrg import drawn_steps
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, toy_source

ALPHA = 2e-2


def _fit(solver: Solver[object], epochs: int, seed: int) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), Squared(), Linear(), solver, ALPHA, max_epochs=epochs, batch_size=30, dtype="float64",
        device="cpu", fit_intercept=False, seed=seed,
    )  # fmt: skip
    return Fit.of(toy_source(regression=True), settings)


def _features(fit: Fit) -> HostArray:
    return fit.prepared.basis.kernel.block(fit.source.X, fit.prepared.basis.points(fit.prepared.points))


def _iterates(fit: Fit, theta: float) -> list[HostArray]:
    """Return the iterates of the first epoch of SVRG, by dense steps."""
    phi, plan = _features(fit), fit.prepared.plan
    y = fit.prepared.targets.encode(fit.source.y)
    w, full = np.zeros((phi.shape[1], y.shape[1])), -phi.T @ y / len(y)
    found = []
    for batch in plan.order(1 + (1 << 32)):
        at = plan.positions(batch)
        eta = theta * fit.prepared.state.step_size(len(at), 1.0, ALPHA)
        w = w - eta * (phi[at].T @ (phi[at] @ w) / len(at) + ALPHA * w + full)
        found.append(w)
    return found


def _taken(solver: SVRG | S2GD, seed: int, ranks: int = 1) -> int:
    """Return which iterate of the first epoch a fit ends at."""
    fit = _fit(solver, 1, seed)
    scores = fit.scores(fit.results(ranks))
    distances = [np.abs(_features(fit) @ w - scores).max() for w in _iterates(fit, solver.theta)]
    assert min(distances) < 1e-9 * np.abs(scores).max()
    return int(np.argmin(distances))


def test_all_iterates_are_taken_where_nu_is_0_and_the_last_where_it_is_large() -> None:
    last = len(_iterates(_fit(SVRG(inner=1), 1, 0), 0.5)) - 1
    taken = Counter(_taken(S2GD(inner=1, nu=0.0, tol=0), seed) for seed in range(8))
    assert len(taken) > 2
    assert min(taken) < last
    assert {_taken(S2GD(inner=1, nu=1e9, tol=0), seed) for seed in range(3)} == {last}
    assert {_taken(SVRG(inner=1, tol=0), seed) for seed in range(3)} == {last}


def test_every_rank_takes_the_same_iterate() -> None:
    for seed in (1, 2):
        assert _taken(S2GD(inner=1, nu=0.0, tol=0), seed, ranks=3) == _taken(S2GD(inner=1, nu=0.0, tol=0), seed)


def test_the_last_iterate_is_the_more_probable_the_larger_nu_is() -> None:
    fit = _fit(SVRG(inner=1), 1, 0)
    last, eta = len(_iterates(fit, 0.5)) - 1, 0.5 * fit.prepared.state.step_size(30, 1.0, ALPHA)
    likely = [_taken(S2GD(inner=1, nu=0.9 / eta, tol=0), seed) for seed in range(8)]  # with probability .9
    assert likely.count(last) >= 6


def test_a_negative_nu_is_refused() -> None:
    with pytest.raises(SpecError, match=r"got nu=-1\.0 for s2gd"):
        replace(S2GD(), nu=-1.0)


@pytest.mark.parametrize("decay", [1.0, 0.9, 0.2, 1 - 1e-12])
def test_numbers_of_steps_have_the_probabilities_of_the_paper(decay: float) -> None:
    n = 12
    weights = decay ** np.arange(n - 1, -1, -1.0)
    uniform = (np.arange(100_000) + 0.5) / 100_000
    found = np.bincount([drawn_steps(n, decay, float(u)) for u in uniform], minlength=n + 1)[1:] / len(uniform)
    np.testing.assert_allclose(found, weights / weights.sum(), atol=1e-4)


def test_without_memory_all_steps_are_made() -> None:
    assert {drawn_steps(7, decay, 0.5) for decay in (0.0, -3.0)} == {7}
