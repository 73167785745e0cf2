"""A direct solution that is stopped has the exact model of its first columns, and its loss."""

import signal
from typing import Any

import numpy as np
import pytest

from daskkern import KernelRegressor
from daskkern.basis import AllRows, BasisSpec, Landmarks, RandomFeatures
from daskkern.events import BatchFinished, EpochFinished, Event
from daskkern.kernels import Gaussian
from daskkern.solvers import Direct

ALPHA, N, P = 1e-3, 3200, 2200
KERNEL = Gaussian(0.5)


def _rows() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).standard_normal((N, 3))
    y = np.sin(2 * X).sum(axis=1)
    return X, (y - y.mean()) / y.std()


class _Presses:
    """Presses Ctrl-C after the first piece of the solution."""

    def __init__(self) -> None:
        self.n_pieces = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, EpochFinished):
            assert type(event.loss) is float  # other numbers are not sent between workers
        if isinstance(event, BatchFinished) and event.batch > event.n_batches:
            self.n_pieces += 1
            if self.n_pieces == 1:
                signal.raise_signal(signal.SIGINT)


def _model(basis: BasisSpec, **others: Any) -> KernelRegressor:
    given = {"scale": None, "dtype": "float64", "device": "cpu", "fit_intercept": False, "calibrate": False} | others
    return KernelRegressor(KERNEL, basis=basis, solver=Direct(), alpha=ALPHA, **given)


@pytest.mark.filterwarnings("ignore:the fit has not converged")
@pytest.mark.parametrize("basis", [AllRows(), Landmarks(P), RandomFeatures(P)], ids=["rows", "landmarks", "features"])
def test_ctrl_c_ends_with_the_exact_model_of_the_first_columns(basis: BasisSpec, monkeypatch: Any) -> None:
    monkeypatch.setattr("daskkern.linalg.dense.PIECE", 1e8)
    X, y = _rows()
    presses = _Presses()
    model = _model(basis, callbacks=[presses]).fit(X, y)
    assert presses.n_pieces < 4
    assert model.stop_reason_ == "interrupted"
    coef = np.asarray(model.dual_coef_)[:, 0]
    k = int(np.flatnonzero(coef).max()) + 1
    assert 1024 <= k < len(coef)
    residual = y - np.asarray(model.predict(X)).ravel()
    assert model.history_[-1].loss == pytest.approx(0.5 * np.mean(residual**2), rel=1e-5)
    if not isinstance(basis, RandomFeatures):
        points = model.model_.points[:k]
        K_XZ, K_ZZ = KERNEL.block(X, points), KERNEL.block(points, points)
        if isinstance(basis, AllRows):
            left, right = K_ZZ + N * ALPHA * np.eye(k), y[:k]
        else:
            left, right = K_XZ.T @ K_XZ / N + ALPHA * K_ZZ, K_XZ.T @ y / N
        np.testing.assert_allclose(left @ coef[:k], right, atol=1e-6 * np.abs(right).max())


@pytest.mark.filterwarnings("ignore:the fit has not converged")
@pytest.mark.parametrize("basis", [AllRows(), Landmarks(40)], ids=["rows", "landmarks"])
def test_a_pass_that_is_stopped_gives_the_exact_model_of_the_rows_so_far(basis: BasisSpec) -> None:
    X, y = _rows()
    model = _model(basis, batch_size=1600, max_seconds=1e-3).fit(X, y)
    assert model.stop_reason_ == "max_seconds"
    assert model.score(X, y) > 0.5
    coef = np.asarray(model.dual_coef_)[:, 0]
    if isinstance(basis, AllRows):
        seen = coef != 0
        assert seen.sum() == 1600
        left, right = KERNEL.block(X[seen], X[seen]) + 1600 * ALPHA * np.eye(1600), y[seen]
        np.testing.assert_allclose(left @ coef[seen], right, atol=1e-6)
