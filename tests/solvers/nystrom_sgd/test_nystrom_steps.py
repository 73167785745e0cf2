"""Nystrom-SGD: stored, streamed and the formula are one iteration."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.losses import LOSSES, Logistic, Loss, Squared, SquaredHinge
from daskkern.solvers import NystromSGD
from tests.support import naive
from tests.support.solvers import steps_bench as bench
from tests.support.solvers.steps_bench import nystrom, scores, toy, train

each_loss = pytest.mark.parametrize("loss", [loss() for loss in LOSSES.values()], ids=lambda loss: loss.name)


def _matrices(setup: bench.Setup) -> tuple[HostArray, HostArray]:
    spec = setup.toy.kernel.spec()
    return naive.kernel_matrix(spec, setup.toy.X, setup.points), naive.kernel_matrix(spec, setup.points, setup.points)


@pytest.mark.parametrize("k", [0, 6, 24, None])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("step_rule", ["auto", "paper"])
def test_steps_are_the_formula_in_the_eigenfeatures(k: int | None, alpha: float, step_rule: str) -> None:
    problem = toy(Logistic(), alpha=alpha)
    setup = nystrom(problem, NystromSGD(step_rule=step_rule, averaging=0.0), k=k)
    values, psi = naive.nystrom_features(*_matrices(setup), 25)
    n_damped = 24 if k is None else k  # to the last of them where all are
    P = np.array([np.sqrt(values[n_damped] / value) for value in values[:n_damped]] + [1.0] * (25 - n_damped))
    last = values[24 if k is None else max(k - 1, 0)]
    w = np.zeros((25, problem.y.shape[1]))
    for number in range(6):
        B = problem.batch(number)
        g = bench.gradient(problem, psi @ w, B)
        top, m = (P * values).max(), len(B)
        noise = (psi**2 @ P).max() + (m - 1) * top
        eta = 0.99 * m / (noise / 4 + m * alpha) if step_rule == "auto" else 1 / np.sqrt(values[0] * last)
        w = w - eta * P[:, None] * (psi[B].T @ g / m + alpha * w)
    for stored in (False, True):
        found = scores(setup, train(setup, steps=6, stored=stored))
        np.testing.assert_allclose(found, psi @ w, atol=1e-7 * np.abs(psi @ w).max())


@each_loss
@pytest.mark.parametrize(("alpha", "weighted"), [(0.0, True), (0.05, False)])
def test_stored_and_streamed_iterates_are_the_same(loss: Loss, alpha: float, weighted: bool) -> None:
    setup = nystrom(toy(loss, epochs=2, alpha=alpha, weighted=weighted), NystromSGD(averaging=0.4))
    streamed, stored = (scores(setup, train(setup, stored=stored)) for stored in (False, True))
    np.testing.assert_allclose(stored, streamed, rtol=0, atol=1e-10 * np.abs(streamed).max())


@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("stored", [False, True])
def test_any_number_of_ranks_gives_the_same_model(dtype: str, accuracy: float, ranks: int, stored: bool) -> None:
    problem = toy(Logistic(), epochs=3, alpha=1e-3, weighted=True).as_type(dtype)
    setup = nystrom(problem, NystromSGD())
    alone, together = (scores(setup, train(setup, size, stored=stored)) for size in (1, ranks))
    np.testing.assert_allclose(together, alone, rtol=0, atol=accuracy * np.abs(alone).max())


@pytest.mark.parametrize("stored", [False, True])
def test_the_fixed_point_is_the_nystrom_ridge_solution(stored: bool) -> None:
    problem = toy(Squared(), alpha=0.05)
    problem = replace(problem, batches=(np.arange(problem.n),), epochs=800)
    setup = nystrom(problem, NystromSGD())
    K_XZ, K_ZZ = _matrices(setup)
    best, found = naive.nystrom_ridge(K_XZ, K_ZZ, problem.y, 0.05), train(setup, stored=stored)
    at = [naive.objective(problem.loss.value, K_XZ, K_ZZ, a, problem.y, 0.05) for a in (best, found)]
    assert at[1] == pytest.approx(at[0], rel=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("loss", [Squared(), SquaredHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_beyond_those_of_the_sample_do_not_throw_the_iterates_away(
    loss: Loss, stored: bool, weighted: bool
) -> None:
    problem = toy(loss, epochs=10, alpha=1e-3, weighted=weighted)
    setup = nystrom(problem, NystromSGD())
    setup = replace(setup, state=replace(setup.state, beta=setup.state.beta / 60, top=setup.state.top / 60))

    def objective() -> float:
        f = scores(setup, train(setup, stored=stored))
        return float(loss.value(f, setup.toy.y).mean())

    zero = float(loss.value(np.zeros_like(setup.toy.y), setup.toy.y).mean())
    assert objective() < 0.8 * zero
    together = train(setup, 3, stored=stored)
    alone = scores(setup, train(setup, stored=stored))
    np.testing.assert_allclose(scores(setup, together), alone, rtol=0, atol=1e-9 * np.abs(alone).max())
    psi = _matrices(setup)[0] @ setup.state.M
    w = np.zeros((psi.shape[1], problem.y.shape[1]))
    for number in range(len(problem.batches)):  # whole steps would throw them away
        B = problem.batch(number)
        eta = setup.state.step_size(len(B), loss.smoothness, problem.alpha, 0.0)
        u = psi[B].T @ bench.gradient(problem, psi @ w, B) / len(B) + problem.alpha * w
        w = w - eta * setup.state.preconditioner[:, None] * u
    assert not float(loss.value(psi @ w, problem.y).mean()) < 2 * zero


@each_loss
def test_every_loss_goes_down(loss: Loss) -> None:
    problem = toy(loss, epochs=10)
    setup = nystrom(problem, NystromSGD(averaging=0.3))
    a = train(setup)
    assert loss.value(scores(setup, a), problem.y).mean() < 0.75 * loss.value(0 * problem.y, problem.y).mean()


def test_the_mean_of_the_iterates_is_returned_when_asked() -> None:
    problem = toy(Squared(), epochs=2)
    for stored in (False, True):
        iterates = [train(nystrom(problem, NystromSGD(averaging=0.0)), steps=k, stored=stored) for k in range(4, 9)]
        averaged = train(nystrom(problem, NystromSGD(averaging=0.5)), stored=stored)
        np.testing.assert_allclose(averaged, np.mean(iterates, axis=0), atol=1e-9 * np.abs(averaged).max())


def test_the_mean_is_nearer_to_the_minimum_than_the_last_iterate() -> None:
    problem = toy(Squared(), epochs=60, alpha=1e-3)
    K_XZ, K_ZZ = _matrices(nystrom(problem, NystromSGD()))

    def objective(a: HostArray) -> float:
        return naive.objective(problem.loss.value, K_XZ, K_ZZ, a, problem.y, 1e-3)

    best = objective(naive.nystrom_ridge(K_XZ, K_ZZ, problem.y, 1e-3))
    last, mean = (objective(train(nystrom(problem, solver))) for solver in (NystromSGD(averaging=0.0), NystromSGD()))
    assert best <= mean
    assert mean - best < 0.4 * (last - best)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"mode": "kept"}, "mode='kept' for NystromSGD; expected 'auto', 'streamed' or 'stored'"),
        ({"step_rule": "bold"}, "expected 'auto' or 'paper'"),
        ({"n_directions": -1}, "n_directions=-1 for NystromSGD; expected 0 or more, or 'auto'"),
        ({"n_directions": "all"}, "expected 0 or more, or 'auto'"),
        ({"averaging": -0.1}, r"averaging=-0\.1; expected a share between 0 and 1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        NystromSGD(**settings)  # type: ignore[arg-type]
