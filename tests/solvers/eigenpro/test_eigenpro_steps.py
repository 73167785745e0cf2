"""EigenPro against its formula in function space, against direct solves, and against itself on several ranks."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.kernel_ridge import KernelRidge

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.losses import LOSSES, Hinge, Logistic, Loss, MultinomialLogistic, Squared, SquaredHinge
from daskkern.solvers import SOLVERS, EigenPro, NystromSGD, parse_solver
from tests.support import naive
from tests.support.solvers import steps_bench as bench
from tests.support.solvers.steps_bench import Toy, eigenpro, scores, toy, train

LAST = EigenPro(averaging=0.0)
SMOOTHNESS = {
    "squared": 1,
    "squared_hinge": 2,
    "smoothed_hinge": 1,
    "logistic": 1 / 4,
    "multinomial_logistic": 1 / 2,
    "huber": 1,
    "squared_epsilon_insensitive": 2,
}
each_loss = pytest.mark.parametrize("loss", [loss() for loss in LOSSES.values()], ids=lambda loss: loss.name)


def _matrix(problem: Toy) -> HostArray:
    return naive.kernel_matrix(problem.kernel.spec(), problem.X, problem.X)


def _eta(setup: bench.Setup, number: int) -> float:
    problem = setup.toy
    m = problem.batch(number).size
    noise = setup.state.beta + (m - 1) * setup.state.top
    eta = 0.99 * m / (SMOOTHNESS.get(problem.loss.name, 1) * noise + m * problem.alpha)
    decay = 1.0 if problem.loss.name in SMOOTHNESS else (1 + number / len(problem.batches)) ** -0.5
    return float(eta * decay)


def _trajectory(
    setup: bench.Setup, steps: int, project_every: int | None = None, K: HostArray | None = None
) -> HostArray:
    """Return the values at all rows after `steps` steps of the formula, projected on the centres now and then."""
    problem, solver = setup.toy, setup.solver
    assert isinstance(solver, EigenPro)
    K, f = _matrix(problem) if K is None else K, np.zeros_like(problem.y)
    weight = None if problem.weight is None else problem.weight[setup.S]
    for number in range(steps):
        B = problem.batch(number)
        g = bench.gradient(problem, f, B)
        options = {"q": setup.state.damping.size, "rho": solver.rho, "tau": solver.tau, "weight": weight}
        f = naive.eigenpro_step(K, setup.S, B, f, g, _eta(setup, number), problem.alpha, **options)
        if project_every and (number + 1) % project_every == 0:
            Z = setup.centres
            f = K[:, Z] @ np.linalg.solve(K[np.ix_(Z, Z)], f[Z])
    return f


@pytest.mark.one_in(5)
@each_loss
@pytest.mark.parametrize(("alpha", "weighted"), [(0.0, False), (0.05, False), (0.0, True), (0.05, True)])
def test_steps_with_all_rows_as_centres_are_the_formula_in_function_space(
    loss: Loss, alpha: float, weighted: bool
) -> None:
    problem = toy(loss, alpha=alpha, weighted=weighted)
    setup = eigenpro(problem, LAST)
    for steps in (1, 7):
        np.testing.assert_allclose(
            scores(setup, train(setup, steps=steps)), _trajectory(setup, steps), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize(("rho", "tau"), [(1.0, 1.0), (0.5, 1.0), (0.95, 0.25)])
@pytest.mark.parametrize("q", [0, 5])
def test_any_damping_is_the_formula_in_function_space(rho: float, tau: float, q: int) -> None:
    setup = eigenpro(toy(Squared()), EigenPro(averaging=0.0, rho=rho, tau=tau), q=q)
    np.testing.assert_allclose(scores(setup, train(setup, steps=5)), _trajectory(setup, 5), rtol=1e-9, atol=1e-9)


@pytest.mark.one_in(5)
@each_loss
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(("alpha", "weighted"), [(0.0, False), (0.05, True)])
def test_an_exactly_projected_window_leaves_the_values_at_the_centres_as_they_were(
    loss: Loss, window: int, alpha: float, weighted: bool
) -> None:
    problem = toy(loss, n_batches=6, alpha=alpha, weighted=weighted)
    setup = eigenpro(problem, LAST, centres=35, window=window)
    unprojected = _trajectory(setup, window)
    projected = scores(setup, train(setup, steps=window))
    np.testing.assert_allclose(projected[setup.centres], unprojected[setup.centres], rtol=1e-8, atol=1e-8)
    others = np.setdiff1d(np.arange(problem.n), setup.centres)
    assert np.abs(projected[others] - unprojected[others]).max() > 1e-4  # it was a projection, not the identity


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_follow_on_one_another(window: int) -> None:
    setup = eigenpro(toy(Logistic(), n_batches=6, alpha=0.02), LAST, centres=35, window=window)
    expected = _trajectory(setup, 12, project_every=window)
    np.testing.assert_allclose(scores(setup, train(setup, steps=12)), expected, rtol=1e-8, atol=1e-8)


def test_the_last_batch_of_an_epoch_ends_its_window() -> None:
    problem = toy(Squared(), n_batches=4)
    ragged = train(eigenpro(problem, LAST, centres=35, window=3), steps=4)
    by_hand = eigenpro(problem, LAST, centres=35, window=3)
    f = _trajectory(by_hand, 3, project_every=3)
    B = problem.batch(3)
    K = _matrix(problem)
    f = naive.eigenpro_step(
        K, by_hand.S, B, f, bench.gradient(problem, f, B), _eta(by_hand, 3), 0.0, q=4, rho=0.95, tau=1.0
    )
    np.testing.assert_allclose(scores(by_hand, ragged)[by_hand.centres], f[by_hand.centres], rtol=1e-8, atol=1e-8)


def test_an_interrupted_window_falls_back_on_the_last_projection() -> None:
    setup = eigenpro(toy(Squared(), n_batches=6), LAST, centres=35, window=3)
    done = train(setup, steps=3)
    np.testing.assert_array_equal(train(setup, steps=5), done)
    np.testing.assert_array_equal(train(setup, steps=2), 0)
    assert not np.allclose(train(setup, steps=6), done)


def _one_batch(problem: Toy, epochs: int) -> Toy:
    return replace(problem, batches=(np.arange(problem.n),), epochs=epochs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_with_all_rows_as_centres_the_fixed_point_is_the_ridge_solution(alpha: float, weighted: bool) -> None:
    problem = _one_batch(toy(Squared(), alpha=alpha, weighted=weighted), 700)
    K = _matrix(problem)
    best = naive.ridge(K, problem.y, alpha, problem.weight)
    found = train(eigenpro(problem, LAST))
    at = [naive.objective(problem.loss.value, K, K, a, problem.y, alpha, problem.weight) for a in (best, found)]
    assert at[1] == pytest.approx(at[0], rel=1e-6)
    np.testing.assert_allclose(found, best, atol=1e-3 * np.abs(best).max())


@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_with_centres_the_fixed_point_is_the_nystrom_ridge_solution(alpha: float) -> None:
    problem = _one_batch(toy(Squared(), alpha=alpha), 700)
    setup = eigenpro(problem, LAST, centres=35)
    K = _matrix(problem)
    K_XZ, K_ZZ = K[:, setup.centres], K[np.ix_(setup.centres, setup.centres)]
    best, found = naive.nystrom_ridge(K_XZ, K_ZZ, problem.y, alpha), train(setup)
    at = [naive.objective(problem.loss.value, K_XZ, K_ZZ, a, problem.y, alpha) for a in (best, found)]
    assert at[1] == pytest.approx(at[0], rel=1e-6)


def test_the_ridge_solution_is_scikit_learns_kernel_ridge() -> None:
    problem = _one_batch(toy(Squared(), alpha=0.05), 700)
    theirs = KernelRidge(alpha=0.05 * problem.n, kernel="precomputed").fit(_matrix(problem), problem.y)
    setup = eigenpro(problem, LAST)
    np.testing.assert_allclose(scores(setup, train(setup)), theirs.predict(_matrix(problem)), atol=1e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge(), MultinomialLogistic()], ids=lambda loss: loss.name)
def test_the_fixed_point_of_any_smooth_loss_satisfies_its_optimality_condition(loss: Loss) -> None:
    problem = _one_batch(toy(loss, alpha=0.05), 700)
    setup = eigenpro(problem, LAST)
    a = train(setup)
    condition = bench.gradient(problem, scores(setup, a), np.arange(problem.n)) / problem.n + 0.05 * a
    assert np.abs(condition).max() < 1e-5 * np.abs(a).max()


@pytest.mark.one_in(5)
@each_loss
@pytest.mark.parametrize("centres", [None, 35])
@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_every_loss_goes_down(loss: Loss, centres: int | None, alpha: float) -> None:
    problem = toy(loss, epochs=6, alpha=alpha)
    setup = eigenpro(problem, EigenPro(), centres=centres, window=2)
    K = _matrix(problem)
    Z = np.arange(problem.n) if centres is None else setup.centres
    K_XZ, K_ZZ = K[:, Z], K[np.ix_(Z, Z)]
    start, end = (
        naive.objective(loss.value, K_XZ, K_ZZ, a, problem.y, alpha)
        for a in (np.zeros((len(Z), problem.y.shape[1])), train(setup))
    )
    assert end < 0.7 * start


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(("centres", "window", "iterative"), [(None, 1, 0), (35, 1, 0), (35, 3, 0), (35, 2, 0.1)])
def test_any_number_of_ranks_gives_the_same_model(
    dtype: str, accuracy: float, ranks: int, centres: int | None, window: int, iterative: float
) -> None:
    problem = toy(Logistic(), epochs=3, alpha=1e-3, weighted=True).as_type(dtype)
    setup = eigenpro(problem, EigenPro(), centres=centres, window=window)
    alone, together = (scores(setup, train(setup, size, iterative=iterative)) for size in (1, ranks))
    np.testing.assert_allclose(together, alone, rtol=0, atol=accuracy * np.abs(alone).max())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_temporary_centres_of_large_batches_are_cut_dealt_and_joined(ranks: int) -> None:
    problem = toy(Logistic(), 2400, alpha=1e-3)  # a batch has five units; one rank joins 1,024 of its 1,800 centres
    setup = eigenpro(problem, LAST, centres=35, window=4)
    K = np.exp(cdist(problem.X, problem.X) / -3.0)
    expected = _trajectory(setup, 4, project_every=4, K=K)
    found = scores(setup, train(setup, ranks))
    np.testing.assert_allclose(found[setup.centres], expected[setup.centres], rtol=1e-8, atol=1e-8)


def test_single_precision_follows_double_precision() -> None:
    problem = toy(SquaredHinge(), epochs=3)
    for centres in (None, 35):
        double, single = (eigenpro(problem.as_type(dtype), LAST, centres=centres, window=2) for dtype in ("f8", "f4"))
        np.testing.assert_allclose(
            scores(single, train(single)), scores(double, train(double)), atol=2e-4, err_msg=str(centres)
        )


def test_steps_on_a_loss_with_kinks_shrink_like_the_root_of_the_epochs() -> None:
    # So far from the margin of 1 that the subgradient stays what it is: each step moves by its own size.
    problem = _one_batch(toy(Hinge(), alpha=0.0), 4)
    problem = replace(problem, y=1e-6 * problem.y)
    setup = eigenpro(problem, LAST)
    iterates = [scores(setup, train(setup, steps=k)) for k in range(5)]
    moved = [float(np.linalg.norm(after - before)) for before, after in pairwise(iterates)]
    np.testing.assert_allclose(np.array(moved) / moved[0], [1, 2**-0.5, 3**-0.5, 4**-0.5], rtol=1e-9)


@pytest.mark.parametrize("averaging", [0.5, 1.0])
def test_the_model_is_the_mean_of_the_last_iterates(averaging: float) -> None:
    problem = toy(Squared(), epochs=2)
    iterates = [train(eigenpro(problem, LAST), steps=k) for k in range(9)]
    first = max(1, round(8 * (1 - averaging)))
    averaged = train(eigenpro(problem, EigenPro(averaging=averaging)))
    np.testing.assert_allclose(averaged, np.mean(iterates[first:], axis=0), rtol=1e-10, atol=1e-12)
    early = train(eigenpro(problem, EigenPro(averaging=averaging)), steps=first - 1)
    np.testing.assert_array_equal(early, iterates[first - 1])  # no mean before it begins


def test_with_centres_the_mean_is_over_projected_models() -> None:
    problem = toy(Squared(), epochs=3)
    steps = [2, 4, 6, 8, 10, 12]
    iterates = [train(eigenpro(problem, LAST, centres=35, window=2), steps=k) for k in steps]
    averaged = train(eigenpro(problem, EigenPro(averaging=1 / 3), centres=35, window=2))
    np.testing.assert_allclose(averaged, np.mean(iterates[3:], axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"subsample": 0}, "subsample=0 for EigenPro; expected a positive whole number or 'auto'"),
        ({"n_directions": -1}, "got n_directions=-1"),
        ({"window": "long"}, "got window='long'"),
        ({"window": True}, "got window=True"),
        ({"projection": "svd"}, "projection='svd'; expected 'auto', 'exact' or 'eigenpro'"),
        ({"averaging": 1.5}, r"averaging=1\.5; expected a share between 0 and 1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        EigenPro(**settings)  # type: ignore[arg-type]


def test_solvers_are_found_by_name() -> None:
    assert parse_solver("eigenpro") == EigenPro()
    assert parse_solver("auto") == EigenPro(step_scale=1.5)
    assert parse_solver("nystrom_sgd") == NystromSGD()
    assert all(parse_solver(kind()) == kind() for kind in SOLVERS.values())
    with pytest.raises(SpecError, match=r"solver 'eigen_pro' is unknown; did you mean 'eigenpro'\?"):
        parse_solver("eigen_pro")
