"""Stochastic gradient descent against a loop that keeps every iterate."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from daskkern.backend.communicator import SerialCommunicator
from daskkern.errors import SpecError
from daskkern.losses import Logistic, SquaredHinge
from daskkern.solvers import SGD, Batch
from daskkern.solvers.first_order.iterate import Averaging, Iterate
from tests.support.solvers.column_bench import Task, hinge_task, run, steps, two_classes
from tests.support.traced_memory import traced_peak


def _reference(task: Task, solver: SGD) -> np.ndarray:
    """Return the values at all rows of the averaged model, by a loop over dense values that keeps all iterates."""
    K, problem = task.gram(), task.problem(0, 1)
    f, gradients, iterates = np.zeros_like(task.y), np.zeros_like(task.y), []
    for epoch in range(task.epochs):
        span = int(solver.growth**epoch)
        batches = task.order(epoch)
        for first in range(0, len(batches), span):
            B = np.concatenate(batches[first : first + span])
            g = task.loss.gradient(f[B], task.y[B])
            if task.weight is not None:
                g = g * task.weight[B]
            eta = solver.step_size(problem, len(B), len(iterates))
            if solver.schedule == "dual_averaging":
                gradients = gradients + K[:, B] @ g / len(B)
                f = -eta * gradients
            else:
                f = (1 - eta * task.alpha) * f - eta / len(B) * K[:, B] @ g
            iterates.append(f)
    if not solver.averaging:
        return iterates[-1]
    kept = iterates[max(round(len(iterates) * (1 - solver.averaging)), 1) - 1 :]
    weights = np.ones(len(kept)) if solver.average_weights == "uniform" else np.arange(1, len(kept) + 1)
    return np.einsum("t,tij->ij", weights / weights.sum(), np.stack(kept))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("basis", ["all rows", "linear", "sparse"])
@pytest.mark.parametrize(
    "solver",
    [
        SGD("constant", averaging=1.0),
        SGD("inverse_root", averaging=0.5, average_weights="linear"),
        SGD("inverse", averaging=0.0),
        SGD("bottou", theta=0.5, averaging=1 / 3, growth=1.7),
        SGD("inverse", theta=2.0, averaging=1.0, average_weights="linear", growth=2.0),
        SGD("dual_averaging", averaging=0.5),
    ],
    ids=["uniform", "linear weights", "last", "growing batches", "scales below 0", "averaged gradients"],
)
def test_a_run_is_that_of_a_loop_that_keeps_every_iterate(basis: str, solver: SGD) -> None:
    kind = "linear" if basis == "sparse" else basis
    task = hinge_task(kind, sparse=basis == "sparse", c=2, weighted=True, loss=SquaredHinge(), epochs=4)
    if basis == "sparse":
        assert scipy.sparse.issparse(task.X)
    expected = _reference(task, solver)
    for ranks in (1, 3):
        assert_allclose(run(task, solver, ranks)[1], expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_gradients_that_wait_for_their_step_survive_interruptions() -> None:
    task, solver = hinge_task(sparse=True, basis="linear", epochs=4), SGD(growth=1.6, averaging=0.9)
    np.testing.assert_array_equal(run(task, solver, 2, broken=True)[0], run(task, solver, 2)[0])


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, -0.5, 1e-9, 0.3, 0.9, 1.0]), st.integers(0, 3), st.booleans()), max_size=25
    ),
    st.integers(1, 6),
    st.sampled_from(["uniform", "linear"]),
)
@settings(max_examples=60, deadline=None)
def test_the_lazy_mean_is_the_mean(moves: list[tuple[float, int, bool]], start: int, weights: str) -> None:
    lazy, w, seen = Iterate(np.zeros((4, 1)), Averaging(start, weights)), np.zeros((4, 1)), []
    for number, (factor, where, fold) in enumerate(moves, 1):
        delta = np.array([[float(number)]])
        w = factor * w
        w[where] += delta[0]
        lazy = lazy.shrink(factor).add(np.array([where]), delta).passed()
        lazy = lazy.fold() if fold else lazy
        if number >= start:
            seen.append((number - start + 1 if weights == "linear" else 1, w))
    expected = sum(k * one for k, one in seen) / sum(k for k, _ in seen) if seen else w
    assert_allclose(lazy.last(), w, rtol=1e-12, atol=1e-12)
    assert_allclose(lazy.mean(), expected, rtol=1e-10, atol=1e-10)


def test_growing_batches_converge_where_constant_ones_hover() -> None:
    task = Task(*two_classes(60), Logistic(), 0.1, "linear", batch=4, epochs=60)
    best = run(replace(task, epochs=1000, batch=60), SGD("constant", averaging=0.0))[1]

    def distance(growth: float) -> float:
        return float(np.abs(run(task, SGD("constant", averaging=0.0, growth=growth))[1] - best).max())

    assert distance(1.15) < 1e-4 < distance(1.0)


def test_a_step_on_sparse_rows_touches_their_entries_only() -> None:
    p, n = 200_000, 8
    rng = np.random.default_rng(0)
    X = scipy.sparse.csr_matrix(
        (np.ones(5 * n), rng.choice(p, 5 * n, replace=False), np.arange(0, 5 * n + 1, 5)), (n, p)
    )
    y = np.where(rng.uniform(size=(n, 10)) > 0.5, 1.0, -1.0)
    task = Task(X, y, SquaredHinge(), 1e-3, "linear", batch=4, epochs=10)
    problem, comm, solver = task.problem(0, 1), SerialCommunicator(), SGD(averaging=1.0)
    state = steps(task, solver, problem, solver.init(problem, comm), comm, task.order(0))
    rows = task.order(1)[0]
    batch = Batch(X[rows], y[rows], None, rows, None, last=False)
    peak = traced_peak(lambda: solver.step(problem, state, batch, comm))
    assert peak < p * 10 * 8 / 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SGD("1/t"), "schedule='1/t'"),
        (lambda: SGD(theta=0.0), "theta=0.0"),
        (lambda: SGD(growth=0.5), "growth=0.5"),
        (lambda: SGD(averaging=2.0), "averaging=2.0"),
        (lambda: SGD(average_weights="square"), "average_weights='square'"),
        (lambda: run(hinge_task(alpha=0.0), SGD("inverse")), "alpha=0"),
    ],
)
def test_settings_without_a_meaning_are_refused(make: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()  # type: ignore[operator]
