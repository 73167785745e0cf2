"""BSGD: without a need for its budget it is kernelized Pegasos; points are taken out at the least cost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from daskkern.backend.communicator import SerialCommunicator
from daskkern.basis import KernelBasis
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, Laplacian
from daskkern.losses import Hinge, Logistic, Loss
from daskkern.solvers import BSGD, Pegasos, Problem
from daskkern.solvers.first_order.merging import LogKernel, best_merge
from daskkern.solvers.setup import ColumnSetup
from tests.support.solvers.column_bench import Task, hinge_task, run, steps, two_classes


def _problem(task: Task, budget: int) -> Problem:
    """Return the problem over as many landmarks; those that are set up are not the ones that are found."""
    problem = task.problem(0, 1)
    basis = KernelBasis(task.kernel, budget, np.zeros(0, np.int64), False)
    part = basis.part(basis.split(0, 1), task.X[:budget])
    setup: ColumnSetup = problem.extra
    return Problem(part, task.loss, task.alpha, task.y.shape[1], 5, task.epochs, task.dtype, setup)


def _fit(task: Task, budget: int, solver: BSGD, *, broken: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the model's points and coefficients."""
    problem, comm = _problem(task, budget), SerialCommunicator()
    state = solver.init(problem, comm)
    for epoch in range(task.epochs):
        state = steps(task, solver, problem, state, comm, task.order(epoch), broken=broken)
    points = solver.points(problem, state)
    assert points is not None
    coef = solver.finish(problem, state, comm)
    assert points.shape[0] == coef.shape[0] == budget
    return points, coef


def _reference(task: Task, budget: int, strategy: str) -> np.ndarray:
    """Return the values at all rows, by a loop over a list of points and coefficients."""
    k = task.kernel.block
    points, coef = np.zeros((0, task.X.shape[1])), np.zeros((0, task.y.shape[1]))
    t = 0
    for epoch in range(task.epochs):
        for i in np.concatenate(task.order(epoch)):
            t += 1
            x, y = task.X[i : i + 1], task.y[i : i + 1]
            g = task.loss.gradient(k(x, points) @ coef if len(points) else np.zeros_like(y), y)
            g = g if task.weight is None else g * task.weight[i]
            coef = (1 - 1 / t) * coef
            if t == 1:
                points, coef = points[:0], coef[:0]
            if not g.any():
                continue
            known = (points == x).all(axis=1)
            if known.any():  # a row that is met again is no new point
                coef[known] -= g / (task.alpha * t)
                continue
            points, coef = np.vstack([points, x]), np.vstack([coef, -g / (task.alpha * t)])
            if len(points) > budget:
                points, coef = _smaller(task, points, coef, strategy)
    return k(task.X.copy(), points) @ coef


def _smaller(task: Task, points: np.ndarray, coef: np.ndarray, strategy: str) -> tuple[np.ndarray, np.ndarray]:
    j = int((coef**2).sum(axis=1).argmin())
    rest = np.delete(np.arange(len(points)), j)
    if strategy == "projection":
        K = task.kernel.block(points.copy(), points)
        change = np.linalg.lstsq(K[np.ix_(rest, rest)], K[np.ix_(rest, [j])] @ coef[[j]], rcond=None)[0]
        return points[rest], coef[rest] + change
    return points[rest], coef[rest]


@pytest.mark.parametrize(("loss", "epochs"), [(Hinge(), 1), (Logistic(), 1), (Hinge(), 4), (Logistic(), 4)])
def test_a_budget_of_all_rows_is_kernelized_pegasos(loss: Loss, epochs: int) -> None:
    task = hinge_task(c=2, weighted=True, loss=loss, epochs=epochs)
    points, coef = _fit(task, task.n, BSGD())
    found = task.kernel.block(task.X.copy(), points) @ coef
    K, a = task.gram(), np.zeros_like(task.y)
    ahead = 0 if isinstance(loss, Hinge) else int(np.ceil(loss.smoothness * task.weight.max() / task.alpha))
    order = np.concatenate([rows for epoch in range(epochs) for rows in task.order(epoch)])
    for t, i in enumerate(order, 1):
        g = task.loss.gradient(K[[i]] @ a, task.y[[i]])[0] * task.weight[i]
        a *= 1 - 1 / (t + ahead)
        a[i] -= g / (task.alpha * (t + ahead))
    assert_allclose(found, K @ a, rtol=0, atol=1e-11 * np.abs(found).max())


@pytest.mark.parametrize(("strategy", "accuracy"), [("removal", 1e-11), ("projection", 1e-6)])
def test_points_too_many_are_removed_as_by_a_loop(strategy: str, accuracy: float) -> None:
    task = hinge_task(c=2, weighted=True, alpha=0.2, epochs=3)
    points, coef = _fit(task, 9, BSGD(strategy))
    expected = _reference(task, 9, strategy)
    found = task.kernel.block(task.X.copy(), points) @ coef
    assert_allclose(found, expected, rtol=0, atol=accuracy * np.abs(expected).max())


