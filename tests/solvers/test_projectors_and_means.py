"""The iterative projector against the exact one, and running means against NumPy's."""

from dataclasses import replace

import numpy as np
import pytest
from bench import Setup, eigenpro, toy
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.threads import run_threads
from daskkern.basis import KernelBasis
from daskkern.losses import Hinge, Logistic, Squared
from daskkern.solvers import EigenPro
from daskkern.solvers.base import TailAverage, decay, smoothness_of
from daskkern.solvers.projectors import EigenProProjector


@pytest.fixture(scope="module")
def setup() -> Setup:
    return eigenpro(toy(Squared(), n=120), EigenPro(), centres=60, s=48, q=9)


@pytest.fixture(scope="module")
def h(setup: Setup) -> HostArray:
    """What a window leaves to be projected: the pullback of a gradient."""
    problem = setup.toy
    return problem.kernel.block(setup.points, problem.X.copy()) @ problem.y / problem.n


def _solve(setup: Setup, h: HostArray, epochs: int, ranks: int) -> HostArray:
    p = len(setup.points)
    basis = KernelBasis(setup.toy.kernel, p, setup.head, False)
    batches = tuple(np.array_split(np.random.default_rng(3).permutation(p), 4))

    def work(comm: Communicator) -> tuple[HostArray, HostArray]:
        columns = basis.split(comm.rank, comm.size)
        rows = setup.points[columns.ids]
        own = np.searchsorted(setup.head, columns.ids[: columns.n_head])
        part = basis.part(columns, rows)
        weights = None if setup.toy.weight is None else setup.toy.weight[setup.centres]
        own_part = setup.state.part(own, "float64")
        projector = EigenProProjector(part, rows, setup.state, own_part, batches, epochs, weights)
        return columns.ids, projector.solve(h[columns.ids], comm)

    t = np.empty_like(h)
    for ids, own in run_threads(ranks, work):
        t[ids] = own
    return t


def _residual(setup: Setup, t: HostArray, h: HostArray) -> float:
    return float(np.linalg.norm(setup.toy.kernel.block(setup.points, setup.points) @ t - h) / np.linalg.norm(h))


def test_passes_over_the_centres_reduce_the_residual(setup: Setup, h: HostArray) -> None:
    residuals = [_residual(setup, _solve(setup, h, epochs, 1), h) for epochs in (1, 2, 8)]
    assert residuals[0] < 0.5
    assert residuals[2] < residuals[1] < residuals[0]


def test_many_passes_end_at_the_exact_projection(setup: Setup, h: HostArray) -> None:
    K = setup.toy.kernel.block(setup.points, setup.points)
    exact, found = np.linalg.solve(K, h), _solve(setup, h, 300, 1)
    away = setup.toy.kernel.block(setup.toy.X.copy(), setup.points)
    np.testing.assert_allclose(away @ found, away @ exact, atol=1e-3 * np.abs(away @ exact).max())


@pytest.fixture(scope="module")
def uneven() -> Setup:
    """Many rows that hardly weigh anything beside a few that do."""
    problem = toy(Squared(), n=400)
    light = np.random.default_rng(4).random((400, 1)) < 0.85
    weight = np.where(light, 0.003, 1.0)
    X = np.where(light, problem.X, problem.X + 6)
    return eigenpro(replace(problem, X=X, weight=weight / weight.mean()), EigenPro(), centres=200, s=160, q=20)


def test_uneven_weights_do_not_make_the_projection_diverge(uneven: Setup) -> None:
    problem = uneven.toy
    h = problem.kernel.block(uneven.points, problem.X.copy()) @ problem.y / problem.n
    residuals = [_residual(uneven, _solve(uneven, h, epochs, 1), h) for epochs in (1, 10, 40)]
    assert residuals == sorted(residuals, reverse=True)
    assert residuals[0] < 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_any_number_of_ranks_projects_alike(setup: Setup, uneven: Setup, h: HostArray, ranks: int) -> None:
    for chosen, target in ((setup, h), (uneven, np.ones((200, 1)))):
        alone = _solve(chosen, target, 2, 1)
        np.testing.assert_allclose(_solve(chosen, target, 2, ranks), alone, rtol=0, atol=1e-11 * np.abs(alone).max())


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 30), start=st.integers(0, 40), seed=st.integers(0, 99))
def test_a_tail_average_is_the_mean_of_the_tail(n: int, start: int, seed: int) -> None:
    iterates = np.random.default_rng(seed).standard_normal((n, 3, 2))
    average = TailAverage(start)
    for step, iterate in enumerate(iterates, 1):
        average = average.add(step, iterate)
    tail = iterates[max(start, 1) - 1 :]
    expected = tail.mean(axis=0) if len(tail) else iterates[-1]
    np.testing.assert_allclose(average.value(iterates[-1]), expected, rtol=1e-12, atol=1e-13)


def test_a_tail_average_does_not_touch_what_it_was_given() -> None:
    first = np.ones((2, 1))
    average = TailAverage(1).add(1, first)
    average.add(2, 5 * first)
    np.testing.assert_array_equal(first, 1)
    np.testing.assert_array_equal(average.value(0 * first), 1)


def test_only_losses_with_kinks_take_shrinking_steps() -> None:
    assert [decay(Logistic(), step, 5) for step in (0, 50)] == [1.0, 1.0]
    assert [decay(Hinge(), step, 5) for step in (0, 15)] == [1.0, 0.5]
    assert (smoothness_of(Logistic()), smoothness_of(Hinge())) == (0.25, 1.0)
