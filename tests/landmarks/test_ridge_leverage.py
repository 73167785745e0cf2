"""Ridge leverage scores: against their definition, the odds that follow, and the weights that undo them."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from daskkern import KernelClassifier, KernelRegressor, Landmarks
from daskkern.arrays import HostArray
from daskkern.backend.random import generator
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian, LinearKernel
from daskkern.landmarks import RidgeLeverage, parse_selector, ridge_leverage
from daskkern.landmarks.base import distinct
from daskkern.landmarks.ridge_leverage import _inclusion, _systematic
from daskkern.solvers import EigenPro

KERNEL = Gaussian(1.0)


def _rows(n: int = 500) -> HostArray:
    rng = np.random.default_rng(0)
    return np.concatenate([0.3 * rng.standard_normal((n - n // 10, 3)), 3 * rng.standard_normal((n // 10, 3))])


def _exact(K: HostArray, alpha: float) -> HostArray:
    return np.linalg.solve(K + alpha * len(K) * np.eye(len(K)), K).diagonal()


@pytest.mark.parametrize("alpha", [1e-2, 1e-3, 1e-4])
def test_scores_are_near_those_of_the_definition(alpha: float) -> None:
    X = _rows()
    found = RidgeLeverage(alpha)._scores(KERNEL, X, 400, np.random.default_rng(1))
    ratio = found / _exact(KERNEL.block(X, X), alpha)
    assert ratio.min() > 1 / 3
    assert ratio.max() < 3
    assert abs(np.median(ratio) - 1) < 0.35


def test_rare_rows_come_more_often_and_weigh_less() -> None:
    X = _rows()
    chosen = RidgeLeverage().select(ArrayRows(X, dtype=np.float64), KERNEL, 60, 0)
    assert chosen.indices is not None
    assert chosen.weights is not None
    rare = chosen.indices >= 450
    assert rare.mean() > 0.3  # of the rows: 0.1
    assert chosen.weights[rare].mean() < 0.5 * chosen.weights[~rare].mean()


@pytest.mark.repeated
def test_weighted_landmarks_stand_for_all_rows() -> None:
    X = _rows()
    rows = ArrayRows(X, dtype=np.float64)
    means = []
    for seed in range(200):
        chosen = RidgeLeverage(1e-3).select(rows, KERNEL, 100, seed)
        assert chosen.weights is not None
        means.append([(chosen.weights[:, None] * chosen.points**2).mean(), chosen.weights.mean()])
    error = np.std(means, axis=0) / 200**0.5
    np.testing.assert_array_less(np.abs(np.mean(means, axis=0) - [(X**2).mean(), 1.0]), 5 * error + 1e-9)


@given(
    scores=st.lists(st.floats(1e-6, 1), min_size=1, max_size=30),
    share=st.floats(0.01, 1),
    seed=st.integers(0, 99),
)
def test_odds_add_up_and_samples_have_that_size(scores: list[float], share: float, seed: int) -> None:
    n = max(1, round(share * len(scores)))
    odds = _inclusion(np.array(scores), n)
    assert abs(odds.sum() - n) < 1e-9
    assert (odds <= 1).all()
    assert (odds > 0).all()
    chosen = _systematic(odds, n, generator(seed, 0))
    assert np.unique(chosen).size == n


def test_all_rows_may_be_wanted() -> None:
    chosen = RidgeLeverage().select(ArrayRows(_rows(50), dtype=np.float64), KERNEL, 80, 0)
    assert chosen.points.shape == (50, 3)
    np.testing.assert_allclose(chosen.weights, 1)


def test_what_cannot_be_is_refused() -> None:
    for alpha in (0, 1, -1.0, float("inf"), float("nan"), "small"):
        with pytest.raises(SpecError, match="for ridge_leverage landmarks; give a number between 0 and 1, or 'auto'"):
            RidgeLeverage(alpha)
    with pytest.raises(DataError, match="the linear kernel is 0 on the rows"):
        RidgeLeverage().select(ArrayRows(np.zeros((5, 2)), dtype=np.float64), LinearKernel(), 2, 0)


def test_sparse_and_dense_rows_have_the_same_landmarks() -> None:
    X = scipy.sparse.random(200, 30, 0.2, "csr", np.float64, np.random.default_rng(3))
    found = [RidgeLeverage().select(ArrayRows(rows, dtype=np.float64), KERNEL, 20, 0) for rows in (X, X.toarray())]
    np.testing.assert_array_equal(found[0].indices, found[1].indices)
    np.testing.assert_allclose(found[0].weights, found[1].weights, rtol=1e-9)


@pytest.mark.one_in(11)
@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        ("falkon", "squared"),
        ("falkon", "logistic"),
        ("eigenpro", "squared_hinge"),
        (EigenPro(projection="eigenpro"), "squared"),
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", ["ridge_leverage", "rp_cholesky", "incomplete_cholesky"])
def test_models_on_chosen_landmarks_learn(rule: str, solver: Any, loss: str) -> None:
    rng = np.random.default_rng(5)
    X, wave = _rows(700), rng.standard_normal(3)
    y = np.sin(2 * X @ wave) > 0
    model = KernelClassifier(Gaussian(1.0), loss, Landmarks(150, rule), solver, 1e-6, 10, device="cpu").fit(X, y)
    uniform = KernelClassifier(Gaussian(1.0), loss, Landmarks(150), solver, 1e-6, 10, device="cpu").fit(X, y)
    assert model.score(X, y) > max(0.85, uniform.score(X, y) - 0.02)


def test_falkon_knows_the_weights_of_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    X = _rows()
    y = np.sin(X @ np.array([1.0, 2.0, -1.0]))
    losses = {}
    for weighted in (True, False):
        if not weighted:
            monkeypatch.setattr(ridge_leverage, "distinct", lambda points, indices, weights: distinct(points, indices))
        model = KernelRegressor(
            KERNEL, "squared", Landmarks(60, RidgeLeverage()), "falkon", 1e-4, 3, dtype="float64", device="cpu"
        ).fit(X, y)
        losses[weighted] = model.history_[-1].loss
    assert losses[True] < losses[False]  # nearer to the minimum after as many iterations


def test_rows_where_the_kernel_is_zero_are_no_landmarks() -> None:
    X = _rows(40)
    X[[3, 17]] = 0
    chosen = RidgeLeverage().select(ArrayRows(X, dtype=np.float64), LinearKernel(), 60, 0)
    assert chosen.points.shape == (38, 3)
    assert np.isfinite(chosen.weights).all()


@pytest.mark.parametrize("rule", ["ridge_leverage", "rp_cholesky", "incomplete_cholesky"])
def test_kernels_that_overflow_are_refused(rule: str) -> None:
    X = np.full((20, 2), 1e30, np.float32) * np.arange(1, 21, dtype=np.float32)[:, None]
    with np.errstate(all="ignore"), pytest.raises(DataError, match="overflows on the rows; scale the features"):
        parse_selector(rule).select(ArrayRows(X, dtype=np.float32), LinearKernel(), 5, 0)