@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=2),
    st.lists(st.floats(-3, 3), min_size=2, max_size=2),
    st.floats(1e-3, 1.0),
)
@settings(max_examples=40, deadline=None)
def test_a_merge_loses_least_and_knows_what(a: list[float], b: list[float], kappa: float) -> None:
    x, z = np.zeros((1, 1)), np.array([[np.sqrt(-2 * np.log(kappa))]])
    one, other = np.array(a), np.array([b])
    j, best = best_merge(one, np.array([a, b]), np.log([1.0, kappa]), 0)
    assert j == 1  # the other one
    grid = np.linspace(0, 1, 41)

    def change(h: float) -> float:
        points = np.vstack([x, z, h * x + (1 - h) * z])
        coef = one * kappa ** ((1 - h) ** 2) + other[0] * kappa ** (h**2)
        terms = np.vstack([one, other[0], -coef])
        return float(np.trace(terms.T @ Gaussian(1.0).block(points.copy(), points) @ terms))

    assert change(best) <= min(change(float(step)) for step in grid) + 1e-4 * float(one @ one + other[0] @ other[0])
    assert change(best) <= float(one @ one) * (1 - kappa**2) + 1e-9  # no more than a projection on the other point


def test_the_pair_that_loses_least_is_merged() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        points, coef = rng.standard_normal((12, 2)), rng.standard_normal((12, 3))
        K = Gaussian(1.0).block(points.copy(), points)
        grid = np.linspace(0, 1, 401)[:, None]
        kept = [
            (((coef[0] * K[0, j] ** ((1 - grid) ** 2)) + coef[j] * K[0, j] ** (grid**2)) ** 2).sum(axis=1).max()
            for j in range(1, 12)
        ]
        lost = (coef[1:] ** 2).sum(axis=1) + 2 * coef[1:] @ coef[0] * K[0, 1:] - kept
        assert best_merge(coef[0], coef, np.log(K[0]), 0)[0] == 1 + lost.argmin()


def test_kernel_values_follow_points_that_are_replaced() -> None:
    rng = np.random.default_rng(1)
    kernel, X, points = Gaussian(np.array([0.5, 2.0, 1.0])), rng.standard_normal((6, 3)), rng.standard_normal((5, 3))
    logs = LogKernel(kernel.block(points.copy(), points), kernel.block(X, points), kernel.block(X.copy(), X))
    points[2] = X[4]
    logs.put(2, 4)
    points[1] = 0.3 * points[1] + 0.7 * points[2]
    logs.merge(1, 2, 0.3)
    points[0] = X[0]
    logs.put(0, 0)
    assert_allclose(np.exp(logs.points), kernel.block(points.copy(), points), rtol=1e-12)
    assert_allclose(np.exp(logs.rows), kernel.block(X, points), rtol=1e-12)
    assert_allclose(logs.points.diagonal(), 0, atol=0)


def test_few_points_classify_as_well_as_all_unless_they_are_only_removed() -> None:
    X, y = two_classes(200, 2, noise=0.1)
    task = Task(X, y, Hinge(), 0.02, epochs=4, kernel=Gaussian(1.0), batch=40)
    coef, f = run(task, Pegasos(averaging=0.0))
    assert (coef != 0).sum() > 100

    def accuracy(strategy: str) -> float:
        points, coef = _fit(task, 15, BSGD(strategy))
        return float((np.sign(task.kernel.block(X.copy(), points) @ coef) == y).mean())

    all_points = float((np.sign(f) == y).mean())
    assert min(accuracy("merging"), accuracy("projection")) > all_points - 0.02
    assert accuracy("removal") < all_points - 0.05


@pytest.mark.parametrize("strategy", ["merging", "projection"])
def test_support_points_survive_interruptions(strategy: str) -> None:
    task, solver = hinge_task(c=2, epochs=2), BSGD(strategy)
    for one, other in zip(_fit(task, 8, solver, broken=True), _fit(task, 8, solver), strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_budgets_hold_no_matrix() -> None:
    few, many = (BSGD().moving_bytes(p, 28, 4) for p in (1000, 20_000))
    assert few > 1000**2 * 8
    assert many == BSGD("removal").moving_bytes(20_000, 28, 4)


@pytest.mark.parametrize("held", [0, 1000])
def test_merging_is_the_same_whether_the_kernel_is_held(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = hinge_task(c=2, weighted=True, epochs=2)
    expected = _fit(task, 9, BSGD())
    monkeypatch.setattr("daskkern.solvers.first_order.budget.MOST_HELD", held)
    for one, other in zip(_fit(task, 9, BSGD()), expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-8)


def test_sparse_rows_make_sparse_points() -> None:
    task = hinge_task(sparse=True, epochs=2)
    points, coef = _fit(task, 8, BSGD())
    dense = Task(task.X.toarray(), task.y, task.loss, task.alpha)
    expected, other = _fit(dense, 8, BSGD())
    assert_allclose(points.toarray(), expected, rtol=0, atol=1e-12)
    assert_allclose(coef, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BSGD("drop"), "strategy='drop'"),
        (lambda: _fit(hinge_task(alpha=0.0), 5, BSGD()), "alpha=0"),
        (lambda: _fit(hinge_task(kernel=Laplacian(1.0)), 5, BSGD("merging")), "laplacian kernel"),
        (lambda: BSGD().init(_problem(hinge_task(), 5), type("Two", (), {"size": 2})()), "serial, but 2 ranks"),
    ],
)
def test_bsgd_refuses_what_has_no_meaning(make: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()  # type: ignore[operator]
