"""Ridge regression in leaves is that of the whole masked kernel matrix, on any number of ranks, in any parts."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from daskkern import KernelRegressor
from daskkern.basis import LocalRows
from daskkern.errors import SpecError
from daskkern.events import BatchFinished, EpochFinished, Event
from daskkern.kernels import Laplacian, Partitioned, TreeAverage
from daskkern.losses import Squared, SquaredHinge
from daskkern.solvers import LocalRidge, check_fit
from daskkern.solvers.local_ridge.leaf import LeafRows, solve_leaf
from tests.support.fits import Fit, Runs, toy_settings, toy_source


def _fit(leaf_rows: int = 20, *, weighted: bool = True, **solver: int) -> Fit:
    settings = toy_settings(LocalRows(leaf_rows), LocalRidge(**solver), Squared())
    return Fit.of(toy_source(weighted=weighted), replace(settings, alpha=1e-4, dtype="float64", batch_size=8))


def _leaf(s: int = 60, seed: int = 0) -> LeafRows:
    rng = np.random.default_rng(seed)
    return LeafRows(rng.standard_normal((s, 4)), rng.standard_normal((s, 2)), np.sqrt(rng.uniform(0, 3, (s, 1))))


def test_a_leaf_is_weighted_ridge_regression() -> None:
    rows, kernel, shift = _leaf(), Laplacian(2.0), 0.7
    K, W = kernel.block(rows.X, rows.X), np.diag(rows.root[:, 0] ** 2)
    wanted = np.linalg.solve(W @ K + shift * np.eye(60), W @ rows.y)
    found, loss = solve_leaf(kernel, rows, shift)
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert loss == pytest.approx(0.5 * (W @ (K @ wanted - rows.y) ** 2).sum())


def test_fewer_centres_are_the_best_of_their_span() -> None:
    rows, kernel, shift = _leaf(), Laplacian(2.0), 0.7
    centres = np.array([1, 5, 9, 20, 33, 41])
    C, W = kernel.block(rows.X, rows.X[centres]), np.diag(rows.root[:, 0] ** 2)
    gram = kernel.block(rows.X[centres], rows.X[centres])
    wanted = np.linalg.solve(C.T @ W @ C + shift * gram, C.T @ W @ rows.y)
    found, loss = solve_leaf(kernel, rows, shift, centres)
    np.testing.assert_allclose(found[centres], wanted, atol=1e-9)
    assert np.count_nonzero(found) == wanted.size
    assert loss == pytest.approx(0.5 * (W @ (C @ wanted - rows.y) ** 2).sum())


def test_all_centres_are_the_whole_leaf() -> None:
    rows, kernel = _leaf(), Laplacian(2.0)
    some, _ = solve_leaf(kernel, rows, 0.3, np.arange(60))
    np.testing.assert_allclose(some, solve_leaf(kernel, rows, 0.3)[0], atol=1e-7)


def test_a_fit_is_ridge_regression_with_the_masked_kernel() -> None:
    fit = _fit()
    results = fit.results(1)
    kernel = fit.prepared.basis.kernel
    assert isinstance(kernel, Partitioned)
    assert kernel.tree.n_leaves > 2
    rows = fit.source.open("float64")
    block = rows.read(0, rows.n_rows)
    K, y = kernel.block(block.X, block.X), fit.prepared.targets.encode(block.y)
    W = fit.prepared.targets.weight(block)
    wanted = np.linalg.solve(W * K + len(y) * 1e-4 * np.eye(len(y)), W * y)
    found = np.empty_like(wanted)
    found[results[0].ids] = results[0].coef
    np.testing.assert_allclose(found, wanted, atol=1e-7)
    loss = 0.5 * float((W * (K @ wanted - y) ** 2).sum()) / len(y)
    epochs = [event for event in results[0].history if isinstance(event, EpochFinished)]
    assert [epoch.loss for epoch in epochs] == [pytest.approx(loss)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_any_number_of_ranks_gives_the_same_coefficients(ranks: int) -> None:
    fit = _fit()
    np.testing.assert_allclose(fit.scores(fit.results(ranks)), fit.scores(fit.results(1)), atol=1e-9)


def test_more_ranks_than_leaves_are_of_no_use_and_no_harm() -> None:
    fit = _fit(60)
    assert fit.prepared.basis.kernel.tree.n_leaves < 5
    np.testing.assert_allclose(fit.scores(fit.results(5)), fit.scores(fit.results(1)), atol=1e-9)


def test_a_run_in_parts_and_on_other_ranks_is_the_run() -> None:
    fit = _fit()
    whole = fit.scores(fit.results(1))
    runs = Runs(fit)
    runs.run(2, until=3)
    runs.run(3, until=6)
    np.testing.assert_allclose(runs.scores(1), whole, atol=1e-9)


def test_large_leaves_have_fewer_centres() -> None:
    coef = _fit(1000, max_centres=12).results(1)[0].coef
    assert np.count_nonzero(coef.any(axis=1)) == 12


def _fit_trees(n_trees: int = 3, leaf_rows: int = 20) -> Fit:
    settings = toy_settings(LocalRows(leaf_rows, n_trees), LocalRidge(), Squared())
    return Fit.of(toy_source(weighted=True), replace(settings, alpha=1e-4, dtype="float64", batch_size=8))


def test_several_trees_are_the_mean_of_ridge_regressions() -> None:
    fit = _fit_trees()
    results = fit.results(1)
    kernel, rows = fit.prepared.basis.kernel, fit.source.open("float64")
    assert isinstance(kernel, TreeAverage)
    block = rows.read(0, rows.n_rows)
    y, W = fit.prepared.targets.encode(block.y), fit.prepared.targets.weight(block)
    wanted, losses = np.zeros_like(y), []
    for member in kernel.members:
        K = member.block(block.X, block.X)
        scores = K @ np.linalg.solve(W * K + len(y) * 1e-4 * np.eye(len(y)), W * y)
        wanted += scores / 3
        losses.append(0.5 * float((W * (scores - y) ** 2).sum()) / len(y))
    np.testing.assert_allclose(fit.scores(results), wanted, atol=1e-7)
    epochs = [event for event in results[0].history if isinstance(event, EpochFinished)]
    assert [epoch.loss for epoch in epochs] == [pytest.approx(np.mean(losses))]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [2, 5])
def test_several_trees_on_any_number_of_ranks_and_in_parts(ranks: int) -> None:
    fit = _fit_trees()
    whole = fit.scores(fit.results(1))
    np.testing.assert_allclose(fit.scores(fit.results(ranks)), whole, atol=1e-9)
    runs = Runs(fit)
    runs.run(ranks, until=3)
    np.testing.assert_allclose(runs.scores(ranks - 1), whole, atol=1e-9)


def test_trees_without_cuts_are_one() -> None:
    kernel = _fit_trees(leaf_rows=1000).prepared.basis.kernel
    assert isinstance(kernel, Partitioned)


def test_what_it_does_not_take_is_refused() -> None:
    with pytest.raises(SpecError, match="squared_hinge"):
        check_fit(LocalRidge(), SquaredHinge(), "local rows")
    with pytest.raises(SpecError, match="LocalRows"):
        check_fit(LocalRidge(), SquaredHinge(), "landmarks")
    with pytest.raises(SpecError, match="max_centres=3"):
        LocalRidge(max_centres=3)
    with pytest.raises(SpecError, match=r"leaf_rows=2\.5"):
        LocalRows(2.5)
    for n_trees in (0, 101, 1.5, True):
        with pytest.raises(SpecError, match="n_trees="):
            LocalRows(20, n_trees)


class _Presses:
    """Presses Ctrl-C after the first leaves that follow the last batch."""

    def __init__(self) -> None:
        self.n_pieces = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchFinished) and event.batch > event.n_batches:
            self.n_pieces += 1
            if self.n_pieces == 1:
                signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore:the fit has not converged")
def test_ctrl_c_ends_with_the_leaves_so_far() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3))
    presses, given = _Presses(), {"alpha": 1e-3, "device": "cpu", "calibrate": False}
    model, whole = (
        KernelRegressor("laplacian:2", basis=LocalRows(100), solver=LocalRidge(), callbacks=callbacks, **given)
        for callbacks in ([presses], None)
    )
    y = np.sin(2 * X).sum(axis=1)
    model.fit(X, y)
    assert model.stop_reason_ == "interrupted"
    assert presses.n_pieces < 4
    coef, exact = (np.asarray(each.dual_coef_).ravel() for each in (model, whole.fit(X, y)))
    solved = coef != 0
    assert 0 < solved.sum() < 4000
    np.testing.assert_array_equal(coef[solved], exact[solved])
    assert model.history_[-1].loss < whole.history_[-1].loss  # of the leaves that are solved
