"""Block coordinate descent and ASkotch: what a step is, that every step helps, and what acceleration and rank do."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import FloatArray, HostArray
from daskkern.basis import AllRows, Landmarks
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import Logistic, Squared
from daskkern.solvers import ASkotch, BlockCD, Solver, check_fit
from daskkern.solvers.kernel_ridge.askotch import nystrom_approximation, projected_step
from daskkern.solvers.kernel_ridge.blocks import CoordinateBlock
from daskkern.training.run.settings import FitSettings
from tests.support import naive
from tests.support.fits import Fit, toy_source


def _fit(solver: Solver[object], epochs: int, m: int, alpha: float = 1e-2, *, zero: bool = False) -> Fit:
    source = toy_source(weighted=True, regression=True)
    if zero:
        assert source.weight is not None
        source = replace(source, weight=np.where(np.arange(len(source.weight)) % 5 == 0, 0.0, source.weight))
    chosen = FitSettings(
        Gaussian(1.5), Squared(), AllRows(), solver, alpha, max_epochs=epochs, batch_size=m, dtype="float64",
        device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(source, chosen)


def _coef(fit: Fit) -> HostArray:
    result = fit.results(1)[0]
    coef = np.empty_like(result.coef)
    coef[result.ids] = result.coef
    return coef


def _system(fit: Fit) -> tuple[HostArray, HostArray, HostArray]:
    """Return ``W^(1/2) K W^(1/2) + n alpha``, ``W^(1/2) y`` and ``W^(1/2)``."""
    K = naive.kernel_matrix(fit.settings.kernel.spec(), fit.source.X, fit.source.X)
    root = np.sqrt(fit.source.weight / fit.source.weight.mean())[:, None]
    n = len(K)
    y = fit.prepared.targets.encode(fit.source.y)
    return root * K * root.T + n * fit.settings.alpha * np.eye(n), root * y, root


def _error(fit: Fit, a: HostArray) -> float:
    """Return the error's energy as a share of the solution's."""
    A, b, root = _system(fit)
    best = np.linalg.solve(A, b)
    e = np.divide(a, root, out=np.zeros_like(a), where=root > 0) - best
    return float((e * (A @ e)).sum() / (best * (A @ best)).sum())


@pytest.mark.parametrize("zero", [False, True])
def test_one_block_of_all_rows_is_the_solution(zero: bool) -> None:
    fit = _fit(BlockCD(), 1, 200, zero=zero)
    A, b, root = _system(fit)
    np.testing.assert_allclose(_coef(fit), root * np.linalg.solve(A, b), atol=1e-9)


def test_blocks_are_solved_one_after_the_other() -> None:
    fit = _fit(BlockCD(), 2, 30)
    A, b, root = _system(fit)
    a, plan = np.zeros_like(b), fit.prepared.plan
    for epoch in (1, 2):
        for number in plan.order(epoch):
            B = plan.positions(number)
            a[B] += np.linalg.solve(A[np.ix_(B, B)], b[B] - A[B] @ a)
    np.testing.assert_allclose(_coef(fit), root * a, atol=1e-9)


@pytest.mark.long
def test_more_epochs_are_nearer_and_larger_blocks_too() -> None:
    errors = {(epochs, m): _error(_fit(BlockCD(), epochs, m), _coef(_fit(BlockCD(), epochs, m)))
              for epochs, m in ((1, 20), (3, 20), (9, 20), (3, 65))}  # fmt: skip
    assert errors[9, 20] < errors[3, 20] < errors[1, 20] < 1
    assert errors[3, 65] < errors[3, 20]


@pytest.mark.repeated
def test_acceleration_and_rank_help_where_the_system_is_ill_conditioned() -> None:
    def error(solver: ASkotch) -> float:
        fit = _fit(solver, 15, 26, 1e-5)
        return _error(fit, _coef(fit))

    accelerated, plain = error(ASkotch(10)), error(ASkotch(10, accelerated=False))
    assert accelerated < plain < 1
    assert error(ASkotch(26)) < accelerated


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), m=st.integers(1, 40), rank=st.integers(1, 40), shift=st.floats(1e-4, 10.0))
def test_a_projected_step_never_overshoots(seed: int, m: int, rank: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 3))
    K: FloatArray = Gaussian(2.0).block(X, X)
    residual = rng.standard_normal((m, 2))
    d = projected_step(CoordinateBlock(K, shift, residual, np.ones((m, 1)), 0.0), rank, seed, 3)
    A = K + shift * np.eye(m)
    before = np.linalg.solve(A, residual)
    left = before - d
    assert ((left * (A @ left)).sum(axis=0) <= (before * (A @ before)).sum(axis=0) * (1 + 1e-9)).all()
    U, S = nystrom_approximation(K, min(rank, m), rng)
    np.testing.assert_allclose(U.T @ U, np.eye(min(rank, m)), atol=1e-8)
    assert np.linalg.eigvalsh(K - (U * S) @ U.T)[0] >= -1e-8 * m  # never above K
    assert (np.diff(S) <= 1e-12).all()


@pytest.mark.parametrize("solver", [BlockCD(), ASkotch()])
def test_what_they_cannot_do_is_refused(solver: Solver[object]) -> None:
    with pytest.raises(SpecError, match=r"got alpha=0 for \w+, which leaves its systems singular"):
        _fit(solver, 1, 30, 0.0).results(1)
    with pytest.raises(SpecError, match="needs a loss with linear normal equations"):
        check_fit(solver, Logistic(), "all rows")
    with pytest.raises(SpecError, match="needs all rows as centres"):
        check_fit(solver, Squared(), Landmarks(3).name)
    with pytest.raises(SpecError, match="got rank=0"):
        ASkotch(0)
