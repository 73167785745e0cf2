"""NORMA against a list of terms, each with its age."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from daskkern.errors import SpecError
from daskkern.losses import Hinge, Logistic, Loss, Squared
from daskkern.solvers import Norma
from tests.support.solvers.column_bench import Task, hinge_task, run


def _reference(task: Task, solver: Norma) -> np.ndarray:
    """Return the values at all rows of the sum of a list of (row, coefficient, step) that is kept as the paper does."""
    K, problem = task.gram(), task.problem(0, 1)
    terms: list[tuple[int, np.ndarray, int]] = []
    t, ends = 0, []

    def values() -> np.ndarray:
        return sum((np.outer(K[:, row], a) for row, a, _ in terms), np.zeros_like(task.y))

    def young(t: int) -> list[tuple[int, np.ndarray, int]]:
        lives = np.inf if solver.truncation is None else solver.truncation
        return [term for term in terms if term[2] > t - lives]

    for epoch in range(task.epochs):
        for B in task.order(epoch):
            terms = young(t)
            for i in B:
                g = task.loss.gradient(values()[i : i + 1], task.y[i : i + 1])[0]
                g = g if task.weight is None else g * task.weight[i]
                eta = solver.step_size(problem, t)
                t += 1
                terms = [(row, (1 - eta * task.alpha) * a, step) for row, a, step in terms]
                terms.append((int(i), -eta * g, t))
            ends.append(values())
    if solver.averaging:
        return np.mean(ends[max(round(len(ends) * (1 - solver.averaging)), 1) - 1 :], axis=0)
    terms = young(t)
    return values()


@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        (Norma(), Hinge()),
        (Norma("constant", truncation=13), Hinge()),
        (Norma(theta=0.5, truncation=40), Logistic()),
        (Norma(truncation=7, averaging=1 / 3), Squared()),  # averages begin with an epoch
    ],
    ids=["all terms", "13 terms", "an epoch of terms", "averaged"],
)
def test_the_iterates_are_those_of_the_paper(solver: Norma, loss: Loss) -> None:
    task = hinge_task(c=2, weighted=True, loss=loss, epochs=3)
    expected = _reference(task, solver)
    for ranks in (1, 2, 3):
        assert_allclose(run(task, solver, ranks)[1], expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_a_truncated_model_has_few_terms_and_is_within_the_bound_of_the_whole_one() -> None:
    task = hinge_task(loss=Squared(), alpha=0.5, batch=1)
    whole, f = run(task, Norma("constant"))
    few, cut = run(task, Norma("constant", truncation=20))
    assert (few != 0).sum() <= 20 < (whole != 0).sum()
    eta = Norma("constant").step_size(task.problem(0, 1), 0)
    most = 2 * eta * np.abs(task.y).max() * (1 - eta * task.alpha) ** 20 / (eta * task.alpha)
    assert 0 < np.abs(f - cut).max() < most


def test_terms_and_their_ages_survive_interruptions() -> None:
    task, solver = hinge_task(c=2, epochs=3), Norma(truncation=30, averaging=0.4)
    for ranks in (1, 3):
        np.testing.assert_array_equal(run(task, solver, ranks, broken=True)[0], run(task, solver, ranks)[0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Norma("1/t"), "schedule='1/t'"),
        (lambda: Norma(theta=2.0), "theta=2.0"),
        (lambda: Norma(truncation=0), "truncation=0"),
        (lambda: Norma(averaging=-1.0), "averaging=-1.0"),
        (lambda: run(hinge_task(), Norma(truncation=41)), "truncation=41 for NORMA, but there are 40 training rows"),
    ],
)
def test_norma_refuses_what_has_no_meaning(make: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()  # type: ignore[operator]
