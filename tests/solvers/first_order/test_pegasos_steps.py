"""Pegasos against the loop of its paper, against violation counts, and against the optimum of support vectors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from daskkern.errors import SpecError
from daskkern.losses import Hinge, Logistic, Loss, MultinomialLogistic, Squared, SquaredHinge
from daskkern.solvers import Pegasos
from tests.support.solvers.column_bench import Task, hinge_task, objective, run, two_classes


def _reference(task: Task, solver: Pegasos) -> np.ndarray:
    """Return the values at all rows after figure 2 (and 3) of the paper, with coefficients of all rows."""
    K, t, ends = task.gram(), solver.steps_ahead(task.problem(0, 1)), []
    a = np.zeros_like(task.y)
    for epoch in range(task.epochs):
        for B in task.order(epoch):
            for first in range(0, len(B), solver.rows):
                t += 1
                A = B[first : first + solver.rows]
                g = task.loss.gradient(K[A] @ a, task.y[A])
                g = g if task.weight is None else g * task.weight[A]
                a = (1 - 1 / t) * a
                a[A] -= g / (task.alpha * t * len(A))
                if solver.project:
                    a = _on_the_ball(task, K, a)
            ends.append(K @ a)
    kept = round(len(ends) * (1 - solver.averaging))
    return ends[-1] if not solver.averaging else np.mean(ends[max(kept, 1) - 1 :], axis=0)


def _on_the_ball(task: Task, K: np.ndarray, a: np.ndarray) -> np.ndarray:
    square = np.einsum("ic,ij,jc->c", a, K, a)
    most = {"hinge": 1.0, "logistic": 2 * np.log(2), "multinomial_logistic": 2 * np.log(3)}[task.loss.name] / task.alpha
    square = np.full_like(square, square.sum()) if task.loss.joint else square
    return a * np.minimum(1, np.sqrt(most / np.maximum(square, 1e-300)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("solver", "loss", "basis"),
    [
        (Pegasos(averaging=0.0), Hinge(), "all rows"),
        (Pegasos(rows=3), Hinge(), "linear"),
        (Pegasos(rows=8, project=True), Hinge(), "sparse"),
        (Pegasos(project=True, ahead=0, averaging=1.0), Logistic(), "all rows"),
        (Pegasos(rows=2, averaging=0.0), SquaredHinge(), "all rows"),
        (Pegasos(rows=2, ahead=0, project=True), MultinomialLogistic(), "linear"),
    ],
    ids=["one row", "mini-batches", "on the ball", "logistic ball", "bounded steps", "joint ball"],
)
def test_the_iterates_are_those_of_the_paper(solver: Pegasos, loss: Loss, basis: str) -> None:
    kind = "linear" if basis == "sparse" else basis
    task = hinge_task(kind, sparse=basis == "sparse", c=3, weighted=True, loss=loss, alpha=0.05)
    if loss.joint:
        task = Task(task.X, np.eye(3)[np.arange(task.n) % 3], loss, task.alpha, kind, task.weight)
    expected = _reference(task, solver)
    for ranks in (1, 2, 3):
        assert_allclose(run(task, solver, ranks)[1], expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_projections_and_means_survive_interruptions() -> None:
    task, solver = hinge_task("linear", c=2, epochs=3), Pegasos(project=True, averaging=0.6)
    np.testing.assert_array_equal(run(task, solver, 2, broken=True)[0], run(task, solver, 2)[0])


def test_coefficients_count_violations() -> None:
    task = hinge_task(epochs=4)
    coef, _ = run(task, Pegasos(averaging=0.0), 2)
    counts = coef * task.y * task.alpha * task.n * task.epochs
    assert_allclose(counts, counts.round(), rtol=0, atol=1e-9)
    assert counts.min() > -1e-9
    assert 1 < counts.max() < task.epochs + 1e-9
    assert 0 < (counts > 0.5).mean() < 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()])
def test_a_linear_machine_comes_near_the_optimum_of_scikit_learn(loss: Loss) -> None:
    X, y = two_classes(80)
    task = Task(X, y, loss, 0.05, "linear", epochs=150)
    C = 1 / (task.alpha * task.n)  # |w|^2 / 2 + C sum loss
    best = LinearSVC(C=C, loss=loss.name, fit_intercept=False, tol=1e-10, max_iter=1_000_000, random_state=0)
    w = best.fit(X, y[:, 0]).coef_.T
    least = objective(task, X @ w, float((w * w).sum()))
    coef, f = run(task, Pegasos(average_weights="linear", averaging=1.0))
    assert least <= objective(task, f, float((coef * coef).sum())) < 1.003 * least


def test_a_kernel_machine_comes_near_the_optimum_of_its_dual() -> None:
    task = Task(*two_classes(60), Hinge(), 0.02, epochs=100)
    K = task.gram()
    Q, C = K * (task.y @ task.y.T), 1 / (task.alpha * task.n)
    start, bounds = np.zeros(task.n), [(0, C)] * task.n
    best = minimize(lambda a: (a @ Q @ a / 2 - a.sum(), Q @ a - 1), start, jac=True, bounds=bounds, tol=1e-14)
    least = -task.alpha * best.fun  # strong duality
    a = best.x[:, None] * task.y
    assert objective(task, K @ a, float((a.T @ K @ a).item())) == pytest.approx(least, rel=1e-5)
    coef, f = run(task, Pegasos(project=True, averaging=0.5))
    assert least < objective(task, f, float((coef.T @ K @ coef).item())) < 1.01 * least


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Pegasos(rows=0), "rows=0"),
        (lambda: Pegasos(ahead=-1), "ahead=-1"),
        (lambda: run(hinge_task(alpha=0.0), Pegasos()), "alpha=0"),
        (lambda: run(hinge_task(loss=Squared()), Pegasos(project=True)), "squared loss, whose value at 0"),
    ],
)
def test_pegasos_refuses_what_has_no_meaning(make: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()  # type: ignore[operator]
