"""The iterative projector against the exact one, and running means against NumPy's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import KernelBasis
from daskkern.losses import Hinge, Logistic, Squared
from daskkern.solvers import EigenPro
from daskkern.solvers.base import decay, smoothness_of
from daskkern.solvers.eigenpro.projectors import Projection
from daskkern.solvers.tail_average import TailAverage
from tests.support.solvers.steps_bench import Setup, eigenpro, iterative_projector, toy
from tests.support.threads import run_threads


@pytest.fixture(scope="module")
def setup() -> Setup:
    return eigenpro(toy(Squared(), n=120), EigenPro(), centres=60, s=48, q=9)


@pytest.fixture(scope="module")
def h(setup: Setup) -> HostArray:
    """What a window leaves to be projected: the pullback of a gradient."""
    problem = setup.toy
    return problem.kernel.block(setup.points, problem.X.copy()) @ problem.y / problem.n


def _solve(setup: Setup, h: HostArray, tol: float, ranks: int) -> tuple[HostArray, int, float]:
    """Return the solution, its iterations, and the residual that the projector states."""
    basis = KernelBasis(setup.toy.kernel, len(setup.points), setup.head, False)
    directions = setup.state.vectors * setup.state.damping

    def work(comm: Communicator) -> tuple[HostArray, Projection]:
        ids = basis.split(comm.rank, comm.size).ids
        damped = basis.kernel.block(setup.points[ids], basis.points(setup.points[setup.head])) @ directions
        projector = iterative_projector(setup, basis, setup.state, damped, comm, tol)
        return ids, projector.iterate(h[ids], comm)

    t = np.empty_like(h)
    for ids, found in run_threads(ranks, work):
        t[ids] = found.t
    return t, found.iterations, found.residual


def _residual(setup: Setup, t: HostArray, h: HostArray) -> float:
    left = setup.toy.kernel.block(setup.points, setup.points) @ t - h
    return float((np.linalg.norm(left, axis=0) / np.linalg.norm(h, axis=0)).max())


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-6])
def test_a_projection_ends_at_its_residual_and_states_the_true_one(setup: Setup, h: HostArray, tol: float) -> None:
    t, iterations, residual = _solve(setup, h, tol, 1)
    assert residual <= tol
    assert residual == pytest.approx(_residual(setup, t, h), rel=1e-6)
    assert 0 < iterations < 60


def test_the_directions_of_eigenpro_save_iterations(setup: Setup, h: HostArray) -> None:
    without = replace(setup, state=replace(setup.state, damping=0 * setup.state.damping))
    assert _solve(setup, h, 1e-4, 1)[1] < 0.8 * _solve(without, h, 1e-4, 1)[1]


def test_a_small_residual_is_the_exact_projection(setup: Setup, h: HostArray) -> None:
    K = setup.toy.kernel.block(setup.points, setup.points)
    exact, (found, _, _) = np.linalg.solve(K, h), _solve(setup, h, 1e-9, 1)
    away = setup.toy.kernel.block(setup.toy.X.copy(), setup.points)
    np.testing.assert_allclose(away @ found, away @ exact, atol=1e-7 * np.abs(away @ exact).max())


def test_nothing_to_project_takes_no_iteration(setup: Setup, h: HostArray) -> None:
    t, iterations, residual = _solve(setup, 0 * h, 0.1, 1)
    assert (iterations, residual) == (0, 0.0)
    np.testing.assert_array_equal(t, 0)


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
    t, iterations, _ = _solve(uneven, h, 1e-3, 1)
    assert _residual(uneven, t, h) <= 1e-3 * (1 + 1e-6)
    assert iterations < 100


@pytest.mark.parametrize("ranks", [2, 3])
def test_any_number_of_ranks_projects_alike(setup: Setup, uneven: Setup, h: HostArray, ranks: int) -> None:
    for chosen, target in ((setup, h), (uneven, np.ones((200, 1)))):
        alone, iterations, _ = _solve(chosen, target, 1e-2, 1)
        found, same, _ = _solve(chosen, target, 1e-2, ranks)
        assert same == iterations
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-9 * np.abs(alone).max())


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
